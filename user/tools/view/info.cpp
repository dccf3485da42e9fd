// SPDX-License-Identifier: MIT
//
// peerdma view info: the header of a view on a block device or in an image file, and whether its data is what was published.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/view/view.hpp"
#include "view/header.hpp"

namespace cli
{
namespace
{

constexpr int ended = -1; // no errno

struct Free {
	void operator()(void *p) const { std::free(p); }
};

// A buffer for O_DIRECT.
class Bytes
{
public:
	explicit Bytes(uint64_t size)
		: size_(round_up(size, view::header_unit)),
		  bytes_(static_cast<std::byte *>(std::aligned_alloc(view::header_unit, size_)))
	{
		if (!bytes_)
			throw std::bad_alloc();
	}
	std::span<std::byte> first(uint64_t count) { return {bytes_.get(), count}; }
	uint64_t size() const { return size_; }

private:
	const uint64_t size_;
	std::unique_ptr<std::byte, Free> bytes_;
};

// A block device, past the page cache, or a regular file.
class Image
{
public:
	explicit Image(const std::string &path)
	{
		constexpr int how = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
		struct stat st = {};
		if (::stat(path.c_str(), &st) < 0)
			throw Failure{fmt::format("cannot open {}", path), errno, 0, "", {}};
		if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
			throw Failure{fmt::format("{} is neither a block device nor a regular file", path),
				      EINVAL,
				      0,
				      "",
				      {}};
		fd_ = ::open(path.c_str(), S_ISBLK(st.st_mode) ? how | O_DIRECT : how);
		if (fd_ < 0)
			throw Failure{fmt::format("cannot open {}", path), errno, 0, "", {}};
		const off_t end = ::lseek(fd_, 0, SEEK_END);
		bytes_ = end > 0 ? static_cast<uint64_t>(end) : 0;
	}
	~Image()
	{
		if (fd_ >= 0)
			::close(fd_);
	}
	Image(const Image &) = delete;
	Image &operator=(const Image &) = delete;

