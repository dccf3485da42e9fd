// SPDX-License-Identifier: MIT
#include <map>
#include <shared_mutex>

#include <unistd.h>

#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/pointer.hpp"
#include "lib/policy.hpp"

namespace peerdma_impl
{
namespace
{

// The mapped buffers of this process, by address.
struct MappedBuffers {
	std::shared_mutex lock; // protects buffers
	std::map<uintptr_t, struct peerdma_buf *> buffers;
};

MappedBuffers &mapped_buffers()
{
	static constinit PerProcess<MappedBuffers> all;
	return all.get();
}

// Checks common to all calls that create a buffer.
int check_create(struct peerdma_device *p, struct peerdma_buf **out, uint32_t flags, uint32_t known, uint32_t *reason)
{
	if (reason)
		*reason = PEERDMA_REASON_NONE;
	const int rc = check_handle(p);
	if (rc || !out)
		return rc ? rc : -EINVAL;
	return flags & ~known ? -EOPNOTSUPP : 0;
}

template <typename Request> int ask(const Device &device, unsigned long ioctl, Request &request, uint32_t *reason)
{
	int rc = device.ioctl(ioctl, request);
	if (reason)
		*reason = request.out_reason;
	return rc;
}

int reason_of_denial(int rc, uint32_t *reason)
{
	if (reason && rc == -EACCES)
		*reason = PEERDMA_REASON_RULE;
	return rc;
}

template <typename Request>
struct peerdma_buf *make_handle(std::unique_ptr<struct peerdma_buf> buf, const struct peerdma_device &p,
				const Request &request, uint32_t provider_id)
{
	buf->device = p.device;
	buf->id = request.out_buf_id;
	buf->provider_id = provider_id;
	buf->len = request.len;
	buf->mmap_offset = request.out_mmap_offset;
	return buf.release();
}

// Destroys the buffer unless release() was called.
class BufferGuard
{
public:
	BufferGuard(const Device &device, uint32_t id) : device_(&device), id_(id) {}
	BufferGuard(const BufferGuard &) = delete;
	BufferGuard &operator=(const BufferGuard &) = delete;
	~BufferGuard()
	{
		struct peerdma_destroy request = {};
		request.id = id_;
		if (device_)
			device_->ioctl(PEERDMA_DESTROY, request);
	}
	void release() { device_ = nullptr; }

private:
	const Device *device_;
	uint32_t id_;
};

// Memory of another allocator. Its provider, and so the rule, is known only after the ioctl. @unable: the reason if the
// module is too old.
template <typename Request>
int register_memory(struct peerdma_device &p, unsigned long ioctl, Request &request, uint32_t unable,
		    struct peerdma_buf **out, uint32_t *reason)
{
	// Allocated before the ioctl: if memory ran out afterwards, there would be a buffer to destroy.
	auto buf = std::make_unique<struct peerdma_buf>();
	int rc = ask(*p.device, ioctl, request, reason);
	if (rc == -ENOTTY) {
		if (reason)
			*reason = unable;
		return -EOPNOTSUPP;
	}
	if (rc < 0)
		return rc;
	BufferGuard guard(*p.device, request.out_buf_id);
	rc = permit(*p.device, request.out_provider_id);
	if (rc < 0)
		return reason_of_denial(rc, reason);
	guard.release();
	*out = make_handle(std::move(buf), p, request, request.out_provider_id);
	return 0;
}

// Owns the exported dma-buf of device memory until it is imported.
class ExportedDmabuf
{
public:
	explicit ExportedDmabuf(Syscalls &sys) : sys_(sys) {}
	ExportedDmabuf(const ExportedDmabuf &) = delete;
	ExportedDmabuf &operator=(const ExportedDmabuf &) = delete;
	~ExportedDmabuf()
	{
		if (handle.fd >= 0 && handle.ours)
			sys_.close(handle.fd);
	}

