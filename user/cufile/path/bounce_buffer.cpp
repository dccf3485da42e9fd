// SPDX-License-Identifier: MIT
#include "cufile/path/bounce_buffer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <new>

#include "cufile/platform/cuda_context.hpp"

namespace cufile
{
namespace
{

constexpr size_t max_deferred = 16;

} // namespace

int BounceBuffer::make(Cuda &cuda, Context context, bool large, std::unique_ptr<BounceBuffer> &out)
{
	std::unique_ptr<BounceBuffer> buffer(new (std::nothrow) BounceBuffer(cuda, context, large));
	if (!buffer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	int rc = cuda.create_stream(&buffer->stream_);
	if (rc) {
		buffer->stream_ = nullptr;
		return rc;
	}
	for (Event &event : buffer->events_) {
		rc = cuda.create_event(&event);
		if (rc) {
			event = nullptr;
			return rc;
		}
	}
	void *memory = nullptr;
	buffer->pinned_ = cuda.alloc_pinned(buffer->bytes(), &memory) == 0;
	// The driver stages memory that is not pinned: slower, but not a failure.
	if (!buffer->pinned_)
		memory = std::aligned_alloc(4096, buffer->bytes());
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	buffer->memory_ = static_cast<char *>(memory);
	Allocation made;
	if (buffer->pinned_ && !cuda.allocation(memory, made))
		buffer->id_ = made.id;
	out = std::move(buffer);
	return 0;
}

bool BounceBuffer::is_valid() const
{
	Allocation now;
	return !id_ || (!cuda_.allocation(memory_, now) && now.id == id_);
}

void BounceBuffer::abandon(std::unique_ptr<BounceBuffer> buffer)
{
	buffer->ring.reset();
	for (NtReader &nt_reader : buffer->nt_readers)
		nt_reader = {};
	if (!buffer->pinned_)
		std::free(buffer->memory_);
	static_cast<void>(buffer.release());
}

BounceBuffer::~BounceBuffer()
{
	ring.reset();
	// After a failure copies from and to the slabs may be in flight.
	if (stream_)
		cuda_.wait_stream(stream_);
	for (Event event : events_)
		if (event)
			cuda_.destroy_event(event);
	if (stream_)
		cuda_.destroy_stream(stream_);
	if (pinned_)
		cuda_.free_pinned(memory_);
	else
		std::free(memory_);
}

// A quarter is for small buffers, so that short requests do not wait for long ones.
BounceBufferPool::BounceBufferPool(Cuda &cuda, System &system, uint64_t bytes, unsigned depth)
	: cuda_(cuda), system_(system), numa_(system, cuda),
	  max_{static_cast<unsigned>(std::clamp<uint64_t>(bytes / 4 / small_buffer, 1, max_small_buffers)),
	       static_cast<unsigned>(std::min<uint64_t>((bytes - bytes / 4) / large_buffer, max_large_buffers))},
	  depth_(depth)
{
	for (const bool large : {false, true})
		idle_[large].reserve(max_[large]);
	deferred_.reserve(max_deferred);
}

BounceBufferPool::~BounceBufferPool()
{
	for (auto &idle : idle_)
		for (auto &buffer : idle)
			destroy_now(std::move(buffer));
	destroy_deferred();
}

void BounceBufferPool::destroy(std::unique_ptr<BounceBuffer> buffer)
{
	if (stream_waits) {
		const std::lock_guard guard(lock_);
		if (deferred_.size() < deferred_.capacity()) {
			deferred_.push_back(std::move(buffer));
			return;
		}
	}
	destroy_now(std::move(buffer));
}

void BounceBufferPool::destroy_deferred()
{
	for (;;) {
		std::unique_ptr<BounceBuffer> buffer;
		{
			const std::lock_guard guard(lock_);
			if (deferred_.empty())
				return;
			buffer = std::move(deferred_.back());
			deferred_.pop_back();
		}
		destroy_now(std::move(buffer));
	}
}

void BounceBufferPool::destroy_now(std::unique_ptr<BounceBuffer> buffer)
{
	ScopedCudaContext scope(cuda_);
	if (!buffer->is_valid() || scope.enter(buffer->context()))
		BounceBuffer::abandon(std::move(buffer));
	buffer.reset();
}

bool BounceBufferPool::reserve(Context context, bool large, std::unique_ptr<BounceBuffer> &found,
			       std::unique_ptr<BounceBuffer> &old)
{
	auto &idle = idle_[large];
	for (size_t i = idle.size(); i--;) {
		if (idle[i]->context() != context)
			continue;
		std::unique_ptr<BounceBuffer> buffer = std::move(idle[i]);
		idle.erase(idle.begin() + static_cast<ptrdiff_t>(i));
		if (buffer->is_valid()) {
			found = std::move(buffer);
			return true;
		}
		BounceBuffer::abandon(std::move(buffer));
		created_[large]--;
	}
	if (created_[large] < max_[large]) {
		created_[large]++;
		return true;
	}
	if (idle.empty())
		return false;
	old = std::move(idle.front());
	idle.erase(idle.begin());
	return true;
}

int BounceBufferPool::acquire(Context context, bool large, std::unique_ptr<BounceBuffer> &out)
{
	bool over_limit = false;
	std::unique_ptr<BounceBuffer> old;
	{
		std::unique_lock guard(lock_);
		if (!deferred_.empty() && !stream_waits) {
			old = std::move(deferred_.back());
			deferred_.pop_back();
			guard.unlock();
			destroy_now(std::move(old));
			guard.lock();
		}
		for (;;) {
			if (large && reserve(context, true, out, old))
				break;
			if (reserve(context, false, out, old)) {
				large = false;
				break;
			}
			if (Holder::here()) {
				over_limit = true;
				large = false;
				break;
			}
			released_.wait(guard);
		}
	}
	if (out)
		return 0;
	if (old)
		destroy(std::move(old));
	const NumaAffinity::ScopedNodePreference here(numa_);
	const int rc = BounceBuffer::make(cuda_, context, large, out);
	if (!rc)
		out->over_limit = over_limit;
	if (rc && !over_limit) {
		{
			std::lock_guard guard(lock_);
			created_[large]--;
		}
		released_.notify_one();
	}
	return rc;
}

void BounceBufferPool::release(std::unique_ptr<BounceBuffer> buffer, bool broken)
{
	const bool large = buffer->large();
	// Memory that is not pinned has no id. Drop it: the next buffer may get pinned memory.
	broken = broken || !buffer->id_known();
	if (buffer->over_limit)
		return destroy(std::move(buffer)); // no thread waits for it
	if (broken)
		destroy(std::move(buffer));
	{
		std::lock_guard guard(lock_);
		if (broken)
			created_[large]--;
		else
			idle_[large].push_back(std::move(buffer));
	}
	// Wake all: a waiter for another context or size may destroy this buffer, and a waiter for a small buffer
	// cannot use a large one.
	released_.notify_all();
}

int BounceBufferPool::make_ring(void *memory, uint64_t bytes, std::unique_ptr<Ring> &out)
{
	const int rc = system_.make_ring(depth_, memory, bytes, out);
	if (rc < 0)
		uring_backoff_.failed(system_.now_ns());
	else
		uring_backoff_.worked();
	uring_state_ = rc;
	return rc;
}

int BounceBufferPool::uring_state()
{
	const int known = uring_state_;
	if (!known || known == -ENOSYS || known == -EPERM || (known < 0 && !uring_backoff_.is_due(system_.now_ns())))
		return known;
	std::unique_ptr<Ring> trial;
	return make_ring(nullptr, 0, trial);
}

Ring *BounceBufferPool::ring(BounceBuffer &buffer)
{
	if (uring_state_ < 0)
		return nullptr;
	if (!buffer.ring)
		make_ring(buffer.memory(), buffer.bytes(), buffer.ring);
	return buffer.ring.get();
}

unsigned BounceBufferPool::nr_created()
{
	std::lock_guard guard(lock_);
	return created_[false] + created_[true];
}

} // namespace cufile
