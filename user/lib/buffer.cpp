// SPDX-License-Identifier: MIT
#include <map>
#include <shared_mutex>

#include "boundary.hpp"
#include "device.hpp"
#include "policy.hpp"

namespace peerdma_impl
{
namespace
{

// The buffers that are mapped, by address. Made by the first and never destroyed: a library may be asked when
// the process is on its way out.
struct Mapped {
	std::shared_mutex lock; // protects buffers
	std::map<uintptr_t, struct peerdma_buf *> buffers;
};

Mapped &mapped()
{
	static Mapped *const all = new Mapped;
	return *all;
}

} // namespace

int map_buffer(struct peerdma_buf &buf, void *&addr)
{
	if (!buf.mmap_offset)
		return -EOPNOTSUPP;
	std::lock_guard guard(buf.lock);
	if (!buf.addr) {
		const Device &device = *buf.device;
		void *at = nullptr;
		int rc = device.env().mmap(device.fd(), buf.mmap_offset, buf.len, &at);
		if (rc < 0)
			return rc;
		try {
			std::lock_guard all(mapped().lock);
			mapped().buffers.emplace(reinterpret_cast<uintptr_t>(at), &buf);
		} catch (...) {
			device.env().munmap(at, buf.len);
			throw;
		}
		buf.addr = at;
	}
	addr = buf.addr;
	return 0;
}

} // namespace peerdma_impl

using namespace peerdma_impl;

int peerdma_buf_create(struct peerdma_device *p, uint32_t provider_id, uint64_t len, uint32_t flags,
		       struct peerdma_buf **out, uint32_t *reason)
{
	return boundary([&] {
		if (reason)
			*reason = PEERDMA_REASON_NONE;
		if (!p || !out)
			return -EINVAL;
		if (flags & ~PEERDMA_BUF_FLAGS)
			return -EOPNOTSUPP;
		// Before the ioctl: afterwards there would be a buffer to give back if memory ran out.
		auto buf = std::make_unique<struct peerdma_buf>();
		int rc = permit(*p->device, provider_id);
		if (rc < 0) {
			if (reason && rc == -EACCES)
				*reason = PEERDMA_REASON_RULE;
			return rc;
		}
		struct peerdma_buf_alloc request = {};
		request.flags = flags;
		request.provider_id = provider_id;
		request.len = len;
		rc = p->device->ioctl(PEERDMA_BUF_ALLOC, request);
		if (reason)
			*reason = request.out_reason;
		if (rc < 0)
			return rc;
		buf->device = p->device;
		buf->id = request.out_buf_id;
		buf->provider_id = provider_id;
		buf->len = len;
		buf->bar_offset = request.out_bar_offset;
		buf->mmap_offset = request.out_mmap_offset;
		*out = buf.release();
		return 0;
	});
}

int peerdma_buf_from_gpu(struct peerdma_device *p, uint32_t pci_vendor, uint64_t addr, uint64_t len, uint32_t flags,
			 struct peerdma_buf **out, uint32_t *reason)
{
	return boundary([&] {
		if (reason)
			*reason = PEERDMA_REASON_NONE;
		if (!p || !out)
			return -EINVAL;
		if (flags)
			return -EOPNOTSUPP;
		auto buf = std::make_unique<struct peerdma_buf>();
		struct peerdma_buf_register request = {};
		request.pci_vendor = pci_vendor;
		request.addr = addr;
		request.len = len;
		int rc = p->device->ioctl(PEERDMA_BUF_REGISTER, request);
		// An older module cannot: as if there was none for the vendor.
		if (rc == -ENOTTY) {
			request.out_reason = PEERDMA_REASON_VENDOR_MODULE;
			rc = -EOPNOTSUPP;
		}
		if (reason)
			*reason = request.out_reason;
		if (rc < 0)
			return rc;
		// Whose memory it is is known only now.
		rc = permit(*p->device, request.out_provider_id);
		if (rc < 0) {
			struct peerdma_destroy back = {};
			back.id = request.out_buf_id;
			p->device->ioctl(PEERDMA_DESTROY, back);
			if (reason && rc == -EACCES)
				*reason = PEERDMA_REASON_RULE;
			return rc;
		}
		buf->device = p->device;
		buf->id = request.out_buf_id;
		buf->provider_id = request.out_provider_id;
		buf->len = len;
		buf->mmap_offset = request.out_mmap_offset;
		*out = buf.release();
		return 0;
	});
}

