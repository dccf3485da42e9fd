// SPDX-License-Identifier: MIT
#include <charconv>
#include <climits>
#include <string_view>
#include <vector>

#include "common/pci.hpp"
#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/policy.hpp"

namespace peerdma_impl
{

int provider_next(const Device &device, uint32_t from, struct peerdma_provider_info &info)
{
	struct peerdma_provider_query query = {};
	query.provider_id = from;
	int rc = device.ioctl(PEERDMA_PROVIDER_QUERY, query);
	if (rc < 0)
		return rc;
	info = {};
	info.size = sizeof(info);
	info.id = query.out_provider_id;
	info.pci_domain = query.out_pci_domain;
	info.pci_bdf = query.out_pci_bdf;
	info.bar = query.out_bar;
	info.numa_node = query.out_numa_node;
	info.bar_offset = query.out_bar_offset;
	info.len = query.out_len;
	info.available = query.out_available;
	info.pci_vendor = query.out_pci_vendor;
	info.pci_device = query.out_pci_device;
	return 0;
}

namespace
{

constexpr size_t info_min =
	offsetof(struct peerdma_provider_info, pci_device) + sizeof(peerdma_provider_info::pci_device);

// Calls found(info) for each provider until it returns false.
template <class Found> int walk(const Device &device, Found &&found)
{
	uint32_t from = 0;
	for (;;) {
		struct peerdma_provider_info info;
		int rc = provider_next(device, from, info);
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return rc;
		if (!found(info) || info.id == UINT32_MAX)
			return 0;
		from = info.id + 1;
	}
}

int get(const Device &device, uint32_t id, struct peerdma_provider_info &info)
{
	int rc = provider_next(device, id, info);
	if (rc < 0)
		return rc;
	// If the id does not exist, the kernel describes the next provider.
	return info.id == id ? 0 : -ENOENT;
}

// Among several providers, ignores those that a rule denies to this process and takes the one that the first rule
// prefers.
int choose(const Device &device, const std::vector<struct peerdma_provider_info> &all,
	   struct peerdma_provider_info &out)
{
	unsigned count = 0, best = UINT_MAX;
	for (const auto &info : all) {
		const Rule *rule = all.size() > 1 ? decide(device, info) : nullptr;
		if (rule && rule->verb == Verb::deny)
			continue;
		const unsigned rank = rule && rule->verb == Verb::prefer ? rule->line : UINT_MAX;
		if (rank < best)
			count = 0;
		if (rank > best)
			continue;
		best = rank;
		if (!count++)
			out = info;
	}
	return all.empty() ? -ENOENT : count == 1 ? 0 : -ENOTUNIQ;
}

int find(const Device &device, std::string_view name, struct peerdma_provider_info &out)
{
	uint32_t id = 0;
	auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
	if (!name.empty() && error == std::errc() && end == name.data() + name.size())
		return get(device, id, out);

	auto address = PciAddress::parse(name);
	if (!name.empty() && !address)
		return -EINVAL;
	std::vector<struct peerdma_provider_info> found;
	int rc = walk(device, [&](const struct peerdma_provider_info &info) {
		if (!address || PciAddress{info.pci_domain, info.pci_bdf} == *address)
			found.push_back(info);
		return true;
	});
	return rc < 0 ? rc : choose(device, found, out);
}

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

int peerdma_provider_list(struct peerdma_device *p, uint32_t *ids, size_t max)
{
	return boundary([&] {
		int rc = check_handle(p);
		if (rc || (max && !ids))
			return rc ? rc : -EINVAL;
		int count = 0;
		rc = walk(*p->device, [&](const struct peerdma_provider_info &info) {
			if (static_cast<size_t>(count) < max)
				ids[count] = info.id;
			count++;
			return true;
		});
		return rc < 0 ? rc : count;
	});
}

int peerdma_provider_get(struct peerdma_device *p, uint32_t provider_id, struct peerdma_provider_info *info)
{
	return boundary([&] {
		int rc = check_handle(p);
		if (!rc)
			rc = check_size(info, info_min);
		if (rc)
			return rc;
		struct peerdma_provider_info full;
		rc = get(*p->device, provider_id, full);
		if (rc == 0)
			copy_out(info, full);
		return rc;
	});
}

int peerdma_provider_find(struct peerdma_device *p, const char *name, struct peerdma_provider_info *info)
{
	return boundary([&] {
		int rc = check_handle(p);
		if (!rc)
			rc = check_size(info, info_min);
		if (rc)
			return rc;
		struct peerdma_provider_info full;
		rc = find(*p->device, name ? name : "", full);
		if (rc == 0)
			copy_out(info, full);
		return rc;
	});
}