	// Returns enum peerdma_reason.
	uint32_t get(const Pointer &pointer)
	{
		const Find find = [this](const char *library, const char *name) {
			return sys_.function(library, name);
		};
		const uint32_t reason = dmabuf_of(find, pointer, handle);
		// A larger dma-buf covers more than the allocation, and the offset of the allocation in it is unknown.
		if (!reason && handle.at_most && sys_.size_of(handle.fd) > static_cast<int64_t>(handle.at_most))
			return PEERDMA_REASON_IMPORT_HANDLE;
		return reason;
	}

	Handle handle;

private:
	Syscalls &sys_;
};

int from_pointer(struct peerdma_device &p, struct peerdma_pointer_args &args, struct peerdma_buf **out)
{
	if (!args.len)
		return -EINVAL;
	ExportedDmabuf dmabuf(p.device->sys());
	const Pointer pointer = {{args.addr, args.len}, args.ze_context, static_cast<uint64_t>(sysconf(_SC_PAGESIZE))};
	args.out_reason = dmabuf.get(pointer);
	const Handle &handle = dmabuf.handle;
	args.out_memory = handle.memory;
	args.out_result = handle.result;
	if (args.out_reason)
		return args.out_reason == PEERDMA_REASON_VENDOR_ALIGN ? -EINVAL : -EOPNOTSUPP;
	args.out_buf_off = args.addr - handle.range.start;
	struct peerdma_buf_import request = {};
	request.fd = handle.fd;
	request.pci_domain = args.pci_domain;
	request.pci_bdf = args.pci_bdf;
	request.off = handle.off;
	request.len = handle.range.len;
	return register_memory(p, PEERDMA_BUF_IMPORT, request, PEERDMA_REASON_IMPORT_UNABLE, out, &args.out_reason);
}

} // namespace

int map_device(const Device &device, uint64_t offset, uint64_t len, void **addr)
{
	void *at = nullptr;
	const int rc = device.sys().mmap(device.fd(), offset, len, &at);
	if (rc < 0)
		return rc;
	// Checked after the call: a descriptor that is ours now was ours before.
	if (!device.is_there()) {
		device.sys().munmap(at, len);
		return -EBADF;
	}
	*addr = at;
	return 0;
}

int map_buffer(struct peerdma_buf &buf, void *&addr)
{
	if (!buf.mmap_offset)
		return -EOPNOTSUPP;
	std::lock_guard guard(buf.lock);
	if (!buf.addr) {
		const Device &device = *buf.device;
		void *at = nullptr;
		int rc = map_device(device, buf.mmap_offset, buf.len, &at);
		if (rc < 0)
			return rc;
		try {
			std::lock_guard all(mapped_buffers().lock);
			mapped_buffers().buffers.emplace(reinterpret_cast<uintptr_t>(at), &buf);
		} catch (...) {
			device.sys().munmap(at, buf.len);
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
		int rc = check_create(p, out, flags, PEERDMA_BUF_FLAGS, reason);
		if (rc < 0)
			return rc;
		rc = permit(*p->device, provider_id);
		if (rc < 0)
			return reason_of_denial(rc, reason);
		struct peerdma_buf_alloc request = {};
		request.flags = flags;
		request.provider_id = provider_id;
		request.len = len;
		// Allocated before the ioctl: if memory ran out afterwards, there would be a buffer to destroy.
		auto buf = std::make_unique<struct peerdma_buf>();
		rc = ask(*p->device, PEERDMA_BUF_ALLOC, request, reason);
		if (rc < 0)
			return rc;
		*out = make_handle(std::move(buf), *p, request, provider_id);
		(*out)->bar_offset = request.out_bar_offset;
		return 0;
	});
}

int peerdma_buf_from_gpu(struct peerdma_device *p, uint32_t pci_vendor, uint64_t addr, uint64_t len, uint32_t flags,
			 struct peerdma_buf **out, uint32_t *reason)
{
	return boundary([&] {
		int rc = check_create(p, out, flags, 0, reason);
		if (rc < 0)
			return rc;
		struct peerdma_buf_register request = {};
		request.pci_vendor = pci_vendor;
		request.addr = addr;
		request.len = len;
		return register_memory(*p, PEERDMA_BUF_REGISTER, request, PEERDMA_REASON_VENDOR_MODULE, out, reason);
	});
}

int peerdma_buf_from_dmabuf(struct peerdma_device *p, int fd, uint64_t off, uint64_t len, uint32_t pci_domain,
			    uint32_t pci_bdf, uint32_t flags, struct peerdma_buf **out, uint32_t *reason)
{
	return boundary([&] {
		int rc = check_create(p, out, flags, 0, reason);
		if (rc < 0)
			return rc;
		struct peerdma_buf_import request = {};
		request.fd = fd;
		request.pci_domain = pci_domain;
		request.pci_bdf = pci_bdf;
		request.off = off;
		request.len = len;
		return register_memory(*p, PEERDMA_BUF_IMPORT, request, PEERDMA_REASON_IMPORT_UNABLE, out, reason);
	});
}

int peerdma_buf_from_pointer(struct peerdma_device *p, struct peerdma_pointer_args *args, struct peerdma_buf **out)
{
	return boundary([&] {
		struct peerdma_pointer_args full;
		int rc = copy_in(full, args, sizeof(full));
		if (rc)
			return rc;
		rc = check_handle(p);
		if (rc || !out)
			return rc ? rc : -EINVAL;
		if (full.flags)
			return -EOPNOTSUPP;
		full.out_buf_off = 0;
		full.out_memory = full.out_reason = full.reserved = 0;
		full.out_result = 0;
		rc = from_pointer(*p, full, out);
		copy_out(args, full);
		return rc;
	});
}

void peerdma_buf_destroy(struct peerdma_buf *buf)
{
	boundary([&] {
		if (!buf)
			return 0;
		if (buf->addr) {
			// Remove the addresses first: after munmap() other memory may be mapped there.
			{
				std::lock_guard all(mapped_buffers().lock);
				mapped_buffers().buffers.erase(reinterpret_cast<uintptr_t>(buf->addr));
			}
			buf->device->sys().munmap(buf->addr, buf->len);
		}
		// The only error is -ENOENT, and then there is nothing left to destroy.
		struct peerdma_destroy request = {};
		request.id = buf->id;
		if (!buf->device->is_inherited())
			buf->device->ioctl(PEERDMA_DESTROY, request);
		delete buf;
		return 0;
	});
}

int peerdma_buf_map(struct peerdma_buf *buf, void **addr)
{
	return boundary([&] {
		const int rc = check_handle(buf);
		if (rc || !addr)
			return rc ? rc : -EINVAL;
		return map_buffer(*buf, *addr);
	});
}

int peerdma_buf_map_on_demand(struct peerdma_buf *buf, uint64_t off, uint64_t len, void **addr)
{
	return boundary([&] {
		int rc = check_handle(buf);
		if (rc || !addr || !len || off > buf->len || len > buf->len - off)
			return rc ? rc : -EINVAL;
		const Device &device = *buf->device;
		struct peerdma_info info = {};
		rc = device.ioctl(PEERDMA_INFO, info);
		if (rc < 0)
			return rc;
		if (!buf->mmap_offset || !(info.out_features & PEERDMA_FEATURE_ON_DEMAND))
			return -EOPNOTSUPP;
		if (off % info.out_page_size)
			return -EINVAL;
		return map_device(device, buf->mmap_offset + off, len, addr);
	});
}

int peerdma_buf_at(const void *addr, struct peerdma_buf **buf, uint64_t *buf_off)
{
	return boundary([&] {
		if (!buf || !buf_off)
			return -EINVAL;
		const auto at = reinterpret_cast<uintptr_t>(addr);
		std::shared_lock all(mapped_buffers().lock);
		auto next = mapped_buffers().buffers.upper_bound(at);
		if (next == mapped_buffers().buffers.begin())
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
		int rc = check_handle(buf);
		if (rc || !fd)
			return rc ? rc : -EINVAL;
		struct peerdma_buf_export request = {};
		request.buf_id = buf->id;
		request.off = off;
		request.len = len;
		rc = buf->device->ioctl(PEERDMA_BUF_EXPORT, request);
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
		int rc = check_handle(buf);
		if (!rc)
			rc = check_size(info, offsetof(struct peerdma_buf_info, device_fd) + sizeof(info->device_fd));
		if (rc)
			return rc;
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
