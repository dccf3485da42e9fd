// SPDX-License-Identifier: MIT
//
// Tests whether direct I/O works here. It moves bytes between a buffer and an anonymous file, which the kernel deletes
// however the test ends. After each request the whole buffer or file is compared with its expected contents, and the
// kernel's counters with the expected route. The report may be published: it contains no file names and no addresses.

#include "tools/selftest/selftest.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/check/check.hpp"
#include "tools/selftest/device_memory.hpp"
#include "tools/stat/io_counts.hpp"
#include "tools/system/anonymous_file.hpp"
#include "tools/system/fd.hpp"
#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

using Clock = std::chrono::steady_clock;

constexpr auto time_limit = std::chrono::seconds(60); // for all steps; a running step is not aborted
constexpr uint32_t ring_depth = 8;
enum Seed : uint64_t { in_file = 1, in_buffer = 2, written = 100 };

// splitmix64 of the word's index.
uint64_t word_of(uint64_t seed, uint64_t index)
{
	uint64_t z = seed * 0x2545f4914f6cdd1dull ^ index * 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

// The result of one step.
struct Outcome {
	std::string name;
	State state = State::good;
	Counts counts;
	std::string found; // the fault; empty if good
};

class Selftest
{
public:
	Selftest(const Device &device, const std::string &dir)
		: sys_(peerdma_impl::system_calls()), device_(device), fd_(sys_, open_anonymous(sys_, dir))
	{
		struct peerdma_file *file = nullptr;
		int rc = fd_.get();
		if (rc >= 0)
			rc = fill();
		if (rc >= 0)
			rc = peerdma_file_from_fd(device.get(), fd_.get(), &file);
		if (rc < 0)
			throw Failure{"cannot create a file in this directory", -rc, 0, "", {}};
		file_.reset(file);
	}

	const File &file() const { return file_; }

	void allocate(const struct peerdma_provider_info &provider)
	{
		struct peerdma_buf *raw = nullptr;
		uint32_t reason = 0;
		int rc = peerdma_buf_create(device_.get(), provider.id, selftest_buffer, 0, &raw, &reason);
		if (rc < 0)
			throw Failure{
				fmt::format("cannot allocate {} in the provider's memory", size_text(selftest_buffer)),
				-rc,
				reason,
				"",
				{}};
		buffer_.reset(raw);
		proxy_ = {static_cast<char *>(map_buffer(buffer_)), selftest_buffer};
	}

	// Makes a buffer of vendor memory, with the drive as the importing function. Returns its provider.
	struct peerdma_provider_info register_vendor_memory(const std::string &vendor, const PciAddress &drive)
	{
		vendor_ = allocate_memory(sys_, vendor, selftest_buffer);
		struct peerdma_pointer_args args = {};
		struct peerdma_buf *raw = nullptr;
		args.size = sizeof(args);
		args.addr = vendor_->address();
		args.len = selftest_buffer;
		args.pci_domain = drive.domain;
		args.pci_bdf = drive.bdf;
		args.ze_context = vendor_->ze_context();
		int rc = peerdma_buf_from_pointer(device_.get(), &args, &raw);
		if (rc < 0)
			throw Failure{fmt::format("cannot make a buffer of memory from {}{}", vendor_->library(),
						  args.out_result ?
							  fmt::format(", which returned {:#x}",
								      static_cast<uint32_t>(args.out_result)) :
							  ""),
				      -rc,
				      args.out_reason,
				      "",
				      {}};
		buffer_.reset(raw);
		base_ = args.out_buf_off;
		struct peerdma_buf_info info = {};
		struct peerdma_provider_info provider = {};
		info.size = sizeof(info);
		provider.size = sizeof(provider);
		rc = peerdma_buf_query(raw, &info);
		if (!rc)
			rc = peerdma_provider_get(device_.get(), info.provider_id, &provider);
		if (rc)
			throw Failure{"cannot query the provider of the memory", -rc, 0, "", {}};
		return provider;
	}

	std::vector<Outcome> run(const struct peerdma_explanation &why, const Now &now)
	{
		alignment_ = {std::max<uint64_t>(why.dio_offset_align, 1), std::max<uint64_t>(why.dio_mem_align, 1)};
		software_ = why.map == PEERDMA_MAP_SOFTWARE;
		std::vector<Outcome> outcomes;
		const auto end = now() + time_limit;
		for (const Step &step : selftest_steps(alignment_.block))
			outcomes.push_back(
				now() < end ?
					run_step(step) :
					Outcome{step.name, State::bad, {}, "not run: the time limit was reached"});
		return outcomes;
	}

private:
	int fill()
	{
		model_ = pattern(in_file, 0, selftest_file);
		return static_cast<int>(std::min<int64_t>(fd_.write(model_, 0), 0));
	}

	// Reads the file from the drive, after dropping its pages.
	std::string read_back() const
	{
		::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
		std::string bytes(selftest_file + 1, '\0');
		bytes.resize(static_cast<size_t>(std::max<int64_t>(fd_.read(bytes, 0), 0)));
		return bytes;
	}

	// Stores bytes in the device's memory. Reading the last word back flushes the stores, because the memory is not
	// cached.
	void put(const std::string &bytes)
	{
		if (vendor_)
			return vendor_->put(bytes);
		std::memcpy(proxy_.data(), bytes.data(), bytes.size());
		static_cast<void>(*static_cast<volatile const char *>(&proxy_.back()));
	}

	std::string memory()
	{
		if (!vendor_)
			return {proxy_.data(), proxy_.size()};
		std::string bytes(selftest_buffer, '\0');
		vendor_->get(bytes);
		return bytes;
	}

	// The buffer may begin before the tested memory: shifts a request to the right offset.
	Piece in_buffer_of(Piece piece) const
	{
		piece.buf_off += base_;
		return piece;
	}

	Outcome run_step(const Step &step)
	{
		Outcome outcome{step.name, State::good, {}, ""};
		const std::string before =
			pattern(step.write ? written + step_++ : uint64_t{in_buffer}, 0, selftest_buffer);
		std::string after = before;
		Expected want;
		put(before);
		for (const Piece &piece : step.pieces) {
			const Expected one = expected(in_buffer_of(piece), model_.size(), alignment_);
			want.done += one.done;
			want.direct += software_ ? 0 : one.direct;
			if (step.write)
				model_.replace(piece.file_off, piece.len, before, piece.buf_off, piece.len);
			else
				after.replace(piece.buf_off, one.done, model_, piece.file_off, one.done);
		}
		const auto first = kernel_counts(sys_, device_);
		auto wrong = [&](State state, std::string what) {
			outcome.state = state;
			outcome.found = std::move(what);
			return outcome;
		};
		std::optional<Counts> said;
		if (const Outcome failed = step.ring ? by_ring(step) : by_call(step, said); !failed.found.empty()) {
			// After an error the contents are undefined: take the file as it is now.
			model_ = read_back();
			model_.resize(selftest_file);
			return wrong(failed.state, failed.found);
		}
		const auto last = kernel_counts(sys_, device_);
		if (first && last)
			outcome.counts = *last - *first;
		else if (said)
			outcome.counts = *said;
		const Counts &counts = outcome.counts;
		if (first && last && said &&
		    (said->direct != counts.direct || said->near != counts.near || said->host != counts.host))
			return wrong(State::bad, fmt::format("the call reported {} direct, {} near, {} host, but the "
							     "kernel counted {}, {}, {}",
							     said->direct, said->near, said->host, counts.direct,
							     counts.near, counts.host));
		if ((said || (first && last)) && (counts.all() != want.done || counts.direct != want.direct))
			return wrong(State::bad, fmt::format("{} bytes moved, {} of them direct; expected {} and {}",
							     counts.all(), counts.direct, want.done, want.direct));
		if (const std::string where = difference(after, memory()); !where.empty())
			return wrong(State::bad, "wrong in the buffer: " + where);
		if (const std::string where = step.write ? difference(model_, read_back()) : ""; !where.empty())
			return wrong(State::bad, "wrong in the file: " + where);
		return outcome;
	}

	Outcome by_call(const Step &step, std::optional<Counts> &said) const
	{
		const Piece piece = in_buffer_of(step.pieces.front());
		struct peerdma_io_result result = {};
		result.size = sizeof(result);
		const auto call = step.write ? peerdma_write_result : peerdma_read_result;
		const int64_t n = call(file_.get(), buffer_.get(), piece.buf_off, piece.len, piece.file_off, &result);
		if (n < 0 || result.error)
			return {step.name,
				State::bad,
				{},
				failure(n < 0 ? static_cast<int>(-n) : static_cast<int>(result.error), result.reason)};
		said = Counts{result.direct, result.near, result.host};
		return {};
	}

	static std::string failure(int error, uint32_t reason)
	{
		return reason ? fmt::format("{}, {}: {}", errno_name(error), peerdma_reason_name(reason),
					    peerdma_reason_text(reason)) :
				fmt::format("{}: {}", errno_name(error),
					    strerrordesc_np(error) ? strerrordesc_np(error) : "");
	}

	Outcome by_ring(const Step &step) const
	{
		struct peerdma_ring *raw = nullptr;
		const auto count = static_cast<uint32_t>(step.pieces.size());
		int rc = peerdma_ring_create(device_.get(), ring_depth, std::max(count, ring_depth), 0, &raw);
		const Ring ring(raw);
		// Rings are optional: a container may forbid them.
		if (rc < 0)
			return {step.name,
				State::unknown,
				{},
				fmt::format("rings are not available ({})", errno_name(-rc))};
		std::vector<struct peerdma_op> ops;
		for (const Piece &piece : step.pieces) {
			struct peerdma_op op = {};
			op.kind = step.write ? PEERDMA_OP_WRITE : PEERDMA_OP_READ;
			op.file = file_.get();
			op.buf = buffer_.get();
			op.buf_off = in_buffer_of(piece).buf_off;
			op.len = piece.len;
			op.file_off = piece.file_off;
			op.tag = ops.size();
			ops.push_back(op);
		}
		rc = peerdma_ring_queue(raw, ops.data(), count);
		std::vector<bool> ended(count);
		std::string wrong;
		for (uint32_t left = rc < 0 ? 0 : count; left && rc >= 0;) {
			std::array<struct peerdma_done, ring_depth> done;
			rc = wait_for(ring, done.data(), ring_depth);
			for (int i = 0; i < rc; i++) {
				const auto &one = done[static_cast<size_t>(i)];
				const Piece &piece = step.pieces.at(one.tag);
				const auto want = static_cast<int64_t>(expected(piece, model_.size(), alignment_).done);
				if (ended.at(one.tag))
					wrong = "a request ended twice";
				ended.at(one.tag) = true;
				if (one.result < 0)
					wrong = failure(static_cast<int>(-one.result), 0);
				else if (one.result != want)
					wrong = fmt::format("a request ended with {} bytes of {}", one.result, want);
				left--;
			}
			if (!rc)
				wrong = "a request did not end";
			if (!rc)
				break;
		}
		if (rc < 0)
			wrong = failure(-rc, 0);
		return {step.name, wrong.empty() ? State::good : State::bad, {}, wrong};
	}

	peerdma_impl::Syscalls &sys_;
	const Device &device_;
	const Fd fd_;
	File file_;
	std::unique_ptr<DeviceMemory> vendor_; // NULL: the provider's memory
	Buffer buffer_;                        // destroyed before the memory
	uint64_t base_ = 0;                    // bytes from the buffer's start to the tested memory
	std::span<char> proxy_;                // mapping of the provider's memory
	std::string model_;                    // expected contents of the file
	Alignment alignment_ = {1, 1};
	bool software_ = false;
	uint64_t step_ = 0;
};

std::string ids_of(peerdma_impl::Syscalls &sys, const std::string &pci)
{
	const std::string vendor = line_of(sys, pci_devices + pci + "/vendor"),
			  device = line_of(sys, pci_devices + pci + "/device");
	return vendor.size() > 2 && device.size() > 2 ? vendor.substr(2) + ":" + device.substr(2) : "unknown";
}

// The PCI function of the drive below the file: from the module if a provider is published, else from sysfs.
PciAddress drive_below(peerdma_impl::Syscalls &sys, const Device &device, const File &file, const std::string &dir)
{
	uint32_t id = 0;
	if (peerdma_provider_list(device.get(), &id, 1) > 0) {
		struct peerdma_provider_info provider = {};
		provider.id = id;
		const auto why = explain_route(file, "the file", provider);
		if (why.leaf_domain || why.leaf_bdf)
			return {why.leaf_domain, why.leaf_bdf};
	} else {
		const Host host{.sys = sys, .release = ""};
		for (const std::string &disk : subject_of(host, dir).disks)
			for (const std::string &drive : block_stack(host, disk).backing)
				if (const auto address = PciAddress::parse(function_of(host, drive)))
					return *address;
	}
	throw Failure{"the drive below is not a PCI function, so a GPU's driver cannot export memory for it",
		      0,
		      0,
		      "Name a directory on an NVMe drive of this machine.",
		      {}};
}

std::string trimmed(std::string text)
{
	text.erase(text.find_last_not_of(' ') + 1);
	return text;
}

// The drives below the file, by model and not by address.
std::vector<std::string> drives_of(peerdma_impl::Syscalls &sys, const File &file,
				   const struct peerdma_provider_info &provider)
{
	std::vector<std::string> drives;
	for (uint32_t device = 0, count = 1; device < count; device++) {
		const auto why = explain_route(file, "the file", provider, device);
		count = why.nr_leaves;
		if (!count || !why.leaf_major)
			break;
		const std::string dir = block_devices + why.leaf_name + "/device/";
		std::string model = trimmed(line_of(sys, dir + "model"));
		drives.push_back(fmt::format("{} ({}, {})", model.empty() ? "unknown model" : model,
					     ids_of(sys, pci_text(why.leaf_domain, why.leaf_bdf)),
					     why.leaf_reason ? peerdma_reason_name(why.leaf_reason) :
							       fmt::format("distance {}", why.leaf_distance)));
	}
	return drives;
}

} // namespace

