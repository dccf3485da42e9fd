// SPDX-License-Identifier: MIT
//
// Memory of an emulated GPU that has a driver of its own: a test fixture that the stand-ins for several vendors' libraries
// share. Each has a part of the BAR for itself, gives out addresses that nobody can touch, and sees the bytes in the BAR.
// tests/kmod/nvstand.c knows the same addresses; tests/kmod/expstand.c makes dma-bufs.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace softgpu
{

// The first byte of the BAR is here, for each process, and this much is given out.
constexpr size_t stand_bytes = size_t{16} << 20;
inline char *const stand_base = reinterpret_cast<char *>(0x7f0000000000);

class Stand
{
public:
	// Bytes [from, from + size) of BAR 2 of that PCI function.
	Stand(const std::string &address, size_t from, size_t size);
	// Of the function that SOFTGPU_STAND names, never to be destroyed; nullptr if the variable is not set.
	static Stand *of_environment(size_t from, size_t size)
	{
		const char *const address = std::getenv("SOFTGPU_STAND");
		return address ? new Stand(address, from, size) : nullptr;
	}
	Stand(const Stand &) = delete;
	Stand &operator=(const Stand &) = delete;

	// Returns the address, or nullptr: there is no room. As a driver does: what is small shares frames with its neighbours.
	char *take(size_t size);
	// Of what was taken: false, it was not.
	bool give(const char *seen);
	// The allocation that an address is in. False: in none.
	bool find(const void *address, char *&start, size_t &size);
	// Where the CPU gets at its bytes.
	char *bytes(const char *seen) const { return bar_ + (seen - stand_base); }
	bool has(const char *bytes) const { return bytes >= bar_ && bytes < bar_ + stand_bytes; }
	// A dma-buf of what the CPU gets at there, or -1.
	int dma_buf(const char *bytes, size_t size) const;

private:
	const size_t from_, size_;
	char *bar_;
	std::mutex lock_;                // protects what follows
	std::map<size_t, size_t> taken_; // by where it begins in the BAR
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
