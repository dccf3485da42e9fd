// SPDX-License-Identifier: MIT
//
// A staging is pinned host memory where the bytes of a stream's I/O lie until the stream itself carries them on. A copy that we
// made, by another stream, could wait for ever: who frees memory holds the driver's lock until this stream has come to
// its end, and every call that copies wants that lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// What goes through it at a time, and how many there are at most: one for each stream that has I/O under way, and for each I/O
// of a graph.
inline constexpr uint64_t staging_bytes = 4 << 20;
inline constexpr size_t max_staging_buffers = 128;

class StagingBuffer
{
public:
	// What the stream finds when it gets there.
	CopyDescriptor &descriptor() const { return *reinterpret_cast<CopyDescriptor *>(memory_); }
	// Where bytes for an address lie, so that both are at the same location within 16 bytes.
	char *address_for(const char *address) const
	{
		return memory_ + head + reinterpret_cast<uintptr_t>(address) % 16;
	}

	// What one I/O puts into the stream is not to be mixed with another's.
	std::mutex submission_lock;

private:
	friend class StagingBufferPool;
	static constexpr uint64_t head = 4096, tail = 4096; // whole pages

	char *memory_ = nullptr;
	Context context_ = nullptr; // that it was made in, and goes with
	uint64_t id_ = 0;           // of the allocation
	uint64_t stream_ = 0;       // who has it, or had it last
	std::atomic<unsigned> ios_{0};
};

class StagingBufferPool
{
public:
	explicit StagingBufferPool(const Dependencies &deps) : deps_(deps) {}
	StagingBufferPool(const StagingBufferPool &) = delete;
	StagingBufferPool &operator=(const StagingBufferPool &) = delete;

	// That of a stream, for one I/O more; 0: of nobody else. In its context. nullptr: there is no memory.
	StagingBuffer *acquire(Context context, uint64_t stream);
	// Calls nothing of CUDA.
	static void release(StagingBuffer &staging) { staging.ios_.fetch_sub(1, std::memory_order_release); }
	// Gives back the memory of those that nobody has.
	void trim();

private:
	// With lock_.
	bool is_valid(const StagingBuffer &staging);
	StagingBuffer *idle_in(Context context);
	StagingBuffer *create(Context context);

	const Dependencies deps_;
	std::mutex lock_; // protects staging_buffers_ and whose they are
	std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_;
};

} // namespace cufile
