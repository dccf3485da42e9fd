// SPDX-License-Identifier: MIT
//
// What programs register: files, memory, streams. An id is never given twice, so one that is used too late names
// nothing.
#include <algorithm>
#include <iterator>
#include <system_error>

#include "cufile/api/library.hpp"

namespace cufile
{
namespace
{

uintptr_t number(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// The first call of many programs: they never open the driver.
constexpr long first_user = 1;

} // namespace

CUfileOpError Library::open_for_use()
{
	// Nobody has asked for the driver to be opened, so nobody need wait until it can be.
	if (closing_)
		return CU_FILE_DRIVER_CLOSING;
	const std::lock_guard guard(open_lock_);
	if (engine_)
		return CU_FILE_SUCCESS;
	const CUfileOpError rc = open_if_closed();
	if (rc == CU_FILE_SUCCESS)
		count_ = first_user;
	return rc;
}

std::shared_ptr<FileHandle> Library::find(CUfileHandle_t fh)
{
	const std::shared_lock tables(table_lock_);
	const auto found = handles_.find(number(fh));
	return found == handles_.end() ? nullptr : found->second;
}

CUfileError_t Library::register_file(CUfileHandle_t *fh, const CUfileDescr_t *descr)
{
	const auto refuse = [&](CUfileOpError rc) {
		stats_.count(&CUfileStatsLevel1_t::hdl_register_ops, false);
		return error(rc);
	};
	if (!fh || !descr)
		return refuse(CU_FILE_INVALID_VALUE);
	const CUfileOpError opened = open_for_use();
	if (opened)
		return refuse(opened);
	retry_load();
	const Use use(*this);
	if (!use)
		return refuse(CU_FILE_DRIVER_CLOSING);

	std::shared_ptr<FileHandle> handle;
	uintptr_t others =
		0; // those with a greater id are of the same description, if they are of the same descriptor and file
	if (descr->type == CU_FILE_HANDLE_TYPE_USERSPACE_FS) {
		if (!descr->fs_ops || (!descr->fs_ops->read && !descr->fs_ops->write))
			return refuse(CU_FILE_IO_NOT_SUPPORTED);
		handle = std::make_shared<FileHandle>(std::make_shared<UserFile>(descr->handle.handle, *descr->fs_ops),
						      -1, dev_t{}, ino_t{});
	} else if (descr->type == CU_FILE_HANDLE_TYPE_OPAQUE_FD) {
		struct stat st = {};
		if (deps_.system.fstat(descr->handle.fd, st) < 0)
			return refuse(CU_FILE_INVALID_VALUE);
		{
			// Before the file is opened: closing it again would end the program's locks.
			const std::lock_guard tables(table_lock_);
			// Not of pipes and sockets, whose owners get signals.
			const bool marks = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
			if (!marks || !deps_.system.mark(descr->handle.fd)) {
				others = last_id();
				// Of a description that is closed. If this call fails, the next one finds the mark.
				by_fd_.erase(descr->handle.fd);
			}
			if (is_registered(descr->handle.fd, st.st_dev, st.st_ino, others))
				return refuse(CU_FILE_HANDLE_ALREADY_REGISTERED);
		}
		std::shared_ptr<SystemFile> file;
		const CUfileOpError rc = SystemFile::open(deps_.system, descr->handle.fd,
							  use->config.flag(CUFILE_PARAM_FORCE_ODIRECT_MODE), file);
		if (rc)
			return refuse(rc);
		if (use->config.flag(CUFILE_PARAM_FORCE_ODIRECT_MODE) && !file->past())
			log_.say(Log::Level::warn, "force_odirect_mode: file descriptor " +
							   std::to_string(descr->handle.fd) +
							   " cannot be opened with O_DIRECT; using the page cache");
		if (file->large())
			log_.say(Log::Level::info,
				 "too long for the page cache to keep: long reads of what is not in there go past it "
				 "(file descriptor " +
					 std::to_string(descr->handle.fd) + ")");
		std::string met;
		if (use->config.denylist.matches(deps_.system, file->fd(), met) < 0)
			return refuse(CU_FILE_GETNEWFD_FAILED);
		if (!met.empty())
			log_.say(Log::Level::info, "not directly, because the denylist's " + met +
							   " (file descriptor " + std::to_string(descr->handle.fd) +
							   ")");
		const dev_t device = file->device();
		const ino_t inode = file->inode();
		handle = std::make_shared<FileHandle>(std::move(file), descr->handle.fd, device, inode);
		handle->denied = !met.empty();
	} else {
		return refuse(CU_FILE_IO_NOT_SUPPORTED);
	}

	const std::lock_guard tables(table_lock_);
	if (is_registered(handle->fd, handle->dev, handle->ino, others)) // by another thread meanwhile
		return refuse(CU_FILE_HANDLE_ALREADY_REGISTERED);
	const uintptr_t id = new_id();
	handles_.emplace(id, handle);
	if (handle->fd >= 0)
		by_fd_[handle->fd] = id;
	*fh = reinterpret_cast<CUfileHandle_t>(id);
	stats_.count(&CUfileStatsLevel1_t::hdl_register_ops, true);
	return success();
}

// By this descriptor, with an id above others. A number that is another file's now, or the same file's that was closed and
// opened anew, is no second registration: the caller knows from which id on the description is the same.
bool Library::is_registered(int fd, dev_t device, ino_t inode, uintptr_t others) const
{
	const auto same = by_fd_.find(fd);
	if (same == by_fd_.end() || same->second <= others)
		return false;
	const FileHandle &handle = *handles_.at(same->second);
	return handle.dev == device && handle.ino == inode;
}

// Not small numbers: programs take those for error codes.
uintptr_t Library::new_id()
{
	next_id_ += 16;
	return last_id();
}

void Library::deregister_file(CUfileHandle_t fh)
{
	std::shared_ptr<FileHandle> gone; // its files close without the lock
	{
		const std::lock_guard tables(table_lock_);
		const auto found = handles_.find(number(fh));
		if (found != handles_.end()) {
			gone = std::move(found->second);
			const auto same = by_fd_.find(gone->fd);
			if (same != by_fd_.end() && same->second == found->first)
				by_fd_.erase(same);
			handles_.erase(found);
		}
	}
	// A stream may have it yet, and who lets go of it there must not call CUDA.
	if (gone) {
		const std::lock_guard guard(gone->lock);
		gone->peer_gpus.clear();
	}
	stats_.count(&CUfileStatsLevel1_t::hdl_deregister_ops, gone != nullptr);
}

std::shared_ptr<RegisteredMemory> Library::registration_at(const void *address, uint64_t size) const
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

template <class See> void Library::each_near(uintptr_t address, uint64_t size, const See &see) const
{
	// FrameTable reach beyond what was registered, on both sides.
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

bool Library::is_replaced(const void *base, const RegisteredBuffer &buffer)
{
	Allocation now;
	if (!has_cuda() || deps_.cuda.allocation(base, now) || !now.id || now.id == buffer.id)
		return false;
	// The host's memory may have been made known to CUDA since.
	Memory memory;
	return buffer.id || (!deps_.cuda.look_up(base, memory) && memory.kind == Memory::Kind::device);
}

void Library::drop_replaced(const void *base, uint64_t size)
{
	std::vector<std::pair<uintptr_t, RegisteredBuffer>> near;
	{
		const std::shared_lock tables(table_lock_);
		each_near(number(base), size, [&](const auto &entry) {
			near.push_back(entry);
			return false;
		});
	}
	for (const auto &[at, buffer] : near) {
		const void *const start = reinterpret_cast<const void *>(at);
		const bool same = start == base;
		// One piece of several may have been exchanged.
		if (!is_replaced(start, buffer) || (!same && deps_.cuda.is_mapped(start)))
			continue;
		const std::lock_guard tables(table_lock_);
		const auto found = buffers_.find(at);
		if (found == buffers_.end() || found->second.id != buffer.id)
			continue;
		// near has what it had.
		if (same)
			buffers_.erase(found);
		else
			found->second.registration.reset();
	}
}

// So that it goes directly. Memory that the kernel does not take is registered all the same, and bounces; after a shortage
// until an I/O can extend it.
void Library::pin_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer)
{
	const int rc = RegisteredMemory::create(frame_table_, deps_.cuda, base, size, buffer.registration,
						buffer.reason, buffer.memory.device);
	buffer.over_quota = rc > 0;
	if (rc < 0 && !buffer.reason)
		log_.say(Log::Level::info,
			 "registered memory stays CUDA's alone: " + std::generic_category().message(-rc));
}

// Memory of a GPU that CUDA has nothing to do with. If the module does not take it nobody moves bytes there.
CUfileOpError Library::import_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer)
{
	{
		const std::shared_lock tables(table_lock_);
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
	log_.say(Log::Level::error, std::string("this GPU's memory cannot be registered: ") +
					    (rc > 0        ? "max_device_pinned_mem_size_kb has no room for it" :
					     buffer.reason ? deps_.peerdma.reason_text(buffer.reason) :
							     std::generic_category().message(-rc)));
	return rc == -ENOMEM ? CU_FILE_NOMEM_ERROR : CU_FILE_GPU_MEMORY_PINNING_FAILED;
}

CUfileError_t Library::register_buffer(const void *base, size_t size, int)
{
	const auto refuse = [&](CUfileOpError rc, int cuda = 0) {
		stats_.buffer(-1, true, false, size, nullptr);
		return error(rc, static_cast<CUresult>(cuda));
	};
	if (!base || !size)
		return refuse(CU_FILE_INVALID_VALUE);
	const CUfileOpError opened = open_for_use();
	if (opened)
		return refuse(opened);
	retry_load();
	const Use use(*this);
	if (!use)
		return refuse(CU_FILE_DRIVER_CLOSING);
	RegisteredBuffer buffer = {size, {}, 0, nullptr, PEERDMA_REASON_NONE, false, 0};
	if (has_cuda()) {
		const int rc = deps_.cuda.look_up(base, buffer.memory);
		if (rc)
			return refuse(CU_FILE_CUDA_DRIVER_ERROR, rc);
	}
	// What lies in several allocations is one range to who has mapped them side by side, or will.
	const auto there = [&](const void *address, Allocation &in) {
		return !deps_.cuda.allocation(address, in) && in.id;
	};
	const bool wraps = size > INT64_MAX;
	Allocation first, last;
	if (buffer.memory.kind == Memory::Kind::device && there(base, first) &&
	    size > first.start + first.size - number(base) &&
	    (wraps || (!there(static_cast<const char *>(base) + size - 1, last) && !deps_.cuda.is_mapped(base))))
		return refuse(CU_FILE_CUDA_POINTER_RANGE_ERROR);
	if (wraps)
		return refuse(CU_FILE_INVALID_VALUE);
	if (has_cuda() && (first.id || there(base, first)))
		buffer.id = first.id;
	drop_replaced(base, size);
	BufferLocation location;
	buffer.look_up_error = deps_.peerdma.look_up(base, location);
	if (buffer.look_up_error && buffer.memory.kind == Memory::Kind::device &&
	    !use->config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE))
		pin_buffer(base, size, buffer);
	if (buffer.look_up_error == -ENOENT && buffer.memory.kind == Memory::Kind::host &&
	    !use->config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE)) {
		const CUfileOpError rc = import_buffer(base, size, buffer);
		if (rc)
			return refuse(rc);
	}
	{
		const std::lock_guard tables(table_lock_);
		if (!buffers_.emplace(number(base), buffer).second)
			return refuse(CU_FILE_MEMORY_ALREADY_REGISTERED);
		longest_ = std::max(longest_, size);
	}
	stats_.buffer(buffer.memory.device, true, true, size, &deps_.cuda);
	return success();
}

