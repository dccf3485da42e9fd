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

// The rules, and what of this process they are about.
struct Policy {
	Rules rules;
	std::string cgroup;

	// 0, or -EBADMSG: the rules cannot be read, or have a fault.
	static int load(Syscalls &sys, Policy &out);
};

// One open /dev/peerdma. Handles share it, so that it closes with the last of them and the order in
// which a program closes its handles does not matter. Nothing in it changes after open but one: no lock.
//
// Ids of files and buffers begin with 1 on each open file. If the program closes our descriptor, and /dev/peerdma is opened
// again by that number, these ids would name another handle's objects: the older Device then loses its descriptor.
//
// It is of the process that opened it. A child after fork(2) shares the open file, and what it asks of that it does to
// its parent: its calls are refused, and its handles go without a word to the kernel.
class Device
{
public:
	static int open(Syscalls &sys, bool direct_only, std::shared_ptr<Device> &out);
	// Takes the descriptor, of that node.
	Device(Syscalls &sys, int fd, std::string node, bool direct_only, Policy policy);
	~Device();
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	Syscalls &sys() const { return sys_; }
	int fd() const { return fd_.load(std::memory_order_relaxed); } // -1: lost
	// The descriptor is still of /dev/peerdma.
	bool is_there() const { return identity_.is_there(sys_) && fd() >= 0; }
	const std::string &node() const { return node_; } // the path that was opened
	bool direct_only() const { return direct_only_; }
	const Policy &policy() const { return policy_; }
	bool is_inherited() const { return process_ != this_process(); }

	// Every struct of the ABI starts with its size, which is set here and nowhere else.
	template <class Arg> int ioctl(unsigned long request, Arg &arg) const
	{
		arg.size = sizeof(arg);
		const int rc = sys_.ioctl(fd(), request, &arg);
		// ENOTTY says that the module is too old only if the number is still the device's.
		return rc == -ENOTTY && !is_there() ? -EBADF : rc;
	}

private:
	Syscalls &sys_;
	Descriptor identity_;
	std::atomic<int> fd_;
	const std::string node_;
	const bool direct_only_; // no falling back
	const Policy policy_;
	const uint64_t process_ = this_process();
};

// What each call begins with: 0, -EINVAL without a handle, or -ECHILD with a parent's.
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
	std::mutex lock;      // protects addr: threads may ask for it at once
	void *addr;           // NULL until somebody asks
};

// Direct I/O names the file by its id, which stays its own whatever the program does with descriptors. All else names it by
// a descriptor, and looks first whether that is still the file's.
struct peerdma_file {
	explicit peerdma_file(std::shared_ptr<peerdma_impl::Device> on) : device(std::move(on)) {}
	~peerdma_file();
	peerdma_file(const peerdma_file &) = delete;
	peerdma_file &operator=(const peerdma_file &) = delete;

	std::shared_ptr<peerdma_impl::Device> device;
	// Immutable once the file is open.
	peerdma_impl::Descriptor own;
	uint32_t id = 0;     // of PEERDMA_FILE_ADD; 0: a directory or a thing without offsets
	int refused = 0;     // why it has none, -errno,
	uint32_t reason = 0; // and enum peerdma_reason

	std::mutex lock;                 // protects cached and rules
	peerdma_impl::Descriptor cached; // the file again, without O_DIRECT, if own has it and a fallback wants it
	// By provider what decided, nullptr if nothing did; for permit().
	std::map<uint32_t, const peerdma_impl::Rule *> rules;
};

namespace peerdma_impl
{

// Maps bytes of a buffer at its device's offset; -EBADF: the program has closed the descriptor.
int map_device(const Device &device, uint64_t offset, uint64_t len, void **addr);

// The buffer's proxy address, mapped by the first who asks.
int map_buffer(struct peerdma_buf &buf, void *&addr);

// Describe the provider with the smallest id >= from.
int provider_next(const Device &device, uint32_t from, struct peerdma_provider_info &info);

} // namespace peerdma_impl