	uint64_t bytes() const { return bytes_; }
	// Returns 0, errno, or `ended` if it ends before. `to` may be overwritten to its whole size.
	int read(uint64_t offset, uint64_t count, Bytes &to) const
	{
		const uint64_t whole = round_up(count, view::header_unit);
		for (uint64_t at = 0; at < count;) {
			const ssize_t n = ::pread(fd_, to.first(to.size()).data() + at, whole - at,
						  static_cast<off_t>(offset + at));
			if (n < 0 && errno != EINTR)
				return errno;
			if (n == 0)
				return ended;
			at += n > 0 ? static_cast<uint64_t>(n) : 0;
		}
		return 0;
	}

private:
	int fd_ = -1;
	uint64_t bytes_ = 0;
};

view::Header read_header(const Image &image, const std::string &path)
{
	const auto read = [&](uint64_t count, Bytes &to) {
		const int error = image.read(0, count, to);
		if (error == ended)
			throw Failure{
				fmt::format("{}: not a view: it is shorter than a view's header", path), 0, 0, "", {}};
		if (error)
			throw Failure{fmt::format("{}: cannot read the header", path), error, 0, "", {}};
	};
	try {
		Bytes start(view::header_unit);
		read(view::header_unit, start);
		if (!view::begins_as_view(start.first(view::header_unit)))
			throw Failure{fmt::format("{}: not a view: it does not begin with a view's header", path),
				      0,
				      0,
				      "",
				      {}};
		const view::HeaderStart found = view::parse_start(start.first(view::header_unit));
		// Before memory is taken for it.
		if (found.header_bytes > image.bytes() || found.data_bytes > image.bytes() - found.header_bytes)
			throw Failure{fmt::format("{}: it has {} bytes, and its header says {} and {} of data", path,
						  image.bytes(), found.header_bytes, found.data_bytes),
				      0,
				      0,
				      "",
				      {}};
		Bytes whole(found.header_bytes);
		read(found.header_bytes, whole);
		return view::parse(whole.first(found.header_bytes));
	} catch (const view::BadHeader &bad) {
		throw Failure{fmt::format("{}: not a view: {}", path, bad.what()), 0, 0, "", {}};
	}
}

// The elements of a chunk: "elements 0 to 1023, from /data/a, element 0".
std::string place_of(const view::Header &header, uint64_t chunk)
{
	const uint64_t bits = header.codec.bits, begin = chunk * view::sum_bytes * 8 / bits,
		       end = std::min(((chunk + 1) * view::sum_bytes * 8 + bits - 1) / bits, header.elements);
	uint64_t first = 0;
	for (const view::FileEntry &file : header.files) {
		if (begin < first + file.elements)
			return fmt::format("elements {} to {}, from {}, element {} on", begin, end - 1, file.name,
					   begin - first);
		first += file.elements;
	}
	return "";
}

// Throws Failure that names the first chunk that is not as it was published.
void verify_data(const Image &image, const view::Header &header, const std::string &path)
{
	Progress progress;
	Bytes bytes(view::sum_bytes);
	const uint64_t data_bytes = header.data_bytes();
	for (uint64_t chunk = 0; chunk < header.sums.size(); chunk++) {
		const uint64_t offset = header.bytes() + chunk * view::sum_bytes,
			       count = std::min(view::sum_bytes, data_bytes - chunk * view::sum_bytes);
		const auto fail = [&](const std::string &why, int error) {
			throw Failure{fmt::format("{}: chunk {} (bytes {} to {}; {}){}", path, chunk, offset,
						  offset + count - 1, place_of(header, chunk), why),
				      error,
				      0,
				      "",
				      {{"bad_chunk", chunk}, {"bad_offset", offset}}};
		};
		if (const int error = image.read(offset, count, bytes))
			fail(error == ended ? " is not there any more" : " cannot be read", std::max(error, 0));
		if (const uint32_t sum = view::crc32c(bytes.first(count)); sum != header.sums[chunk])
			fail(fmt::format(" has the CRC32C {:08x}, and was published with {:08x}", sum,
					 header.sums[chunk]),
			     0);
		if (progress.due())
			progress.say(fmt::format("verified {} of {}", size_text(chunk * view::sum_bytes),
						 size_text(data_bytes)));
	}
}

} // namespace

Report view_info(const ViewOptions &options)
{
	const Image image(options.device);
	const view::Header header = read_header(image, options.device);
	if (options.verify)
		verify_data(image, header, options.device);

	Report report;
	report.json = {{"ok", true},
		       {"device", options.device},
		       {"codec", header.codec.name()},
		       {"element", view::element_name(header.codec.element)},
		       {"bits", header.codec.bits},
		       {"elements", header.elements},
		       {"header_bytes", header.bytes()},
		       {"data_bytes", header.data_bytes()},
		       {"chunks", header.sums.size()},
		       {"verified", options.verify},
		       {"files", Json::array()}};
	report.text = fmt::format("{}: {} elements of {}, {} bit{} each\n", escaped(options.device), header.elements,
				  header.codec.name(), header.codec.bits, header.codec.bits == 1 ? "" : "s");
	report.text +=
		fmt::format("data: {} from byte {} on, {} chunk{} with a CRC32C{}\n", size_text(header.data_bytes()),
			    header.bytes(), header.sums.size(), header.sums.size() == 1 ? "" : "s",
			    options.verify ? ", all as they were published" : "");
	uint64_t first = 0;
	for (const view::FileEntry &file : header.files) {
		report.json["files"].push_back({{"name", file.name}, {"first", first}, {"elements", file.elements}});
		report.text += fmt::format("  {}: ", escaped(file.name));
		report.text += file.elements ? fmt::format("elements {} to {}\n", first, first + file.elements - 1) :
					       "empty\n";
		first += file.elements;
	}
	return report;
}

} // namespace cli
