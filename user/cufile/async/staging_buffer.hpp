// SPDX-License-Identifier: MIT
//
// A staging buffer is pinned host memory for the I/O of a stream; the stream itself copies from it or to it. A copy by
// another stream could deadlock: cuMemFree() of another thread holds the driver's lock until this stream is idle, and
// every copy call takes that lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// Size and maximum number: one for each stream with I/O in flight, and for each I/O of a graph.
inline constexpr uint64_t staging_bytes = 4 << 20;
inline constexpr size_t max_staging_buffers = 128;

class StagingBuffer
{
public:
	// The copy kernel reads it.
	CopyDescriptor &descriptor() const { return *reinterpret_cast<CopyDescriptor *>(memory_); }
	// The staging address for device memory, at the same offset within 16 bytes.
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
	Context context_ = nullptr; // of the allocation, which is freed with it
	uint64_t id_ = 0;           // of the allocation
	uint64_t stream_ = 0;       // current or last user
	std::atomic<unsigned> ios_{0};
};

class StagingBufferPool
{
public:
	explicit StagingBufferPool(const Dependencies &deps) : deps_(deps) {}
	StagingBufferPool(const StagingBufferPool &) = delete;
	StagingBufferPool &operator=(const StagingBufferPool &) = delete;

	// Returns the stream's buffer for one more I/O; stream 0: a buffer of its own. Call in its context. nullptr: no
	// memory.
	StagingBuffer *acquire(Context context, uint64_t stream);
	// Calls nothing of CUDA.
	static void release(StagingBuffer &staging) { staging.ios_.fetch_sub(1, std::memory_order_release); }
	// Frees unused buffers.
	void trim();

private:
	// Call with lock_ held.
	bool is_valid(const StagingBuffer &staging);
	StagingBuffer *idle_in(Context context);
	StagingBuffer *create(Context context);

	const Dependencies deps_;
	std::mutex lock_; // protects staging_buffers_ and their streams
	std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_;
};

} // namespace cufile
