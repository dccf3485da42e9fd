// SPDX-License-Identifier: MIT
//
// Verifies that DMA by the drive and read(2) through the page cache give the same bytes of a file, one buffer at a
// time.

#include "tools/copy/verify.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>

#include "common/syscalls.hpp"
#include "tools/copy/copy.hpp"
#include "tools/selftest/selftest.hpp"

namespace cli
{
namespace
{

constexpr uint64_t step = 4 << 20; // bytes of the provider's memory

} // namespace

Report verify(const std::string &path, const std::string &name, const std::string &limit)
{
	auto &sys = peerdma_impl::system_calls();
	const uint64_t most = bytes_or_usage("--size", limit);
	const Device device = open_device();
	const auto provider = find_provider(device, name);
	const auto why = explain_route(open_file(device, path, O_RDONLY), path, provider);
	const std::string pci = pci_text(provider.pci_domain, provider.pci_bdf);
	if (why.error)
		throw Failure{fmt::format("{} cannot be read directly into {}", path, pci),
			      static_cast<int>(why.error),
			      why.reason,
			      "",
			      {}};
	const Source source(sys, device, path);
	const uint64_t size = most ? std::min(source.size(), most) : source.size();
	if (!size)
		throw Failure{fmt::format("{} is empty", path), ENODATA, 0, "There is nothing to compare.", {}};
	const Buffer buffer = create_buffer(device, provider, step);
	const void *const addr = map_buffer(buffer);

	uint64_t direct = 0, near = 0, host = 0, done = 0;
	std::string differs;
	while (done < size && differs.empty()) {
		const uint64_t len = std::min(step, size - done);
		struct peerdma_io_result result = {};
		result.size = sizeof(result);
		const int64_t n = peerdma_read_result(source.file().get(), buffer.get(), 0, len, done, &result);
		std::string want(len, '\0');
		const int64_t plainly = source.plain().read(want, done);
		if (n < 0 || result.error || plainly < 0)
			throw Failure{fmt::format("reading {} failed after {} of {} bytes", path, done, size),
				      static_cast<int>(n < 0        ? -n :
						       result.error ? result.error :
								      -plainly),
				      n < 0 || result.error ? result.reason : 0,
				      "",
				      {}};
		want.resize(static_cast<size_t>(plainly));
		direct += result.direct;
		near += result.near;
		host += result.host;
		differs = difference(want, std::string(static_cast<const char *>(addr), static_cast<size_t>(n)));
		if (!differs.empty())
			differs = fmt::format("in the {} bytes from {} on: {}", len, done, differs);
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < len)
			break;
	}
	// Success requires that all requested bytes were compared.
	if (differs.empty())
		source.check_unchanged();
	Report report;
	report.json = {{"ok", true},
		       {"equal", differs.empty()},
		       {"differs", differs},
		       {"bytes", done},
		       {"bytes_direct", direct},
		       {"bytes_near", near},
		       {"bytes_host", host},
		       {"provider", provider_json(provider)},
		       {"map", peerdma_map_name(why.map)}};
	report.text = fmt::format("{}: {} bytes, {} direct, {} near, {} host\n",
				  differs.empty() ? "equal" : "different " + differs, done, direct, near, host);
	report.status = differs.empty() ? exit_ok : exit_failed;
	return report;
}

} // namespace cli
