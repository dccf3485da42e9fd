// SPDX-License-Identifier: MIT
//
// peerdma view read: elements of a view, or of a plain file, by libpeerdma's calls, into a file or standard output.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/copy/copy.hpp"
#include "tools/view/view.hpp"
#include "view/codec.hpp"
#include "view/layout.hpp"

namespace cli
{
namespace
{

constexpr uint64_t piece_bytes = 4 << 20; // that are delivered by one call, at most

struct CloseView {
	void operator()(struct peerdma_view *p) const { peerdma_view_close(p); }
};
using View = std::unique_ptr<struct peerdma_view, CloseView>;

View open_view(const ViewOptions &options)
{
	const std::string &path = options.device, &codec = options.file_codec;
	if (!codec.empty() && !view::Codec::parse(codec))
		throw Usage{fmt::format("--codec: '{}': expected ELEMENT:REDUCED, for example u32:u16, u32:17, i64:18, "
					"f32:bf16",
					codec)};
	struct peerdma_view_args args = {};
	args.size = sizeof(args);
	args.codec = codec.empty() ? nullptr : codec.c_str();
	struct peerdma_view *view = nullptr;
	const int rc = peerdma_view_open(nullptr, path.c_str(), &args, &view);
	const std::string_view why = args.out_why;
	if (rc < 0)
		throw Failure{fmt::format("cannot open {}{}{}", path, why.empty() ? "" : ": ", why), -rc, 0, "", {}};
	return View(view);
}

struct peerdma_view_description description_of(const View &view, const std::string &path)
{
	struct peerdma_view_description info = {};
	info.size = sizeof(info);
	if (const int rc = peerdma_view_info(view.get(), &info); rc < 0)
		throw Failure{fmt::format("cannot describe {}", path), -rc, 0, "", {}};
	return info;
}

// Return: the number of elements that the options name.
uint64_t count_of(const ViewOptions &options, const struct peerdma_view_description &info)
{
	const std::string &path = options.device;
	if (options.first > info.elements)
		throw Failure{fmt::format("{}: --first {}: it has {} elements", path, options.first, info.elements),
			      EINVAL,
			      0,
			      "",
			      {}};
	const uint64_t rest = info.elements - options.first;
	if (options.count > rest) // an empty optional is the least
		throw Failure{fmt::format("{}: --count {}: from element {} on it has {}", path, *options.count,
					  options.first, rest),
			      EINVAL,
			      0,
			      "",
			      {}};
	if (options.packed && options.first % view::group_elements * info.bits % 8)
		throw Failure{fmt::format("{}: --packed --first {}: with {} bits each it does not begin with a byte",
					  path, options.first, info.bits),
			      EINVAL,
			      0,
			      fmt::format("Give a multiple of {}.", 8 / std::gcd(info.bits, 8U)),
			      {}};
	return options.count.value_or(rest);
}

// Where the elements go. A regular file is written without a name, and gets it by finish(): until then a file of that name
// stays as it is. What else has a name is written to directly, except a disk.
class Target
{
public:
	// Throws Failure or Usage. source: the file that is read.
	Target(const std::string &path, const struct stat &source)
	{
		struct stat st = {};
		if (path == "-") {
			name_ = "standard output";
			fd_ = STDOUT_FILENO;
			refuse_terminal();
			if (::fstat(fd_, &st) == 0)
				refuse_source(st, source);
			return;
		}
		std::error_code error;
		const std::filesystem::path real = std::filesystem::canonical(path, error);
		name_ = error ? path : real.string();
		if (::stat(path.c_str(), &st) < 0) {
			if (errno != ENOENT)
				throw Failure{fmt::format("cannot write {}", path), errno, 0, "", {}};
			mode_ = mode_of_new_file(path, 0666);
			file_.emplace(peerdma_impl::system_calls(), name_);
			return;
		}
		refuse_source(st, source);
		if (S_ISREG(st.st_mode)) {
			mode_ = st.st_mode & 0777; // the owner changes, so setuid must not be kept
			file_.emplace(peerdma_impl::system_calls(), name_);
			return;
		}
		if (S_ISBLK(st.st_mode))
			throw Failure{fmt::format("{} is a block device", name_),
				      EINVAL,
				      0,
				      "peerdma view read does not write to disks.",
				      {}};
		// O_NONBLOCK: a FIFO that no program reads is an error.
		auto &sys = peerdma_impl::system_calls();
		own_.emplace(sys, sys.open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
		fd_ = own_->get();
		if (fd_ < 0)
			throw Failure{fmt::format("cannot write {}", path), -fd_, 0, "", {}};
		refuse_terminal();
	}
	Target(const Target &) = delete;
	Target &operator=(const Target &) = delete;

	void write(std::string_view bytes) const
	{
		if (const int error = write_all(file_ ? file_->fd() : fd_, bytes))
			throw Failure{fmt::format("cannot write to {}", name_), error, 0, "", {}};
	}
	void finish()
	{
		if (file_)
			file_->publish(mode_);
	}

private:
	void refuse_terminal() const
	{
		if (::isatty(fd_))
			throw Usage{fmt::format("{} is a terminal; expected --output FILE, or a pipe", name_)};
	}
	void refuse_source(const struct stat &to, const struct stat &from) const
	{
		if (S_ISREG(to.st_mode) && to.st_dev == from.st_dev && to.st_ino == from.st_ino)
			throw Failure{fmt::format("{} is the file that is read", name_), EINVAL, 0, "", {}};
	}

	std::string name_;
	std::optional<AtomicFile> file_;
	mode_t mode_ = 0;
	std::optional<Fd> own_; // fd_, if it was opened here
	int fd_ = -1;
};

class Reader
{
public:
	Reader(const ViewOptions &options, View view, const struct peerdma_view_description &info)
		: options_(options), view_(std::move(view)), info_(info),
		  most_(options.packed ? piece_bytes * 8 / info.bits / view::group_elements * view::group_elements :
					 piece_bytes / info.element_bytes)
	{
	}

