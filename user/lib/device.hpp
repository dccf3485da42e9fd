// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "env.hpp"
#include "peerdma.h"
#include "process.hpp"
#include "rules.hpp"

namespace peerdma_impl
{

inline constexpr const char *device_node = "/dev/peerdma";

// The rules, and what of this process they are about.
struct Policy {
	Rules rules;
	std::string cgroup;

	// 0, or -EBADMSG: the rules cannot be read, or have a fault.
	static int load(Env &env, Policy &out);
};

// One open /dev/peerdma. Handles share it, so that it closes with the last of them and the order in
// which a program closes its handles does not matter. Nothing in it changes after open: no lock.
//
// It is of the process that opened it. A child after fork(2) shares the open file, and what it asks of that it does to
// its parent: its calls are refused, and its handles go without a word to the kernel.
class Device
{
public:
	static int open(Env &env, bool direct_only, std::shared_ptr<Device> &out);
	Device(Env &env, int fd, bool direct_only, Policy policy)
		: env_(env), fd_(fd), direct_only_(direct_only), policy_(std::move(policy))
	{
	}
	~Device() { env_.close(fd_); }
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	Env &env() const { return env_; }
	int fd() const { return fd_; }
	bool direct_only() const { return direct_only_; }
	const Policy &policy() const { return policy_; }
	bool is_inherited() const { return process_ != this_process(); }

	// Every struct of the ABI starts with its size, which is set here and nowhere else.
	template <class Arg> int ioctl(unsigned long request, Arg &arg) const
	{
		arg.size = sizeof(arg);
		return env_.ioctl(fd_, request, &arg);
	}

private:
	Env &env_;
	const int fd_;
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

struct peerdma_file {
	std::shared_ptr<peerdma_impl::Device> device;
	int fd;
	uint32_t id = 0; // of PEERDMA_FILE_ADD, 0 until a ring wants it
	int cached = -1; // the file again, without O_DIRECT, if fd has it and a fallback wants it
	// By provider what decided, nullptr if nothing did; for permit().
	std::map<uint32_t, const peerdma_impl::Rule *> rules = {};
	std::mutex lock = {}; // protects id, cached and rules
};

namespace peerdma_impl
{

// The buffer's proxy address, mapped by the first who asks.
int map_buffer(struct peerdma_buf &buf, void *&addr);

// Describe the provider with the smallest id >= from.
int provider_next(const Device &device, uint32_t from, struct peerdma_provider_info &info);

} // namespace peerdma_impl
