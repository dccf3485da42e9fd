// SPDX-License-Identifier: MIT
#include "cufile/registry/registry.hpp"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "cufile/platform/errors.hpp"

namespace cufile
{
namespace
{

uintptr_t number(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

} // namespace

std::shared_ptr<FileHandle> Registry::find_file(CUfileHandle_t fh)
{
	const std::shared_lock guard(lock_);
	const auto found = files_.find(number(fh));
	return found == files_.end() ? nullptr : found->second;
}

CUfileError_t Registry::register_file(const Config &config, CUfileHandle_t *fh, const CUfileDescr_t *descr)
{
	std::shared_ptr<FileHandle> handle;
	uintptr_t others = 0; // registrations of this descriptor and file with a greater id have the same description
	if (descr->type == CU_FILE_HANDLE_TYPE_USERSPACE_FS) {
		if (!descr->fs_ops || (!descr->fs_ops->read && !descr->fs_ops->write))
			return error(CU_FILE_IO_NOT_SUPPORTED);
		handle = std::make_shared<FileHandle>(std::make_shared<UserFile>(descr->handle.handle, *descr->fs_ops),
						      -1, dev_t{}, ino_t{});
	} else if (descr->type == CU_FILE_HANDLE_TYPE_OPAQUE_FD) {
		struct stat st = {};
		if (deps_.system.fstat(descr->handle.fd, st) < 0)
			return error(CU_FILE_INVALID_VALUE);
		{
			// Before the file is opened: closing it would release the program's locks.
			const std::lock_guard guard(lock_);
			// Not for pipes and sockets, whose owners get signals.
			const bool marks = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
			if (!marks || !deps_.system.mark(descr->handle.fd)) {
				others = ids_.last();
				// The previous description was closed. If this call fails, the next one finds the mark.
				by_fd_.erase(descr->handle.fd);
			}
			if (is_registered(descr->handle.fd, st.st_dev, st.st_ino, others))
				return error(CU_FILE_HANDLE_ALREADY_REGISTERED);
		}
		std::shared_ptr<SystemFile> file;
		const CUfileOpError rc = SystemFile::open(deps_.system, descr->handle.fd,
							  config.flag(CUFILE_PARAM_FORCE_ODIRECT_MODE), file);
		if (rc)
			return error(rc);
		if (config.flag(CUFILE_PARAM_FORCE_ODIRECT_MODE) && !file->bypass_cache())
			log_.say(Log::Level::warn, "force_odirect_mode: file descriptor " +
							   std::to_string(descr->handle.fd) +
							   " cannot be opened with O_DIRECT; using the page cache");
		if (file->large())
			log_.say(Log::Level::info,
				 "file descriptor " + std::to_string(descr->handle.fd) +
					 ": larger than the page cache; long reads of uncached data bypass it");
		std::string met;
		if (config.denylist.matches(deps_.system, file->fd(), met) < 0)
			return error(CU_FILE_GETNEWFD_FAILED);
		if (!met.empty())
			log_.say(Log::Level::info, "not direct: the denylist's " + met + " (file descriptor " +
							   std::to_string(descr->handle.fd) + ")");
		const dev_t device = file->device();
		const ino_t inode = file->inode();
		handle = std::make_shared<FileHandle>(std::move(file), descr->handle.fd, device, inode);
		handle->denied = !met.empty();
	} else {
		return error(CU_FILE_IO_NOT_SUPPORTED);
	}

	const std::lock_guard guard(lock_);
	if (is_registered(handle->fd, handle->dev, handle->ino, others)) // by another thread meanwhile
		return error(CU_FILE_HANDLE_ALREADY_REGISTERED);
	const uintptr_t id = ids_.next();
	files_.emplace(id, handle);
	if (handle->fd >= 0)
		by_fd_[handle->fd] = id;
	*fh = reinterpret_cast<CUfileHandle_t>(id);
	return success();
}

// True if this descriptor is registered with an id above others. A number that now names another file, or the same file
// opened again, is not a second registration: ids above others are of the same description.
bool Registry::is_registered(int fd, dev_t device, ino_t inode, uintptr_t others) const
{
	const auto same = by_fd_.find(fd);
	if (same == by_fd_.end() || same->second <= others)
		return false;
	const FileHandle &handle = *files_.at(same->second);
	return handle.dev == device && handle.ino == inode;
}

bool Registry::deregister_file(CUfileHandle_t fh)
{
	std::shared_ptr<FileHandle> gone; // its files close without the lock
	{
		const std::lock_guard guard(lock_);
		const auto found = files_.find(number(fh));
		if (found != files_.end()) {
			gone = std::move(found->second);
			const auto same = by_fd_.find(gone->fd);
			if (same != by_fd_.end() && same->second == found->first)
				by_fd_.erase(same);
			files_.erase(found);
		}
	}
	// A stream may still hold the handle and must not call CUDA when it releases it.
	if (gone) {
		const std::lock_guard guard(gone->lock);
		gone->peer_gpus.clear();
	}
	return gone != nullptr;
}

std::shared_ptr<RegisteredMemory> Registry::registration_at(const void *address, uint64_t size) const
{
	std::shared_ptr<RegisteredMemory> found, later;
	each_near(number(address), 1, [&](const auto &entry) {
		const auto &[base, buffer] = entry;
		const auto &near = buffer.registration;
		if (!near)
			return false;
		if (near->covers(address, near->foreign() ? 1 : size))
			found = near;
		else if (!near->foreign() && number(address) >= base && number(address) - base <= buffer.size &&
			 size <= buffer.size - (number(address) - base))
			later = near;
		return found != nullptr;
	});
	return found ? found : later;
}

template <class See> void Registry::each_near(uintptr_t address, uint64_t size, const See &see) const
{
	// Frames reach beyond the registered range on both sides.
	auto next = buffers_.upper_bound(address + size + frame_bytes);
	while (next != buffers_.begin()) {
		--next;
		if (address >= next->first && address - next->first >= longest_ + frame_bytes)
			break;
		if (next->first + next->second.size + frame_bytes <= address)
			continue;
		if (see(*next))
			break;
	}
}

bool Registry::is_replaced(const void *base, const RegisteredBuffer &buffer)
{
	Allocation now;
	if (!deps_.cuda.load() || deps_.cuda.allocation(base, now) || !now.id || now.id == buffer.id)
		return false;
	// Host memory may have been registered with CUDA since.
	Memory memory;
	return buffer.id || (!deps_.cuda.look_up(base, memory) && memory.kind == Memory::Kind::device);
}

void Registry::drop_replaced(const void *base, uint64_t size)
{
	std::vector<std::pair<uintptr_t, RegisteredBuffer>> near;
	{
		const std::shared_lock guard(lock_);
		each_near(number(base), size, [&](const auto &entry) {
			near.push_back(entry);
			return false;
		});
	}
	for (const auto &[at, buffer] : near) {
		const void *const start = reinterpret_cast<const void *>(at);
		const bool same = start == base;
		// One of several pieces may have been replaced.
		if (!is_replaced(start, buffer) || (!same && deps_.cuda.is_mapped(start)))
			continue;
		const std::lock_guard guard(lock_);
		const auto found = buffers_.find(at);
		if (found == buffers_.end() || found->second.id != buffer.id)
			continue;
		// near holds the removed references until the lock is released.
		if (same)
			buffers_.erase(found);
		else
			found->second.registration.reset();
	}
}

// Registers memory for direct I/O. Memory that the kernel refuses bounces; after a shortage an I/O can extend it.
void Registry::pin_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer)
{
	const int rc = RegisteredMemory::create(frame_table_, deps_.cuda, base, size, buffer.registration,
						buffer.reason, buffer.memory.device);
	buffer.over_quota = rc > 0;
	if (rc < 0 && !buffer.reason)
		log_.say(Log::Level::info,
			 "not direct: cannot register memory with the kernel: " + std::generic_category().message(-rc));
}

// Imports memory of a GPU unknown to CUDA. Without the module no path leads there.
CUfileOpError Registry::import_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer)
{
	{
		const std::shared_lock guard(lock_);
		if (buffers_.contains(number(base)))
			return CU_FILE_MEMORY_ALREADY_REGISTERED;
	}
	const int rc = RegisteredMemory::import_foreign(frame_table_, base, size, buffer.registration, buffer.reason);
	if (rc == -ENOENT)
		return CU_FILE_SUCCESS;
	if (!rc) {
		buffer.memory.kind = Memory::Kind::foreign;
		return CU_FILE_SUCCESS;
	}
	log_.say(Log::Level::error, std::string("cannot register memory of this GPU: ") +
					    (rc > 0        ? "max_device_pinned_mem_size_kb has no room for it" :
					     buffer.reason ? deps_.peerdma.reason_text(buffer.reason) :
							     std::generic_category().message(-rc)));
	return rc == -ENOMEM ? CU_FILE_NOMEM_ERROR : CU_FILE_GPU_MEMORY_PINNING_FAILED;
}