	// Throws Failure that names the elements.
	void read(uint64_t count, const Target &target)
	{
		Progress progress;
		std::vector<std::byte> piece(delivered_bytes(std::min(most_, count)));
		for (uint64_t done = 0; done < count; done += most_) {
			const uint64_t here = std::min(most_, count - done);
			read_piece(options_.first + done, here, piece);
			target.write({reinterpret_cast<const char *>(piece.data()), delivered_bytes(here)});
			written_ += delivered_bytes(here);
			if (progress.due())
				progress.say(
					fmt::format("{:.1f} %, {}, {}",
						    100 * static_cast<double>(done + here) / static_cast<double>(count),
						    size_text(written_), rate_text(written_, seconds())));
		}
	}

	uint64_t written() const { return written_; } // bytes
	uint64_t moved() const { return moved_; }     // bytes read from the device or file
	double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

private:
	using Clock = std::chrono::steady_clock;

	uint64_t delivered_bytes(uint64_t elements) const
	{
		return options_.packed ? view::packed_bytes(elements, info_.bits) : elements * info_.element_bytes;
	}

	void read_piece(uint64_t first, uint64_t count, std::vector<std::byte> &to)
	{
		struct peerdma_view_read_args args = {};
		args.size = sizeof(args);
		args.first = first;
		args.count = count;
		args.as = options_.packed ? PEERDMA_VIEW_AS_PACKED : PEERDMA_VIEW_AS_FILE;
		args.to = to.data();
		struct peerdma_view_result result = {};
		result.size = sizeof(result);
		const int64_t n = peerdma_view_read(view_.get(), &args, &result);
		if (n < 0 || static_cast<uint64_t>(n) != count)
			fail(first, count, result, n < 0 ? static_cast<int>(-n) : ENODATA);
		moved_ += result.read;
		// The rest of the last byte is not specified.
		if (const unsigned used = count % view::group_elements * info_.bits % 8; used && options_.packed)
			to[delivered_bytes(count) - 1] &= static_cast<std::byte>((1U << used) - 1);
	}

	[[noreturn]] void fail(uint64_t first, uint64_t count, const struct peerdma_view_result &result,
			       int error) const
	{
		const std::string &path = options_.device;
		if (error == ERANGE)
			throw Failure{fmt::format("{}: element {} does not fit into {}", path, result.misfit,
						  std::string_view(info_.codec)),
				      error,
				      0,
				      "",
				      {{"element", result.misfit}}};
		std::string advice;
		struct stat st = {};
		const bool is_disk = ::stat(path.c_str(), &st) == 0 && S_ISBLK(st.st_mode);
		// By way of the page cache a medium error is an I/O error.
		if (is_disk && (error == ENODATA || error == EIO))
			advice = "On the storage node, peerdma view status says why.";
		else if (!is_disk && error == ENODATA)
			advice = "The file has become shorter while it was read.";
		throw Failure{
			fmt::format("{}: cannot read elements {} to {}", path, first + result.done, first + count - 1),
			error,
			0,
			advice,
			{{"element", first + result.done}}};
	}

	const ViewOptions &options_;
	const View view_;
	const struct peerdma_view_description info_;
	const uint64_t most_; // elements of a piece
	const Clock::time_point start_ = Clock::now();
	uint64_t written_ = 0, moved_ = 0;
};

} // namespace

const char *where_name(uint32_t where)
{
	switch (where) {
	case PEERDMA_VIEW_WHERE_STORAGE:
		return "storage";
	case PEERDMA_VIEW_WHERE_HOST:
		return "host";
	default:
		return "none";
	}
}

Report view_read(const ViewOptions &options)
{
	const bool is_stdout = options.output == "-";
	if (options.json && is_stdout)
		throw Usage{"view read: --json: standard output has the elements; expected --output FILE"};
	View view = open_view(options);
	const struct peerdma_view_description info = description_of(view, options.device);
	const uint64_t count = count_of(options, info);
	struct stat source = {};
	if (::stat(options.device.c_str(), &source) < 0)
		source = {}; // it was renamed since
	Target target(options.output, source);
	Reader reader(options, std::move(view), info);
	reader.read(count, target);
	target.finish();

	const double seconds = reader.seconds();
	Report report;
	report.json = {{"ok", true},
		       {"device", options.device},
		       {"output", options.output},
		       {"where", where_name(info.where)},
		       {"codec", info.codec},
		       {"bits", info.bits},
		       {"packed", options.packed},
		       {"first", options.first},
		       {"elements", count},
		       {"bytes", reader.written()},
		       {"bytes_read", reader.moved()},
		       {"seconds", seconds},
		       {"rate", seconds > 0 ? Json(static_cast<double>(reader.written()) / seconds) : Json()}};
	if (is_stdout)
		return report;
	const auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<10}{}\n", key, value);
	};
	row("file", fmt::format("{}: {}", escaped(options.device), std::string_view(info.text)));
	row("elements", fmt::format("{} from {} on", count, options.first));
	row("output",
	    fmt::format("{}: {}, {}", escaped(options.output), size_text(reader.written()),
			options.packed ?
				fmt::format("packed, {} bit{} each", info.bits, info.bits == 1 ? "" : "s") :
				fmt::format("{} byte{} each", info.element_bytes, info.element_bytes == 1 ? "" : "s")));
	row("seconds",
	    fmt::format("{:.6f}{}", seconds, seconds > 0 ? " (" + rate_text(reader.written(), seconds) + ")" : ""));
	return report;
}

} // namespace cli
