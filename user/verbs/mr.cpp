// SPDX-License-Identifier: MIT
//
// Buffers as memory regions. The device's answers select the way, never its name. First a dma-buf is offered. If the
// device does not import it (EOPNOTSUPP), the buffer is mapped for access on demand. That requires a device that
// supports on-demand memory and a kernel that handles our pages correctly (PEERDMA_FEATURE_ON_DEMAND).
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/process.hpp"
#include "lib/boundary.hpp"
#include "peerdma_verbs.h"

using namespace peerdma_impl;

namespace
{

struct Mapping {
	void *addr;
	uint64_t len;
};

// The regions of this process; those on demand own a mapping.
struct Regions {
	std::mutex lock; // protects all
	std::map<const struct ibv_mr *, std::optional<Mapping>> all;
};

// inherited: the process is the child of one that had regions.
Regions &regions(bool *inherited = nullptr)
{
	static constinit PerProcess<Regions> mine;
	return mine.get(inherited);
}

// Throws if memory runs out.
void remember(const struct ibv_mr *mr, const std::optional<Mapping> &mapping)
{
	std::lock_guard guard(regions().lock);
	regions().all.insert_or_assign(mr, mapping);
}

struct Request {
	struct ibv_pd *pd;
	struct peerdma_buf *buf;
	uint64_t off, len;
	int access;
};

struct Abilities {
	bool on_demand;
	bool page_packets; // a port sends a page in one packet
};

uint64_t page_size() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

// The enum ibv_mtu for ibv_qp_attr if the device's packets are pages, else 0.
uint32_t page_mtu()
{
	for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		if (uint64_t{128} << mtu == page_size())
			return static_cast<uint32_t>(mtu);
	return 0;
}

int ask(struct ibv_context *device, Abilities &out)
{
	struct ibv_device_attr_ex attr = {};
	if (int err = ibv_query_device_ex(device, nullptr, &attr))
		return -err;
	out.on_demand = attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
	out.page_packets = false;
	for (unsigned port = 1; port <= attr.orig_attr.phys_port_cnt; port++) {
		struct ibv_port_attr its = {};
		if (int err = ibv_query_port(device, static_cast<uint8_t>(port), &its))
			return -err;
		out.page_packets |= its.active_mtu == static_cast<enum ibv_mtu>(page_mtu());
	}
	return 0;
}

int import(const Request &r, struct peerdma_mr_info &info, struct ibv_mr *&mr)
{
	const uint64_t page = page_size(), first = r.off / page * page, end = (r.off + r.len + page - 1) / page * page;
	int fd = -1;
	int rc = peerdma_buf_export_dmabuf(r.buf, first, end - first, &fd, &info.reason);
	if (rc < 0)
		return rc;
	// The device's address must have the same offset in its page as the byte in memory: pass the buffer offset.
	mr = ibv_reg_dmabuf_mr(r.pd, r.off - first, r.len, r.off, fd, r.access);
	rc = mr ? 0 : -errno;
	close(fd); // the region holds its own reference
	// The exporter's reason does not come with its errno: no route, or, more rarely, a mapping that failed.
	if (rc == -EXDEV)
		info.reason = PEERDMA_REASON_DISTANCE;
	if (rc < 0)
		return rc;
	try {
		remember(mr, std::nullopt);
	} catch (...) {
		ibv_dereg_mr(mr);
		throw;
	}
	info.way = PEERDMA_MR_DMABUF;
	info.align = 1;
	info.addr = r.off;
	return 0;
}

int map_on_demand(const Request &r, const Abilities &device, struct peerdma_mr_info &info, struct ibv_mr *&mr)
{
	auto refuse = [&](int rc, uint32_t reason) {
		info.reason = reason;
		return rc;
	};
	if (!device.on_demand)
		return refuse(-EOPNOTSUPP, PEERDMA_REASON_VERBS_DEVICE);
	if (!device.page_packets)
		return refuse(-EOPNOTSUPP, PEERDMA_REASON_VERBS_MTU);
	if (r.off % page_size())
		return refuse(-EINVAL, PEERDMA_REASON_PAGE_ALIGN);
	void *addr = nullptr;
	int rc = peerdma_buf_map_on_demand(r.buf, r.off, r.len, &addr);
	if (rc < 0)
		return rc == -EOPNOTSUPP ? refuse(rc, PEERDMA_REASON_VERBS_KERNEL) : rc;
	mr = ibv_reg_mr(r.pd, addr, r.len, r.access | IBV_ACCESS_ON_DEMAND);
	if (!mr) {
		rc = -errno;
		munmap(addr, r.len);
		return rc;
	}
	try {
		remember(mr, Mapping{addr, r.len});
	} catch (...) {
		ibv_dereg_mr(mr);
		munmap(addr, r.len);
		throw;
	}
	info.way = PEERDMA_MR_ON_DEMAND;
	info.align = static_cast<uint32_t>(page_size());
	info.path_mtu = page_mtu();
	info.addr = reinterpret_cast<uintptr_t>(addr);
	return 0;
}

int reg(const Request &r, struct peerdma_mr_info &info, struct ibv_mr *&mr)
{
	struct peerdma_buf_info buffer = {};
	buffer.size = sizeof(buffer);
	if (const int rc = peerdma_buf_query(r.buf, &buffer); rc < 0)
		return rc;
	info.reason = !r.len                                           ? PEERDMA_REASON_LEN_ZERO :
		      r.off > buffer.len || r.len > buffer.len - r.off ? PEERDMA_REASON_BUF_RANGE :
									 PEERDMA_REASON_NONE;
	if (info.reason || r.access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB))
		return -EINVAL;
	Abilities device = {};
	int rc = ask(r.pd->context, device);
	if (rc < 0)
		return rc;
	rc = import(r, info, mr);
	if (rc != -EOPNOTSUPP)
		return rc;
	// If both ways fail, the module's reason is more specific than the device's.
	const uint32_t not_exported = std::exchange(info.reason, PEERDMA_REASON_NONE);
	rc = map_on_demand(r, device, info, mr);
	if (rc == -EOPNOTSUPP && not_exported)
		info.reason = not_exported;
	return rc;
}

} // namespace

