// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/copy/copy.hpp"
#include "tools/selftest/selftest.hpp"

namespace cli
{
namespace
{

constexpr uint64_t step = 16 << 20; // bytes per call; progress is shown between calls

// Compares the CPU's view of the buffer with read(2) of the file.
void compare(const Fd &plain, const std::string &path, const Buffer &buffer, uint64_t offset, uint64_t len)
{
	const char *const got = static_cast<const char *>(map_buffer(buffer)) + offset;
	for (uint64_t at = 0; at < len; at += step) {
		std::string want(std::min(step, len - at), '\0');
		const int64_t n = plain.read(want, at);
		if (n < 0)
			throw Failure{fmt::format("cannot read {} again", path), static_cast<int>(-n), 0, "", {}};
		want.resize(static_cast<size_t>(n));
		const std::string differs = difference(want, std::string(got + at, std::min(step, len - at)));
		if (!differs.empty())
			throw Failure{fmt::format("the copy differs from {} in the {} bytes from {} on: {}", path,
						  want.size(), at, differs),
				      EIO,
				      0,
				      "Copy it again while no program writes to it.",
				      {}};
	}
}

const char *route_text(const Counts &counts)
{
	if (counts.direct)
		return peerdma_route_name(counts.near || counts.host ? PEERDMA_ROUTE_DIRECT_EDGES :
								       PEERDMA_ROUTE_DIRECT);
	return peerdma_route_name(counts.host ? PEERDMA_ROUTE_HOST : PEERDMA_ROUTE_NEAR);
}

Report copy_to_gpu(const CopyOptions &options)
{
	const std::string &path = options.source;
	const auto target = parse_gpu(options.target);
	if (!target)
		throw Usage{fmt::format("'{}': expected gpu:, gpu:1, gpu:0000:01:00.0 or gpu:1+4096", options.target)};
	if (!options.provider.empty())
		throw Usage{"--provider is only valid if the target is a file; expected gpu:PROVIDER"};
	Device device = open_device();
	const auto provider = find_provider(device, target->provider);
	const std::string provider_pci = pci_text(provider.pci_domain, provider.pci_bdf);
	// Explain first: its answer ("a directory") is more useful than a missing size.
	const auto why = explain_route(open_file(device, path, O_RDONLY), path, provider);
	const Json facts = {{"file", path},
			    {"filesystem", why.fs_name},
			    {"provider", provider_json(provider)},
			    {"leaf", backing_json(why)},
			    {"distance", why.distance},
			    {"map", peerdma_map_name(why.map)}};
	if (why.error)
		throw Failure{fmt::format("{} cannot be read directly into {}", path, provider_pci),
			      static_cast<int>(why.error), why.reason, "", facts};
	const Source source(peerdma_impl::system_calls(), device, path);
	const File &file = source.file();
	const uint64_t size = source.size();
	if (!size)
		throw Failure{fmt::format("{} is empty", path), ENODATA, 0, "There is nothing to copy.", facts};

	struct peerdma_device_info info = {};
	info.size = sizeof(info);
	int rc = peerdma_query(device.get(), &info);
	if (rc < 0)
		throw Failure{"cannot query the module's page size", -rc, 0, "", facts};
	const uint64_t page = std::max<uint64_t>(info.page_size, 1),
		       block = std::max<uint64_t>(why.dio_offset_align, 1);
	const Failure too_large{fmt::format("{} ({}) does not fit into provider {} at {}, which has {} free", path,
					    size_text(size), provider.id, provider_pci, size_text(provider.available)),
				ENOMEM, 0, "Publish a larger range, or copy a smaller file.", facts};
	// Also prevents overflow of the sums below.
	if (size > provider.len || target->offset > provider.len)
		throw too_large;
	const uint64_t len = round_up(size, block), buf_len = round_up(target->offset + len, page);

	struct peerdma_buf *raw = nullptr;
	uint32_t reason = 0;
	rc = peerdma_buf_create(device.get(), provider.id, buf_len, 0, &raw, &reason);
	if (rc == -ENOMEM && buf_len > provider.available)
		throw too_large;
	if (rc < 0)
		throw Failure{fmt::format("cannot allocate {} in provider {} at {}", size_text(buf_len), provider.id,
					  provider_pci),
			      -rc, reason, "", facts};
	Buffer buffer(raw);
	struct peerdma_buf_info where = {};
	where.size = sizeof(where);
	peerdma_buf_query(buffer.get(), &where);

	Counts counts;
	uint64_t done = 0;
	uint32_t bounced = PEERDMA_REASON_NONE; // reason of the last bounce
	Progress progress;
	const auto start = std::chrono::steady_clock::now();
	auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
	while (done < len) {
		struct peerdma_io_result result = {};
		result.size = sizeof(result);
		const uint64_t want = std::min(step, len - done);
		const int64_t n =
			peerdma_read_result(file.get(), buffer.get(), target->offset + done, want, done, &result);
		done += result.done;
		if (n < 0 || result.error)
			throw Failure{fmt::format("reading {} into {} failed after {} of {} bytes", path, provider_pci,
						  done, size),
				      n < 0 ? static_cast<int>(-n) : static_cast<int>(result.error), result.reason, "",
				      facts};
		counts = counts + Counts{result.direct, result.near, result.host};
		if (result.near || result.host)
			bounced = result.reason;
		if (static_cast<uint64_t>(n) < want)
			break;
		if (progress.due())
			progress.say(fmt::format("{} of {}, {}", size_text(done), size_text(size),
						 rate_text(done, elapsed())));
	}
	const double seconds = elapsed();
	if (done != size)
		throw Failure{fmt::format("{} changed while it was read: {} of {} bytes arrived", path, done, size),
			      EIO, 0, "Copy it again while no program writes to it.", facts};

	if (options.verify) {
		progress.say("comparing");
		compare(source.plain(), path, buffer, target->offset, size);
	}
	source.check_unchanged();

	const char *const route = route_text(counts);
	const uint64_t bar_offset = where.bar_offset + target->offset;
	Report report;
	report.json = {{"ok", true},
		       {"route", route},
		       {"bytes", done},
		       {"bytes_direct", counts.direct},
		       {"bytes_near", counts.near},
		       {"bytes_host", counts.host},
		       {"bounced", peerdma_reason_name(bounced)}};
	report.json.update(facts);
	report.json["bar"] = provider.bar;
	report.json["bar_offset"] = bar_offset;
	report.json["buffer"] = {{"bar_offset", where.bar_offset}, {"len", where.len}, {"offset", target->offset}};
	report.json["verified"] = options.verify;
	report.json["seconds"] = seconds;

	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", escaped(path), why.fs_name));
	row("route", route);
	row("bytes", fmt::format("{} ({})", done, size_text(done)));
	row("  direct", fmt::format("{}", counts.direct));
	row("  near", fmt::format("{}", counts.near));
	row("  host", fmt::format("{}", counts.host));
	if (bounced)
		row("bounced", fmt::format("{}: {}", peerdma_reason_name(bounced), peerdma_reason_text(bounced)));
	row("backing", backing_text(why));
	row("provider", fmt::format("{}  provider {}", provider_pci, provider.id));
	row("distance", std::to_string(why.distance));
	row("mapping", peerdma_map_name(why.map));
	row("place", fmt::format("BAR {} offset {:#x}", provider.bar, bar_offset));
	if (options.verify)
		row("verified", "each byte, by the CPU and read(2)");
	row("seconds", fmt::format("{:.6f}{}", seconds, seconds > 0 ? " (" + rate_text(done, seconds) + ")" : ""));
	return report;
}

} // namespace

Report copy(const CopyOptions &options)
{
	if (options.source.starts_with("gpu:"))
		throw Usage{"cp: the source must be a file, not a provider's memory"};
	return options.target.starts_with("gpu:") ? copy_to_gpu(options) : copy_to_file(options);
}

} // namespace cli