CUfileError_t Library::deregister_buffer(const void *base)
{
	if (!base)
		return error(CU_FILE_INVALID_VALUE);
	RegisteredBuffer gone;
	{
		const std::lock_guard tables(table_lock_);
		const auto found = buffers_.find(number(base));
		if (found == buffers_.end())
			return error(CU_FILE_MEMORY_NOT_REGISTERED);
		gone = found->second;
		buffers_.erase(found);
	}
	stats_.buffer(gone.memory.device, false, true, gone.size, &deps_.cuda);
	return success();
}

Library::StreamKey Library::key_of(CUstream stream, uint64_t id)
{
	constexpr uintptr_t legacy = 1, per_thread = 2; // CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
	if (number(stream) > per_thread)
		return {stream, 0};
	return {number(stream) == legacy ? nullptr : stream, id};
}

int Library::id_of(CUstream stream, uint64_t &id)
{
	id = 0;
	return has_cuda() ? deps_.cuda.stream_id(stream, id) : CUDA_ERROR_NOT_INITIALIZED;
}

int Library::flags_of(CUstream stream, unsigned &flags)
{
	flags = 0;
	{
		// Most streams are not registered: then the driver is not asked.
		const std::shared_lock tables(table_lock_);
		auto at = streams_.lower_bound(key_of(stream, 0));
		while (at != streams_.end() && at->first.first == key_of(stream, 0).first && !at->second.flags)
			++at;
		if (at == streams_.end() || at->first.first != key_of(stream, 0).first)
			return 0;
	}
	uint64_t id;
	const int rc = id_of(stream, id);
	const std::shared_lock tables(table_lock_);
	const auto found = streams_.find(key_of(stream, id));
	if (!rc && found != streams_.end() && found->second.id == id)
		flags = found->second.flags;
	return rc;
}

