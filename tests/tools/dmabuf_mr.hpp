// SPDX-License-Identifier: MIT
//
// ibv_reg_dmabuf_mr() for a device whose kernel driver imports dma-bufs though its provider in rdma-core does not ask it to: librxe, which
// the lab's card is driven by (tests/kmod/dmacard_rdma.h). A program that includes this takes the place of both functions of libibverbs,
// for the libraries that it is linked with too. What the library's own one can register, it does.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

namespace dmabuf_mr
{

inline std::mutex lock; // protects ours
inline std::set<struct ibv_mr *> ours;

/// A method of the kernel's verbs, with its attributes.
class Call
{
public:
	Call(uint16_t object, uint16_t method) : object_(object), method_(method) {}

	/// At most 8 bytes are passed inline. handles: len 0. Returns the attribute's place.
	size_t add(uint16_t id, uint64_t data, uint16_t len)
	{
		struct ib_uverbs_attr attr = {};
		attr.attr_id = id;
		attr.len = len;
		attr.flags = UVERBS_ATTR_F_MANDATORY;
		attr.data = data;
		attrs_.push_back(attr);
		return attrs_.size() - 1;
	}
	uint64_t data(size_t place) const { return attrs_[place].data; }

	/// errno or 0
	int run(int fd)
	{
		const size_t head = sizeof(struct ib_uverbs_ioctl_hdr), tail = attrs_.size() * sizeof(attrs_[0]);
		std::vector<uint64_t> room((head + tail) / sizeof(uint64_t));
		auto *hdr = reinterpret_cast<struct ib_uverbs_ioctl_hdr *>(room.data());
		hdr->length = static_cast<uint16_t>(head + tail);
		hdr->object_id = object_;
		hdr->method_id = method_;
		hdr->num_attrs = static_cast<uint16_t>(attrs_.size());
		hdr->driver_id = RDMA_DRIVER_RXE;
		std::copy(attrs_.begin(), attrs_.end(), hdr->attrs);
		if (::ioctl(fd, RDMA_VERBS_IOCTL, hdr))
			return errno;
		std::copy(hdr->attrs, hdr->attrs + attrs_.size(), attrs_.begin());
		return 0;
	}

private:
	uint16_t object_, method_;
	std::vector<struct ib_uverbs_attr> attrs_;
};

/// Other drivers have no such method, or a table of methods of their own.
inline bool is_card(struct ibv_context *context)
{
	return std::string_view(ibv_get_device_name(context->device)).starts_with("dmacard");
}

inline struct ibv_mr *reg(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	uint32_t lkey = 0, rkey = 0;
	Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
	const size_t handle = call.add(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	call.add(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pd->handle, 0);
	call.add(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset, sizeof(offset));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length, sizeof(uint64_t));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova, sizeof(iova));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<uint32_t>(fd), sizeof(uint32_t));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, static_cast<uint64_t>(access), sizeof(uint64_t));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, reinterpret_cast<uintptr_t>(&lkey), sizeof(lkey));
	call.add(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, reinterpret_cast<uintptr_t>(&rkey), sizeof(rkey));
	if (const int error = call.run(pd->context->cmd_fd)) {
		errno = error;
		return nullptr;
	}
	auto *mr = new struct ibv_mr();
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = reinterpret_cast<void *>(iova);
	mr->length = length;
	mr->handle = static_cast<uint32_t>(call.data(handle));
	mr->lkey = lkey;
	mr->rkey = rkey;
	const std::lock_guard guard(lock);
	ours.insert(mr);
	return mr;
}

inline int dereg(struct ibv_mr *mr)
{
	Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
	call.add(UVERBS_ATTR_DESTROY_MR_HANDLE, mr->handle, 0);
	if (const int error = call.run(mr->context->cmd_fd))
		return error;
	const std::lock_guard guard(lock);
	ours.erase(mr);
	delete mr;
	return 0;
}

inline bool is_ours(struct ibv_mr *mr)
{
	const std::lock_guard guard(lock);
	return ours.contains(mr);
}

} // namespace dmabuf_mr

extern "C" {

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	const auto its = reinterpret_cast<decltype(&ibv_reg_dmabuf_mr)>(dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr"));
	struct ibv_mr *mr = its(pd, offset, length, iova, fd, access);
	return mr || errno != EOPNOTSUPP || !dmabuf_mr::is_card(pd->context) ?
		       mr :
		       dmabuf_mr::reg(pd, offset, length, iova, fd, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (dmabuf_mr::is_ours(mr))
		return dmabuf_mr::dereg(mr);
	return reinterpret_cast<decltype(&ibv_dereg_mr)>(dlsym(RTLD_NEXT, "ibv_dereg_mr"))(mr);
}
}
