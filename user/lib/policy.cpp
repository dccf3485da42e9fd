// SPDX-License-Identifier: MIT
#include "lib/policy.hpp"

#include <cerrno>
#include <cstring>

namespace peerdma_impl
{
namespace
{

bool is_denial(const Rule *rule) { return rule && rule->verb == Verb::deny; }

RuleQuery question_of(const Device &device, const struct peerdma_provider_info &provider)
{
	return {{{provider.pci_domain, provider.pci_bdf}, provider.pci_vendor << 16 | provider.pci_device},
		device.policy().cgroup,
		std::nullopt,
		std::nullopt,
		false};
}

// 1: the provider exists; 0: it does not.
int get(const Device &device, uint32_t provider_id, struct peerdma_provider_info &provider)
{
	const int rc = provider_next(device, provider_id, provider);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	return rc == 0 && provider.id == provider_id;
}

// The kernel stopped there and did not look at the disks below.
bool ends_the_look(uint32_t reason)
{
	return reason == PEERDMA_REASON_STACKED || reason == PEERDMA_REASON_DM_TARGET ||
	       reason == PEERDMA_REASON_MD_LEVEL;
}

// more: the list of disks may be incomplete.
int disks_of(const struct peerdma_file &file, uint32_t provider_id, std::vector<DiskName> &out, bool &more)
{
	struct peerdma_file_query query = {};
	do {
		const uint32_t leaf = static_cast<uint32_t>(out.size());
		query = {};
		query.fd = file.own.fd;
		query.provider_id = provider_id;
		query.leaf = leaf;
		const int rc = file.device->ioctl(PEERDMA_FILE_QUERY, query);
		if (rc < 0)
			return rc;
		// A network share has a name and a network card, but no device number.
		if (!query.out_leaf_major && !query.out_nr_leaves)
			break;
		const size_t len = strnlen(query.out_leaf_name, sizeof(query.out_leaf_name));
		out.push_back({{query.out_leaf_name, len}, {query.out_leaf_domain, query.out_leaf_bdf}});
	} while (out.size() < query.out_nr_leaves);
	more = !query.out_nr_leaves || ends_the_look(query.out_reason);
	return 0;
}

int decide(struct peerdma_file &file, const struct peerdma_provider_info &provider, const Rule *&out)
{
	const Device &device = *file.device;
	RuleQuery question = question_of(device, provider);
	std::string path;
	device.sys().read_link("/proc/self/fd/" + std::to_string(file.own.fd), path);
	// Otherwise there is no /proc, or the file is outside of this process's root.
	question.file = path.starts_with('/') ? path : "";
	question.disks.emplace();
	if (device.policy().rules.has_disks())
		if (const int rc = disks_of(file, provider.id, *question.disks, question.more_disks); rc < 0)
			return rc;
	// The answers are about another file if the descriptor was reused.
	if (!file.own.is_there(device.sys()))
		return -EBADF;
	out = device.policy().rules.decide(question);
	return 0;
}

} // namespace

const Rule *decide(const Device &device, const struct peerdma_provider_info &provider)
{
	return device.policy().rules.decide(question_of(device, provider));
}

int permit(const Device &device, uint32_t provider_id)
{
	if (device.policy().rules.empty())
		return 0;
	struct peerdma_provider_info provider;
	const int rc = get(device, provider_id, provider);
	if (rc <= 0)
		return rc;
	return is_denial(decide(device, provider)) ? -EACCES : 0;
}

int permit(struct peerdma_file &file, uint32_t provider_id, const Rule **by)
{
	if (file.device->policy().rules.empty())
		return 0;
	const std::lock_guard guard(file.lock);
	auto known = file.rules.find(provider_id);
	if (known == file.rules.end()) {
		struct peerdma_provider_info provider;
		const Rule *rule = nullptr;
		int rc = get(*file.device, provider_id, provider);
		if (rc <= 0)
			return rc;
		rc = decide(file, provider, rule);
		if (rc < 0)
			return rc;
		known = file.rules.emplace(provider_id, rule).first;
	}
	if (by)
		*by = known->second;
	return is_denial(known->second) ? -EACCES : 0;
}

} // namespace peerdma_impl