std::string pattern(uint64_t seed, uint64_t offset, uint64_t len)
{
	// Generates whole words and cuts the ends off.
	std::string bytes(round_up(offset % 8 + len, 8), '\0');
	for (uint64_t at = 0; at < bytes.size(); at += 8) {
		const uint64_t word = word_of(seed, offset / 8 + at / 8);
		std::memcpy(&bytes[at], &word, 8);
	}
	return bytes.substr(offset % 8, len);
}

std::string difference(std::string_view want, std::string_view got)
{
	if (want == got)
		return "";
	const size_t most = std::min(want.size(), got.size());
	size_t at = 0;
	while (at < most && want[at] == got[at])
		at++;
	if (at < most) {
		size_t count = 0;
		for (size_t i = at; i < most; i++)
			count += want[i] != got[i];
		return fmt::format("{} bytes differ, the first at {}: {:#04x}, not {:#04x}", count, at,
				   static_cast<unsigned char>(got[at]), static_cast<unsigned char>(want[at]));
	}
	return fmt::format("{} bytes, not {}", got.size(), want.size());
}

Expected expected(const Piece &piece, uint64_t file_len, const Alignment &alignment)
{
	Expected want;
	want.done = piece.file_off < file_len ? std::min(piece.len, file_len - piece.file_off) : 0;
	const uint64_t first = round_up(piece.file_off, alignment.block),
		       last = (piece.file_off + want.done) / alignment.block * alignment.block;
	// If the drive cannot address the whole blocks of a request, no byte is direct.
	if (last > first && (piece.buf_off + first - piece.file_off) % alignment.mem == 0)
		want.direct = last - first;
	return want;
}