CUfileError_t Library::register_stream(CUstream stream, unsigned flags)
{
	// The original takes any flags.
	flags &= CU_FILE_STREAM_FIXED_BUF_OFFSET | CU_FILE_STREAM_FIXED_FILE_OFFSET | CU_FILE_STREAM_FIXED_FILE_SIZE |
		 CU_FILE_STREAM_PAGE_ALIGNED_INPUTS;
	retry_load();
	uint64_t id;
	const int rc = id_of(stream, id);
	// Without its id a stream cannot be told from a later one of the same name, which must not inherit its flags.
	if (rc && flags)
		return has_cuda() ? error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc)) :
				    error(CU_FILE_ASYNC_NOT_SUPPORTED);
	const std::lock_guard tables(table_lock_);
	const auto [known, added] = streams_.emplace(key_of(stream, id), RegisteredStream{id, flags});
	if (!added && known->second.id == id)
		return error(CU_FILE_INVALID_VALUE);
	known->second = {id, flags};
	return success();
}

CUfileError_t Library::deregister_stream(CUstream stream)
{
	// The driver is not asked about a handle: the program may have destroyed the stream.
	const bool is_handle = key_of(stream, 1).second == 0;
	uint64_t id = 0;
	if (!is_handle)
		static_cast<void>(id_of(stream, id));
	const std::lock_guard tables(table_lock_);
	return error(streams_.erase(key_of(stream, id)) ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

} // namespace cufile
