// SPDX-License-Identifier: MIT
//
// Copies a file to another through a provider's memory. If both files have a direct route, no byte passes through host
// memory.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/copy/copy.hpp"
#include "tools/selftest/selftest.hpp"

namespace cli
{
namespace
{

constexpr uint64_t piece = 1 << 20; // bytes
constexpr uint32_t pieces = 8;      // in parallel

// The path of the target: in a directory, the source's name is appended; a symbolic link is resolved.
std::string target_of(const CopyOptions &options)
{
	std::error_code error;
	std::filesystem::path target = options.target;
	if (std::filesystem::is_directory(target, error))
		target /= std::filesystem::path(options.source).filename();
	const auto real = std::filesystem::canonical(target, error);
	return error ? target.string() : real.string();
}

// Refuses to replace anything but another regular file. Return: the mode of the target.
mode_t mode_for(const std::string &source, const struct stat &from, const std::string &target)
{
	struct stat to = {};
	if (::stat(target.c_str(), &to) == 0) {
		if (from.st_dev == to.st_dev && from.st_ino == to.st_ino)
			throw Failure{fmt::format("{} and {} are the same file", source, target),
				      EINVAL,
				      0,
				      "There is nothing to copy.",
				      {}};
		if (!S_ISREG(to.st_mode))
			throw Failure{fmt::format("{} is not a regular file", target),
				      EINVAL,
				      0,
				      "cp replaces files only.",
				      {}};
		return to.st_mode & 0777; // the owner changes, so setuid must not be kept
	}
	if (errno != ENOENT)
		throw Failure{fmt::format("cannot stat {}", target), errno, 0, "", {}};
	return mode_of_new_file(target, from.st_mode & 0777);
}

// Halves the buffer until the provider has room for it.
Buffer largest_buffer(const Device &device, const struct peerdma_provider_info &provider, uint32_t &count)
{
	for (;; count /= 2) {
		try {
			return create_buffer(device, provider, count * piece);
		} catch (const Failure &failure) {
			if ((failure.error != ENOMEM && failure.error != EDQUOT) || count == 1)
				throw;
		}
	}
}

std::string bounced_text(const BounceCounts &bounced, const struct peerdma_explanation &why)
{
	const uint32_t not_direct = why_not_direct(why);
	std::string text = not_direct ? fmt::format("through host memory: {}, {}", peerdma_reason_name(not_direct),
						    peerdma_reason_text(not_direct)) :
					"direct";
	if (!not_direct && (bounced.near || bounced.host))
		text += fmt::format(", but for {} bytes {}: {}, {}", bounced.near + bounced.host,
				    bounced.host ? "through host memory" : "near the provider",
				    peerdma_reason_name(bounced.reason), peerdma_reason_text(bounced.reason));
	return text;
}

Json bounced_json(const BounceCounts &bounced, const struct peerdma_explanation &why)
{
	const uint32_t not_direct = why_not_direct(why);
	return {{"filesystem", why.fs_name},
		{"direct", not_direct == 0},
		{"bounced_near", bounced.near},
		{"bounced_host", bounced.host},
		{"reason", peerdma_reason_name(not_direct ? not_direct : bounced.reason)},
		{"leaf", backing_json(why)},
		{"distance", why.distance},
		{"map", peerdma_map_name(why.map)}};
}

// Reads all of the bytes: a short read would leave a part uncompared.
void read_again(const Fd &fd, const std::string &name, std::string &bytes, uint64_t at)
{
	const int64_t n = fd.read(bytes, at);
	if (n == static_cast<int64_t>(bytes.size()))
		return;
	if (n < 0)
		throw Failure{fmt::format("cannot read {} again", name), static_cast<int>(-n), 0, "", {}};
	throw Failure{
		fmt::format("{} changed while it was compared: it ends at {}", name, at + static_cast<uint64_t>(n)),
		EIO,
		0,
		"Copy it again while no program writes to it.",
		{}};
}

} // namespace

void compare_files(const Fd &one, const std::string &one_name, const Fd &other, const std::string &other_name,
		   uint64_t len)
{
	// DONTNEED keeps dirty pages; the target was synced before.
	for (const Fd *fd : {&one, &other})
		::posix_fadvise(fd->get(), 0, 0, POSIX_FADV_DONTNEED);
	std::string want(piece, '\0'), got(piece, '\0');
	for (uint64_t at = 0; at < len; at += piece) {
		want.resize(std::min(piece, len - at));
		got.resize(want.size());
		read_again(one, one_name, want, at);
		read_again(other, other_name, got, at);
		if (const std::string differs = difference(want, got); !differs.empty())
			throw Failure{fmt::format("{} differs from {} in the {} bytes from {} on: {}", other_name,
						  one_name, want.size(), at, differs),
				      EIO,
				      0,
				      "Copy it again while no program writes to it.",
				      {}};
	}
}

Report copy_to_file(const CopyOptions &options)
{
	auto &sys = peerdma_impl::system_calls();
	const Device device = open_device(options.require_direct ? PEERDMA_OPEN_REQUIRE_DIRECT : 0);
	const auto provider = find_provider(device, options.provider);
	const Source from(sys, device, options.source);
	const uint64_t size = from.size();
	struct stat source = {};
	if (const int rc = sys.fstat(from.plain().get(), source); rc < 0)
		throw Failure{fmt::format("cannot stat {}", options.source), -rc, 0, "", {}};

	const std::string target = target_of(options);
	const mode_t mode = mode_for(options.source, source, target);
	AtomicFile replacement(sys, target);
	if (::ftruncate(replacement.fd(), static_cast<off_t>(size)) < 0)
		throw Failure{fmt::format("cannot set the size of {}", target), errno, 0, "", {}};
	struct peerdma_file *raw = nullptr;
	if (const int rc = peerdma_file_from_fd(device.get(), replacement.fd(), &raw); rc < 0)
		throw Failure{fmt::format("cannot open {}", target), -rc, 0, "", {}};
	const File to(raw);

	const auto reads = explain_route(from.file(), options.source, provider),
		   writes = explain_route(to, target, provider);
	const Json facts = {{"provider", provider_json(provider)},
			    {"read", bounced_json({}, reads)},
			    {"write", bounced_json({}, writes)}};
	const bool neither = reads.reason && writes.reason;
	const uint32_t not_direct = why_not_direct(reads) ? why_not_direct(reads) : why_not_direct(writes);
	if (neither || (options.require_direct && not_direct))
		throw Failure{fmt::format("{} {} {} {}", options.source, neither ? "and" : "or", target,
					  neither ? "have no direct route" : "has no direct route"),
			      EXDEV, not_direct,
			      neither ? "See peerdma explain for each; cp(1) copies files without a direct route." : "",
			      facts};
	auto block = [](const struct peerdma_explanation &why) {
		return why.reason ? 0 : std::max<uint64_t>(why.dio_offset_align, 1);
	};
	auto is_software = [](const struct peerdma_explanation &why) { return why.map == PEERDMA_MAP_SOFTWARE; };
	uint32_t count = pieces;
	Buffer buffer = largest_buffer(device, provider, count);
	Progress progress;
	const auto start = std::chrono::steady_clock::now();
	auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
	FileCopier copier(sys, device, {from.file(), options.source, block(reads), is_software(reads)},
			  {to, target, block(writes), is_software(writes)}, std::move(buffer), piece, count,
			  [&](uint64_t done) {
				  if (progress.due())
					  progress.say(fmt::format("{} of {}, {}", size_text(done), size_text(size),
								   rate_text(done, seconds())));
			  });
	for (const Range &range : data_ranges(from.plain().get(), size))
		copier.copy(range);
	if (const int rc = sys.fsync(replacement.fd()); rc < 0)
		throw Failure{fmt::format("cannot sync {}", target), -rc, 0, "", {}};
	const double took = seconds();
	if (options.verify) {
		progress.say("comparing");
		compare_files(from.plain(), options.source, replacement.plain(), target, size);
	}
	from.check_unchanged();
	replacement.publish(mode);

	const Counts &counts = copier.counts();
	Report report;
	report.json = {{"ok", true},
		       {"file", options.source},
		       {"target", target},
		       {"bytes", size},
		       {"bytes_holes", size - copier.done()},
		       {"bytes_direct", counts.direct},
		       {"bytes_near", counts.near},
		       {"bytes_host", counts.host},
		       {"read", bounced_json(copier.read(), reads)},
		       {"write", bounced_json(copier.written(), writes)},
		       {"provider", provider_json(provider)},
		       {"ring", copier.by_ring()},
		       {"pieces", count},
		       {"piece_len", piece},
		       {"verified", options.verify},
		       {"seconds", took}};
	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", escaped(options.source), reads.fs_name));
	row("target", fmt::format("{} ({})", escaped(target), writes.fs_name));
	row("bytes", fmt::format("{} ({}){}", size, size_text(size),
				 copier.done() < size ? fmt::format(", {} of them holes", size - copier.done()) : ""));
	row("read", bounced_text(copier.read(), reads));
	row("written", bounced_text(copier.written(), writes));
	row("both ways", fmt::format("{} direct, {} near, {} host", counts.direct, counts.near, counts.host));
	row("provider", fmt::format("{}  provider {}", pci_text(provider.pci_domain, provider.pci_bdf), provider.id));
	row("by", copier.by_ring() ? fmt::format("a ring, {} pieces of {} at once", count, size_text(piece)) :
				     "one call after the other");
	if (options.verify)
		row("verified", "each byte, by read(2)");
	row("seconds", fmt::format("{:.6f}{}", took, took > 0 ? " (" + rate_text(size, took) + ")" : ""));
	return report;
}

} // namespace cli