std::vector<Step> selftest_steps(uint64_t block)
{
	constexpr uint64_t page = 4096, odd = 123, tail = selftest_file - 5000;
	std::vector<Step> steps;
	for (bool write : {false, true}) {
		const std::string what = write ? "write" : "read";
		auto add = [&](const char *name, bool ring, std::vector<Piece> pieces) {
			steps.push_back({fmt::format("{}{}, {}", what, ring ? " by ring" : "", name), write, ring,
					 std::move(pieces)});
		};
		add("whole blocks", false, {{0, 0, 512 << 10}});
		add("one block", false, {{16 * page, 3 * page, block}});
		add("odd offset and length", false, {{2 * page + odd, page + odd, 100003}});
		add("inside a block", false, {{5 * page + 100, 5 * page + 100, 100}});
		add("odd place in the buffer", false, {{4 * page, page + 1, 4 * page}});
		if (!write)
			add("past the end of the file", false, {{tail, odd * page + tail % page, 5 * page}});
		std::vector<Piece> whole, torn;
		// Descending offsets: a wrong order of the results shows.
		for (uint64_t i = 0; i < 32; i++)
			whole.push_back({(63 - i) * 4 * page, i * 8 * page, 4 * page});
		for (uint64_t i = 0; i < 8; i++)
			torn.push_back({(40 - i) * 8 * page + odd + i, i * 16 * page + odd + i, 5 * page + 77});
		add("whole blocks", true, whole);
		add("odd offsets and lengths", true, torn);
	}
	return steps;
}

