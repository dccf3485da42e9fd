// SPDX-License-Identifier: MIT
//
// What a core has just written lies in its cache, and from there a GPU reads it at half the rate of the bus or less. Where
// that is what many reads wait for, the kernel copies into a little memory that stays in the cache, and the bytes are
// stored from there in pinned memory past all caches: more work for the core, and less for the bus.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "cufile/registry/file.hpp"

namespace cufile
{

// Of one thread at a time.
class NtReader
{
public:
	// How much of what is read is copied past the caches.
	enum class Share { none, half, all };

	// What file.read() does. Nothing goes by it of a file whose bytes no core copies, or if it is short.
	int64_t read(File &file, char *to, uint64_t size, uint64_t offset, Share share);

private:
	static constexpr uint64_t bytes = 128 * 1024;
	struct Free {
		void operator()(char *memory) const { std::free(memory); }
	};
	std::unique_ptr<char, Free> memory_; // when it is first wanted
};

// Non-temporal memcpy(). The stores are fenced, so both a device and another thread may read the result.
void nt_copy(char *to, const char *from, uint64_t size);

} // namespace cufile
