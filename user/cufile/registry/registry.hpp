// SPDX-License-Identifier: MIT
//
// Files and memory that programs have registered.
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

struct RegisteredBuffer {
	uint64_t size;
	Memory memory;
	int look_up_error; // of PeerdmaClient::look_up(); 0: it is in a buffer of libpeerdma's
	std::shared_ptr<RegisteredMemory> registration;
	uint32_t reason; // enum peerdma_reason: why the kernel did not register it
	bool over_quota; // max_device_pinned_mem_size_kb had no room for it
	uint64_t id;     // the CUDA driver's id of the first allocation; 0: none
};

class Registry
{
public:
	Registry(const Dependencies &deps, Log &log, IdSource &ids) : deps_(deps), log_(log), ids_(ids) {}
	Registry(const Registry &) = delete;
	Registry &operator=(const Registry &) = delete;

	CUfileError_t register_file(const Config &config, CUfileHandle_t *fh, const CUfileDescr_t *descr);
	// False if it was not registered.
	bool deregister_file(CUfileHandle_t fh);
	// nullptr if it is not registered.
	std::shared_ptr<FileHandle> find_file(CUfileHandle_t fh);

	// device: of the memory; -1: host memory.
	CUfileError_t register_buffer(const Config &config, const void *base, size_t size, int &device);
	CUfileError_t deregister_buffer(const void *base, RegisteredBuffer &gone);
	// Finds the buffer with this base and its registration. If there is no such buffer, returns false and the
	// registration that covers the range, whatever its base.
	bool find_memory(const void *base, const void *address, uint64_t size, RegisteredBuffer &buffer,
			 std::shared_ptr<RegisteredMemory> &registration);
	// True if registered memory was freed and its address now has other CUDA memory.
	bool is_replaced(const void *base, const RegisteredBuffer &buffer);
	void set_pin_limit(uint64_t bytes) { pin_quota_.set_limit(bytes); }

	void clear();

private:
	CUfileOpError open_system_file(const Config &config, int fd, std::shared_ptr<FileHandle> &out,
				       uintptr_t &others);
	// Call with lock_ held.
	bool is_registered(int fd, dev_t device, ino_t inode, uintptr_t others) const;
	// Call with lock_ held. The registration that covers a range, whatever its base. For foreign memory the first
	// byte decides, as no other registration can hold the rest. If none covers it, one that was registered with the
	// range before the range was mapped.
	std::shared_ptr<RegisteredMemory> registration_at(const void *address, uint64_t size) const;
	// Call with lock_ held. Calls see(entry) for each registration that may touch a range, last first, until it
	// returns true.
	template <class See> void each_near(uintptr_t address, uint64_t size, const See &see) const;
	// Drops registrations in a range whose memory was replaced. The program may still deregister those with another
	// base.
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
	uint64_t longest_ = 0;                          // the largest size ever registered
};

} // namespace cufile