CUfileError_t Registry::register_buffer(const Config &config, const void *base, size_t size, int &device)
{
	RegisteredBuffer buffer = {size, {}, 0, nullptr, PEERDMA_REASON_NONE, false, 0};
	if (deps_.cuda.load()) {
		const int rc = deps_.cuda.look_up(base, buffer.memory);
		if (rc)
			return error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc));
	}
	// Adjacent mapped allocations form one range.
	const auto there = [&](const void *address, Allocation &in) {
		return !deps_.cuda.allocation(address, in) && in.id;
	};
	const bool wraps = size > INT64_MAX;
	Allocation first, last;
	if (buffer.memory.kind == Memory::Kind::device && there(base, first) &&
	    size > first.start + first.size - number(base) &&
	    (wraps || (!there(static_cast<const char *>(base) + size - 1, last) && !deps_.cuda.is_mapped(base))))
		return error(CU_FILE_CUDA_POINTER_RANGE_ERROR);
	if (wraps)
		return error(CU_FILE_INVALID_VALUE);
	if (deps_.cuda.load() && (first.id || there(base, first)))
		buffer.id = first.id;
	drop_replaced(base, size);
	BufferLocation location;
	buffer.look_up_error = deps_.peerdma.look_up(base, location);
	if (buffer.look_up_error && buffer.memory.kind == Memory::Kind::device &&
	    !config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE))
		pin_buffer(base, size, buffer);
	if (buffer.look_up_error == -ENOENT && buffer.memory.kind == Memory::Kind::host &&
	    !config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE)) {
		const CUfileOpError rc = import_buffer(base, size, buffer);
		if (rc)
			return error(rc);
	}
	{
		const std::lock_guard guard(lock_);
		if (!buffers_.emplace(number(base), buffer).second)
			return error(CU_FILE_MEMORY_ALREADY_REGISTERED);
		longest_ = std::max(longest_, size);
	}
	device = buffer.memory.device;
	return success();
}

