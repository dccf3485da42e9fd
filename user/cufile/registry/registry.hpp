// SPDX-License-Identifier: MIT
//
// What programs register: files and memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "cufile/config/config.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/file_handle.hpp"
#include "cufile/registry/frame_table.hpp"
#include "cufile/registry/id_source.hpp"
#include "cufile/registry/pin_quota.hpp"
#include "cufile/registry/registered_memory.hpp"

namespace cufile
{

// Registered memory.
struct RegisteredBuffer {
	uint64_t size;
	Memory memory;
	int look_up_error; // of PeerdmaClient::look_up(); 0: it is in a buffer of libpeerdma's
	std::shared_ptr<RegisteredMemory> registration;
	uint32_t reason; // enum peerdma_reason: why the kernel did not register it
	bool over_quota; // max_device_pinned_mem_size_kb had no room for it
	uint64_t id;     // the CUDA driver's number of the allocation that it begins in; 0: there was none
};

class Registry
{
public:
	Registry(const Dependencies &deps, Log &log, IdSource &ids) : deps_(deps), log_(log), ids_(ids) {}
	Registry(const Registry &) = delete;
	Registry &operator=(const Registry &) = delete;

	CUfileError_t register_file(const Config &config, CUfileHandle_t *fh, const CUfileDescr_t *descr);
	// False: it was not registered.
	bool deregister_file(CUfileHandle_t fh);
	// nullptr: it is not registered.
	std::shared_ptr<FileHandle> find_file(CUfileHandle_t fh);

	// device: of the memory, -1: the host's.
	CUfileError_t register_buffer(const Config &config, const void *base, size_t size, int &device);
	CUfileError_t deregister_buffer(const void *base, RegisteredBuffer &gone);
	// The buffer with this base, and what the kernel has of it; else what the kernel has of the range, whatever base it was
	// registered by. False: no buffer has this base.
	bool find_memory(const void *base, const void *address, uint64_t size, RegisteredBuffer &buffer,
			 std::shared_ptr<RegisteredMemory> &registration);
	// Whether registered memory was freed, and other memory of CUDA's is at its address.
	bool is_replaced(const void *base, const RegisteredBuffer &buffer);
	void set_pin_limit(uint64_t bytes) { pin_quota_.set_limit(bytes); }

	// Deregisters all.
	void clear();

private:
	CUfileOpError open_system_file(const Config &config, int fd, std::shared_ptr<FileHandle> &out,
				       uintptr_t &others);
	// With lock_.
	bool is_registered(int fd, dev_t device, ino_t inode, uintptr_t others) const;
	// With lock_. The registration that holds a range, whatever base it was registered by. Of foreign memory its first byte
	// decides: the range can be in nothing else. Else the one that the range was registered with, but not mapped then.
	std::shared_ptr<RegisteredMemory> registration_at(const void *address, uint64_t size) const;
	// With lock_. Calls see(entry) with each registration that may hold some of a range, the last first, until it returns
	// true.
	template <class See> void each_near(uintptr_t address, uint64_t size, const See &see) const;
	// Ends the registrations in a range whose memory was replaced; those of another base the program may still deregister.
	void drop_replaced(const void *base, uint64_t size);
	void pin_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer);
	CUfileOpError import_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer);

	const Dependencies deps_;
	Log &log_;
	IdSource &ids_;
	PinQuota pin_quota_;
	FrameTable frame_table_{deps_.peerdma, &pin_quota_};
	std::shared_mutex lock_; // protects all below
	std::unordered_map<uintptr_t, std::shared_ptr<FileHandle>> files_;
	std::unordered_map<int, uintptr_t> by_fd_;
	std::map<uintptr_t, RegisteredBuffer> buffers_; // by base
	uint64_t longest_ = 0;                          // that was ever in there
};

} // namespace cufile
