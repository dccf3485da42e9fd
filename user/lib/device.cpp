// SPDX-License-Identifier: MIT
#include "lib/device.hpp"

#include <string>

#include "common/node.hpp"
#include "lib/boundary.hpp"

namespace peerdma_impl
{

int Policy::load(Syscalls &sys, Policy &out)
{
	std::string fault;
	const int rc = load_rules(sys, rules_path, out.rules, fault);
	if (rc == 0 && !out.rules.empty())
		out.cgroup = own_cgroup(sys);
	return rc;
}

namespace
{

// The open devices of this process, by descriptor.
struct OpenDevices {
	std::mutex lock; // protects devices
	std::map<int, std::atomic<int> *> devices;
};

OpenDevices &open_devices()
{
	static constinit PerProcess<OpenDevices> all;
	return all.get();
}

} // namespace

Device::Device(Syscalls &sys, int fd, std::string node, bool direct_only, Policy policy)
	: sys_(sys), fd_(fd), node_(std::move(node)), direct_only_(direct_only), policy_(std::move(policy))
{
	identity_.fd = fd;
	identity_.identify(sys, false);
	const std::lock_guard guard(open_devices().lock);
	const auto [same, added] = open_devices().devices.emplace(fd, &fd_);
	if (!added) {
		*same->second = -1;
		same->second = &fd_;
	}
}

Device::~Device()
{
	const std::lock_guard guard(open_devices().lock);
	const auto same = open_devices().devices.find(identity_.fd);
	const bool listed = same != open_devices().devices.end();
	// A child's copy of its parent's device is not listed.
	if (fd() >= 0 && (!listed || same->second == &fd_))
		identity_.close(sys_);
	if (listed && same->second == &fd_)
		open_devices().devices.erase(same);
}

int Device::open(Syscalls &sys, bool direct_only, std::shared_ptr<Device> &out)
{
	std::string node;
	int fd = open_node(
		sys, named_node(), [&](auto &names) { sys.list_dir("/dev", names); }, node);
	if (fd < 0)
		return fd;
	std::shared_ptr<Device> device;
	int policed = 0;
	try {
		Policy policy;
		policed = Policy::load(sys, policy);
		device = std::make_shared<Device>(sys, fd, std::move(node), direct_only, std::move(policy));
	} catch (...) {
		sys.close(fd);
		throw;
	}
	struct peerdma_info info = {};
	int rc = device->ioctl(PEERDMA_INFO, info);
	if (rc < 0)
		return rc;
	if (info.out_abi != PEERDMA_ABI_VERSION)
		return -EPROTONOSUPPORT;
	if (policed < 0)
		return policed;
	out = std::move(device);
	return 0;
}

} // namespace peerdma_impl

using namespace peerdma_impl;

int peerdma_open(struct peerdma_device **out, uint32_t flags)
{
	return boundary([&] {
		if (!out)
			return -EINVAL;
		if (flags & ~PEERDMA_OPEN_REQUIRE_DIRECT)
			return -EOPNOTSUPP;
		auto handle = std::make_unique<struct peerdma_device>();
		int rc = Device::open(system_calls(), flags & PEERDMA_OPEN_REQUIRE_DIRECT, handle->device);
		if (rc < 0)
			return rc;
		*out = handle.release();
		return 0;
	});
}

void peerdma_close(struct peerdma_device *p)
{
	boundary([&] {
		delete p;
		return 0;
	});
}

int peerdma_fd(const struct peerdma_device *p)
{
	const int rc = check_handle(p);
	if (rc < 0)
		return rc;
	return p->device->is_there() ? p->device->fd() : -EBADF;
}

int peerdma_query(struct peerdma_device *p, struct peerdma_device_info *info)
{
	return boundary([&] {
		int rc = check_handle(p);
		if (rc)
			return rc;
		rc = check_size(info, offsetof(struct peerdma_device_info, features) + sizeof(info->features));
		if (rc)
			return rc;
		struct peerdma_info query = {};
		rc = p->device->ioctl(PEERDMA_INFO, query);
		if (rc < 0)
			return rc;
		struct peerdma_device_info full = {};
		full.abi = query.out_abi;
		full.page_size = query.out_page_size;
		full.nproviders = query.out_nproviders;
		full.publish_align = query.out_publish_align;
		full.features = query.out_features;
		copy_out(info, full);
		return 0;
	});
}