CUfileError_t Registry::deregister_buffer(const void *base, RegisteredBuffer &gone)
{
	if (!base)
		return error(CU_FILE_INVALID_VALUE);
	{
		const std::lock_guard guard(lock_);
		const auto found = buffers_.find(number(base));
		if (found == buffers_.end())
			return error(CU_FILE_MEMORY_NOT_REGISTERED);
		gone = found->second;
		buffers_.erase(found);
	}
	return success();
}

bool Registry::find_memory(const void *base, const void *address, uint64_t size, RegisteredBuffer &buffer,
			   std::shared_ptr<RegisteredMemory> &registration)
{
	const std::shared_lock guard(lock_);
	const auto found = buffers_.find(number(base));
	if (found == buffers_.end()) {
		registration = registration_at(address, size);
		return false;
	}
	buffer = found->second;
	registration = buffer.registration;
	return true;
}

void Registry::clear()
{
	decltype(files_) files;
	{
		decltype(buffers_) buffers;
		const std::lock_guard guard(lock_);
		files.swap(files_);
		buffers.swap(buffers_);
		by_fd_.clear();
	}
	// I/O that a stream has not reached yet holds its file, and must not call CUDA when it releases it.
	for (const auto &[id, handle] : files) {
		const std::lock_guard guard(handle->lock);
		handle->peer_gpus.clear();
	}
}

} // namespace cufile