Report selftest(const SelftestOptions &options) { return selftest(options, Clock::now); }

Report selftest(const SelftestOptions &options, const Now &now)
{
	auto &sys = peerdma_impl::system_calls();
	const bool of_vendor = options.memory != "provider";
	if (of_vendor && !options.provider.empty())
		throw Usage{"--provider is only valid with --memory provider; a vendor's library selects the device by "
			    "its environment"};
	const Device device = open_device();
	auto provider = of_vendor ? peerdma_provider_info{} : find_provider(device, options.provider);
	Selftest test(device, options.dir);
	if (of_vendor)
		provider =
			test.register_vendor_memory(options.memory, drive_below(sys, device, test.file(), options.dir));
	const auto why = explain_route(test.file(), "the file", provider);
	struct peerdma_device_info info = {};
	info.size = sizeof(info);
	peerdma_query(device.get(), &info);
	struct utsname machine = {};
	uname(&machine);

	const auto drives = drives_of(sys, test.file(), provider);
	const std::string route = why.error ? "none" : peerdma_route_name(why.route);
	Report report;
	auto row = [&](const char *key, const std::string &value) {
		report.text += fmt::format("{:<9}{}\n", key, value);
	};
	row("peerdma", fmt::format("{}, ABI {}, features {:#x}", peerdma_version(), info.abi, info.features));
	row("kernel", fmt::format("{} {}", machine.release, machine.machine));
	row("files on", why.fs_name[0] ? why.fs_name : "an unknown filesystem");
	for (const std::string &drive : drives)
		row("drive", drive);
	row("device", fmt::format("{:04x}:{:04x}, BAR {}, {} published", provider.pci_vendor, provider.pci_device,
				  provider.bar, size_text(provider.len)));
	row("memory", options.memory);
	row("route", why.error ? fmt::format("none ({}, {}: {})", errno_name(static_cast<int>(why.error)),
					     peerdma_reason_name(why.reason), peerdma_reason_text(why.reason)) :
				 fmt::format("{}, distance {}, {}", route, why.distance, peerdma_map_name(why.map)));
	report.json = {{"ok", true},
		       {"works", false},
		       {"version", peerdma_version()},
		       {"abi", info.abi},
		       {"features", info.features},
		       {"kernel", machine.release},
		       {"machine", machine.machine},
		       {"filesystem", why.fs_name},
		       {"drives", drives},
		       {"device", fmt::format("{:04x}:{:04x}", provider.pci_vendor, provider.pci_device)},
		       {"memory", options.memory},
		       {"route", route},
		       {"reason", peerdma_reason_name(why.reason)},
		       {"advice", peerdma_reason_advice(why.reason)},
		       {"distance", why.distance},
		       {"map", peerdma_map_name(why.map)},
		       {"dio_offset_align", why.dio_offset_align},
		       {"dio_mem_align", why.dio_mem_align},
		       {"steps", Json::array()}};
	if (why.error) {
		row("advice", peerdma_reason_advice(why.reason));
		row("result", "no bytes can move directly");
		report.status = exit_failed;
		return report;
	}
	row("blocks", fmt::format("{} bytes of the file, places in the buffer in steps of {}", why.dio_offset_align,
				  why.dio_mem_align));
	size_t good = 0, bad = 0;
	if (!of_vendor)
		test.allocate(provider);
	const auto outcomes = test.run(why, now);
	for (const Outcome &outcome : outcomes) {
		good += outcome.state == State::good;
		bad += outcome.state == State::bad;
		const std::string counts = fmt::format("{} direct, {} near, {} host", outcome.counts.direct,
						       outcome.counts.near, outcome.counts.host);
		row(state_name(outcome.state),
		    fmt::format("{:<40}{}", outcome.name, outcome.found.empty() ? counts : outcome.found));
		report.json["steps"].push_back({{"name", outcome.name},
						{"state", state_name(outcome.state)},
						{"direct", outcome.counts.direct},
						{"near", outcome.counts.near},
						{"host", outcome.counts.host},
						{"found", outcome.found}});
	}
	const bool works = !bad && good;
	report.json["works"] = works;
	row("result",
	    fmt::format("{}: {} of {} steps are good", works ? "works" : "does not work", good, outcomes.size()));
	report.status = works ? exit_ok : exit_failed;
	return report;
}

} // namespace cli
