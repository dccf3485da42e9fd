// SPDX-License-Identifier: MIT
//
// Data that a core has just written is in its cache, from which a GPU reads at half the bus rate or less. If the bus is
// the bottleneck, the kernel reads into a small buffer that stays in the cache, and non-temporal stores move the bytes
// to pinned memory. This costs the core more and the bus less.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "cufile/registry/file.hpp"

namespace cufile
{

// For one thread at a time.
class NtReader
{
public:
	// How much of a read is copied past the caches.
	enum class Share { none, half, all };

	// As file.read(). Short reads, and files whose bytes no core copies, are read straight.
	int64_t read(File &file, char *to, uint64_t size, uint64_t offset, Share share);

private:
	static constexpr uint64_t bytes = 128 * 1024;
	struct Free {
		void operator()(char *memory) const { std::free(memory); }
	};
	std::unique_ptr<char, Free> memory_; // allocated on first use
};

} // namespace cufile
