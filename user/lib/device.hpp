// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/descriptor.hpp"
#include "common/process.hpp"
#include "common/rules.hpp"
#include "common/syscalls.hpp"
#include "peerdma.h"

namespace peerdma_impl
{

// The rules, and the properties of this process that they compare.
struct Policy {
	Rules rules;
	std::string cgroup;

	// 0, or -EBADMSG: the rules cannot be read or have a fault.
	static int load(Syscalls &sys, Policy &out);
};

// One open /dev/peerdma. The handles made from it share it, so a program may close them in any order. Nothing in it
// changes after open except the descriptor, which is atomic: no lock.
//
// Ids of files and buffers start at 1 on each open file. If the program closes our descriptor and /dev/peerdma is
// opened again under that number, the ids would name objects of the other handle. The older Device then loses its
// descriptor (fd() is -1).
//
// A Device belongs to the process that opened it. A child after fork(2) shares the open file, and its requests would
// act on the parent's objects. Its calls are therefore refused, and it frees its handles without an ioctl.
class Device
{
public:
	static int open(Syscalls &sys, bool direct_only, std::shared_ptr<Device> &out);
	// Takes ownership of the descriptor of that node.
	Device(Syscalls &sys, int fd, std::string node, bool direct_only, Policy policy);
	~Device();
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	Syscalls &sys() const { return sys_; }
	int fd() const { return fd_.load(std::memory_order_relaxed); } // -1: lost
	// The descriptor still refers to /dev/peerdma.
	bool is_there() const { return identity_.is_there(sys_) && fd() >= 0; }
	const std::string &node() const { return node_; } // the path that was opened
	bool direct_only() const { return direct_only_; }
	const Policy &policy() const { return policy_; }
	bool is_inherited() const { return process_ != this_process(); }

	// Sets the size member, which every struct of the ABI begins with.
	template <class Arg> int ioctl(unsigned long request, Arg &arg) const
	{
		arg.size = sizeof(arg);
		const int rc = sys_.ioctl(fd(), request, &arg);
		// ENOTTY means that the module is too old only if the descriptor is still the device's.
		return rc == -ENOTTY && !is_there() ? -EBADF : rc;
	}

private:
	Syscalls &sys_;
	Descriptor identity_;
	std::atomic<int> fd_;
	const std::string node_;
	const bool direct_only_; // no fallback
	const Policy policy_;
	const uint64_t process_ = this_process();
};

// First check of each call: 0, -EINVAL without a handle, or -ECHILD with a handle of the parent.
template <class Handle> int check_handle(const Handle *handle)
{
	if (!handle)
		return -EINVAL;
	return handle->device->is_inherited() ? -ECHILD : 0;
}

} // namespace peerdma_impl

struct peerdma_device {
	std::shared_ptr<peerdma_impl::Device> device;
};

struct peerdma_buf {
	std::shared_ptr<peerdma_impl::Device> device;
	uint32_t id;
	uint32_t provider_id;
	uint64_t len;
	uint64_t bar_offset;
	uint64_t mmap_offset; // 0 if the module cannot map
	std::mutex lock;      // protects addr, which several threads may map at once
	void *addr;           // NULL until it is mapped
};

// Direct I/O names the file by its id, which no use of descriptors by the program can change. All other calls use a
// descriptor, after checking that it still refers to the file.
struct peerdma_file {
	explicit peerdma_file(std::shared_ptr<peerdma_impl::Device> on) : device(std::move(on)) {}
	~peerdma_file();
	peerdma_file(const peerdma_file &) = delete;
	peerdma_file &operator=(const peerdma_file &) = delete;

	std::shared_ptr<peerdma_impl::Device> device;
	// Immutable once the file is open.
	peerdma_impl::Descriptor own;
	uint32_t id = 0;     // of PEERDMA_FILE_ADD; 0: a directory or a file without offsets
	int refused = 0;     // why there is no id, -errno,
	uint32_t reason = 0; // and enum peerdma_reason

	std::mutex lock;                 // protects cached and rules
	peerdma_impl::Descriptor cached; // the file without O_DIRECT, if own has it and a fallback needed it
	// For each provider the deciding rule, nullptr if no rule decided; for permit().
	std::map<uint32_t, const peerdma_impl::Rule *> rules;
};

namespace peerdma_impl
{

// Maps bytes of a buffer at its device's offset; -EBADF: the program has closed the descriptor.
int map_device(const Device &device, uint64_t offset, uint64_t len, void **addr);

// The buffer's proxy address; the first call maps it.
int map_buffer(struct peerdma_buf &buf, void *&addr);

// Describe the provider with the smallest id >= from.
int provider_next(const Device &device, uint32_t from, struct peerdma_provider_info &info);

} // namespace peerdma_impl