int peerdma_buf_from_dmabuf(struct peerdma_device *p, int fd, uint64_t off, uint64_t len, uint32_t pci_domain,
			    uint32_t pci_bdf, uint32_t flags, struct peerdma_buf **out, uint32_t *reason)
{
	return boundary([&] {
		if (reason)
			*reason = PEERDMA_REASON_NONE;
		if (!p || !out)
			return -EINVAL;
		if (flags)
			return -EOPNOTSUPP;
		auto buf = std::make_unique<struct peerdma_buf>();
		struct peerdma_buf_import request = {};
		request.fd = fd;
		request.pci_domain = pci_domain;
		request.pci_bdf = pci_bdf;
		request.off = off;
		request.len = len;
		int rc = p->device->ioctl(PEERDMA_BUF_IMPORT, request);
		if (rc == -ENOTTY) {
			request.out_reason = PEERDMA_REASON_IMPORT_UNABLE;
			rc = -EOPNOTSUPP;
		}
		if (reason)
			*reason = request.out_reason;
		if (rc < 0)
			return rc;
		buf->device = p->device;
		buf->id = request.out_buf_id;
		buf->provider_id = request.out_provider_id;
		buf->len = len;
		buf->mmap_offset = request.out_mmap_offset;
		*out = buf.release();
		return 0;
	});
}

void peerdma_buf_destroy(struct peerdma_buf *buf)
{
	boundary([&] {
		if (!buf)
			return 0;
		if (buf->addr) {
			// Before its addresses can be somebody else's.
			{
				std::lock_guard all(mapped().lock);
				mapped().buffers.erase(reinterpret_cast<uintptr_t>(buf->addr));
			}
			buf->device->env().munmap(buf->addr, buf->len);
		}
		// -ENOENT is all it can say, and then there is nothing left to destroy.
		struct peerdma_destroy request = {};
		request.id = buf->id;
		buf->device->ioctl(PEERDMA_DESTROY, request);
		delete buf;
		return 0;
	});
}

int peerdma_buf_map(struct peerdma_buf *buf, void **addr)
{
	return boundary([&] {
		if (!buf || !addr)
			return -EINVAL;
		return map_buffer(*buf, *addr);
	});
}

int peerdma_buf_map_on_demand(struct peerdma_buf *buf, uint64_t off, uint64_t len, void **addr)
{
	return boundary([&] {
		if (!buf || !addr || !len || off > buf->len || len > buf->len - off)
			return -EINVAL;
		const Device &device = *buf->device;
		struct peerdma_info info = {};
		int rc = device.ioctl(PEERDMA_INFO, info);
		if (rc < 0)
			return rc;
		if (!buf->mmap_offset || !(info.out_features & PEERDMA_FEATURE_ON_DEMAND))
			return -EOPNOTSUPP;
		if (off % info.out_page_size)
			return -EINVAL;
		return device.env().mmap(device.fd(), buf->mmap_offset + off, len, addr);
	});
}

int peerdma_buf_at(const void *addr, struct peerdma_buf **buf, uint64_t *buf_off)
{
	return boundary([&] {
		if (!buf || !buf_off)
			return -EINVAL;
		const auto at = reinterpret_cast<uintptr_t>(addr);
		std::shared_lock all(mapped().lock);
		auto next = mapped().buffers.upper_bound(at);
		if (next == mapped().buffers.begin())
			return -ENOENT;
		const auto &[start, found] = *std::prev(next);
		if (at - start >= found->len)
			return -ENOENT;
		*buf = found;
		*buf_off = at - start;
		return 0;
	});
}

int peerdma_buf_export_dmabuf(struct peerdma_buf *buf, uint64_t off, uint64_t len, int *fd, uint32_t *reason)
{
	return boundary([&] {
		if (reason)
			*reason = PEERDMA_REASON_NONE;
		if (!buf || !fd)
			return -EINVAL;
		struct peerdma_buf_export request = {};
		request.buf_id = buf->id;
		request.off = off;
		request.len = len;
		int rc = buf->device->ioctl(PEERDMA_BUF_EXPORT, request);
		if (reason)
			*reason = request.out_reason;
		if (rc < 0)
			return rc == -ENOTTY ? -EOPNOTSUPP : rc;
		*fd = request.out_fd;
		return 0;
	});
}

int peerdma_buf_query(const struct peerdma_buf *buf, struct peerdma_buf_info *info)
{
	return boundary([&] {
		int rc = check_size(info, offsetof(struct peerdma_buf_info, device_fd) + sizeof(info->device_fd));
		if (!buf || rc)
			return -EINVAL;
		struct peerdma_buf_info full = {};
		full.provider_id = buf->provider_id;
		full.len = buf->len;
		full.bar_offset = buf->bar_offset;
		full.buf_id = buf->id;
		full.device_fd = buf->device->fd();
		copy_out(info, full);
		return 0;
	});
}
