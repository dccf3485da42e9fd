// SPDX-License-Identifier: MIT
//
// Memory of an emulated GPU with its own driver: a test fixture shared by the stand-ins for several vendors' libraries.
// Each of them uses a part of the BAR, returns addresses that the CPU cannot access, and accesses the bytes through the
// BAR. tests/kmod/nvstand.c uses the same addresses; tests/kmod/expstand.c exports dma-bufs.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace softgpu
{

// The address of the first byte of the BAR in each process, and the number of bytes to allocate from.
constexpr size_t stand_bytes = size_t{16} << 20;
inline char *const stand_base = reinterpret_cast<char *>(0x7f0000000000);

class Stand
{
public:
	// Bytes [from, from + size) of BAR 2 of that PCI function.
	Stand(const std::string &address, size_t from, size_t size);
	// The function that SOFTGPU_STAND names, never destroyed; nullptr if the variable is not set.
	static Stand *of_environment(size_t from, size_t size)
	{
		const char *const address = std::getenv("SOFTGPU_STAND");
		return address ? new Stand(address, from, size) : nullptr;
	}
	Stand(const Stand &) = delete;
	Stand &operator=(const Stand &) = delete;

	// Returns the address, or nullptr if there is no room. Like a driver, places small allocations in shared
	// frames.
	char *take(size_t size);
	// Frees an allocation. False if it does not exist.
	bool give(const char *seen);
	// Finds the allocation that contains an address. False if no allocation does.
	bool find(const void *address, char *&start, size_t &size);
	// The address for the CPU.
	char *bytes(const char *seen) const { return bar_ + (seen - stand_base); }
	bool has(const char *bytes) const { return bytes >= bar_ && bytes < bar_ + stand_bytes; }
	// A dma-buf of these bytes, by their CPU address, or -1.
	int dma_buf(const char *bytes, size_t size) const;

private:
	const size_t from_, size_;
	char *bar_;
	std::mutex lock_;                // protects all below
	std::map<size_t, size_t> taken_; // by offset in the BAR
};

// A C entry point: an exception becomes the vendor's error.
template <class Result, class Body> Result guarded(Result failed, Body &&body) noexcept
{
	try {
		return body();
	} catch (...) {
		return failed;
	}
}

} // namespace softgpu