int peerdma_mr_reg(struct ibv_pd *pd, struct peerdma_buf *buf, uint64_t off, uint64_t len, int access,
		   struct peerdma_mr_info *info, struct ibv_mr **mr)
{
	return boundary([&] {
		if (!pd || !buf || !mr || check_size(info, offsetof(struct peerdma_mr_info, addr) + sizeof(info->addr)))
			return -EINVAL;
		struct peerdma_mr_info full = {};
		struct ibv_mr *made = nullptr;
		int rc = reg({pd, buf, off, len, access}, full, made);
		copy_out(info, full);
		if (!rc)
			*mr = made;
		return rc;
	});
}

int peerdma_mr_dereg(struct ibv_mr *mr)
{
	return boundary([&] {
		if (!mr)
			return 0;
		bool inherited = false;
		Regions &mine = regions(&inherited);
		// Remove it first: another region may get the handle.
		decltype(Regions::all)::node_type its;
		{
			std::lock_guard guard(mine.lock);
			its = mine.all.extract(mr);
		}
		// The child shares the device with the parent: deregistering would take the parent's region.
		if (!its && inherited)
			return -ECHILD;
		if (int err = ibv_dereg_mr(mr)) {
			std::lock_guard guard(mine.lock);
			mine.all.insert(std::move(its));
			return -err;
		}
		// After ibv_dereg_mr(): memory mapped there afterwards must not be reachable by the device.
		if (its && its.mapped())
			munmap(its.mapped()->addr, its.mapped()->len);
		return 0;
	});
}

const char *peerdma_mr_way_name(uint32_t way)
{
	switch (way) {
	case PEERDMA_MR_NONE:
		return "none";
	case PEERDMA_MR_DMABUF:
		return "dma-buf";
	case PEERDMA_MR_ON_DEMAND:
		return "on demand";
	}
	return "unknown";
}
