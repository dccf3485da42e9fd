// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/syscalls.hpp"

namespace cli
{

// Memory of a vendor's first device, allocated by the vendor's own library. The library is loaded on demand and stays
// loaded. CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ZE_AFFINITY_MASK select the first device. All calls throw
// Failure.
class DeviceMemory
{
public:
	DeviceMemory() = default;
	DeviceMemory(const DeviceMemory &) = delete;
	DeviceMemory &operator=(const DeviceMemory &) = delete;
	virtual ~DeviceMemory() = default;

	uint64_t address() const { return address_; }
	virtual void *ze_context() const { return nullptr; } // Level Zero only
	virtual const char *library() const = 0;

	// Synchronous copies by the vendor's own call, from the start of the memory.
	virtual void put(const std::string &bytes) = 0;
	virtual void get(std::string &bytes) = 0; // fills bytes to its size

protected:
	uint64_t address_ = 0;
};

// vendor: "cuda", "hip" or "ze".
std::unique_ptr<DeviceMemory> allocate_memory(peerdma_impl::Syscalls &sys, const std::string &vendor, uint64_t len);

} // namespace cli
