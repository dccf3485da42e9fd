// SPDX-License-Identifier: MIT
//
// A staging buffer is pinned host memory for the bytes of a stream's I/O, which the stream itself copies from there. A copy
// by another stream could wait for ever: a thread that frees memory holds the driver's lock until this stream is idle, and
// every call that copies takes that lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// Its size, and how many there are at most: one for each stream with I/O in flight, and for each I/O of a graph.
inline constexpr uint64_t staging_bytes = 4 << 20;
inline constexpr size_t max_staging_buffers = 128;

class StagingBuffer
{
public:
	// What the copy kernel reads.
	CopyDescriptor &descriptor() const { return *reinterpret_cast<CopyDescriptor *>(memory_); }
	// Where bytes for an address are staged: both have the same offset within 16 bytes.
	char *address_for(const char *address) const
	{
		return memory_ + head + reinterpret_cast<uintptr_t>(address) % 16;
	}

	// Held while one I/O enqueues, so that the entries of two do not mix.
	std::mutex submission_lock;

private:
	friend class StagingBufferPool;
	static constexpr uint64_t head = 4096, tail = 4096; // whole pages

	char *memory_ = nullptr;
	Context context_ = nullptr; // that it was allocated in, and is freed with
	uint64_t id_ = 0;           // of the allocation
	uint64_t stream_ = 0;       // that uses it, or used it last
	std::atomic<unsigned> ios_{0};
};

class StagingBufferPool
{
public:
	explicit StagingBufferPool(const Dependencies &deps) : deps_(deps) {}
	StagingBufferPool(const StagingBufferPool &) = delete;
	StagingBufferPool &operator=(const StagingBufferPool &) = delete;

	// The buffer of a stream, for one more I/O; stream 0: one that is not shared. In its context. nullptr: no memory.
	StagingBuffer *acquire(Context context, uint64_t stream);
	// Calls nothing of CUDA.
	static void release(StagingBuffer &staging) { staging.ios_.fetch_sub(1, std::memory_order_release); }
	// Frees those that no I/O uses.
	void trim();

private:
	// With lock_.
	bool is_valid(const StagingBuffer &staging);
	StagingBuffer *idle_in(Context context);
	StagingBuffer *create(Context context);

	const Dependencies deps_;
	std::mutex lock_; // protects staging_buffers_ and their owners
	std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_;
};

} // namespace cufile
