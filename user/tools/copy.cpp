// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <chrono>

#include <fcntl.h>
#include <fmt/format.h>

#include "cli.hpp"

namespace cli
{
namespace
{

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

} // namespace

Report copy(const std::string &path, const std::string &target_text)
{
	const auto target = parse_gpu(target_text);
	if (!target)
		throw Usage{fmt::format(
			"'{}' is not a provider's memory (write gpu:, gpu:1, gpu:0000:01:00.0 or gpu:1+4096)",
			target_text)};
	Device device = open_device();
	const auto provider = find_provider(device, target->provider);
	const std::string provider_pci = pci_text(provider.pci_domain, provider.pci_bdf);
	File file = open_file(device, path, O_RDONLY);

	// The explanation first: "a directory" is a better answer than its size is none.
	const auto why = ask(file, path, provider);
	const Json facts = {
		{"file", path},           {"filesystem", why.fs_name}, {"provider", provider_json(provider)},
		{"leaf", leaf_json(why)}, {"distance", why.distance},  {"map", peerdma_map_name(why.map)}};
	if (why.error)
		throw Failure{fmt::format("{} cannot be read directly into {}", path, provider_pci),
			      static_cast<int>(why.error), why.reason, "", facts};
	uint64_t size = 0;
	int rc = peerdma_file_size(file.get(), &size);
	if (rc < 0)
		throw Failure{fmt::format("cannot find out the size of {}", path), -rc, 0, "", facts};
	if (!size)
		throw Failure{fmt::format("{} is empty", path), ENODATA, 0, "There is nothing to copy.", facts};

	struct peerdma_device_info info = {};
	info.size = sizeof(info);
	rc = peerdma_query(device.get(), &info);
	if (rc < 0)
		throw Failure{"cannot ask /dev/peerdma for its page size", -rc, 0, "", facts};
	const uint64_t page = std::max<uint64_t>(info.page_size, 1),
		       block = std::max<uint64_t>(why.dio_offset_align, 1);
	const Failure too_large{fmt::format("{} ({}) does not fit into provider {} at {}, which has {} free", path,
					    size_text(size), provider.id, provider_pci, size_text(provider.available)),
				ENOMEM, 0, "Publish a larger range, or copy a smaller file.", facts};
	// Also keeps the sums below from overflowing.
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

	struct peerdma_io_result result = {};
	result.size = sizeof(result);
	const auto start = std::chrono::steady_clock::now();
	const int64_t n = peerdma_read_result(file.get(), buffer.get(), target->offset, len, 0, &result);
	const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
	const uint64_t done = n < 0 ? 0 : static_cast<uint64_t>(n);
	if (n < 0 || result.error)
		throw Failure{
			fmt::format("reading {} into {} failed after {} of {} bytes", path, provider_pci, done, size),
			n < 0 ? static_cast<int>(-n) : static_cast<int>(result.error), result.reason, "", facts};
	if (done != size)
		throw Failure{fmt::format("{} changed while it was read: {} of {} bytes arrived", path, done, size),
			      EIO, 0, "Copy it again when nobody writes to it.", facts};

	const uint64_t bar_offset = where.bar_offset + target->offset;
	Report report;
	report.json = {{"ok", true},
		       {"route", peerdma_route_name(result.route)},
		       {"bytes", done},
		       {"bytes_direct", result.direct},
		       {"bytes_near", result.near},
		       {"bytes_host", result.host}};
	report.json.update(facts);
	report.json["bar"] = provider.bar;
	report.json["bar_offset"] = bar_offset;
	report.json["buffer"] = {{"bar_offset", where.bar_offset}, {"len", where.len}, {"offset", target->offset}};
	report.json["seconds"] = seconds;

	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", path, why.fs_name));
	row("route", peerdma_route_name(result.route));
	row("bytes", fmt::format("{} ({})", done, size_text(done)));
	row("  direct", fmt::format("{}", result.direct));
	row("  near", fmt::format("{}", result.near));
	row("  host", fmt::format("{}", result.host));
	row("leaf", leaf_text(why));
	row("provider", fmt::format("{}  provider {}", provider_pci, provider.id));
	row("distance", std::to_string(why.distance));
	row("mapping", peerdma_map_name(why.map));
	row("place", fmt::format("BAR {} offset {:#x}", provider.bar, bar_offset));
	row("seconds", fmt::format("{:.6f}{}", seconds,
				   seconds > 0 ? fmt::format(" ({}/s)", size_text(static_cast<uint64_t>(
										static_cast<double>(done) / seconds))) :
						 ""));
	return report;
}

} // namespace cli
