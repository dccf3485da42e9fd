// SPDX-License-Identifier: MIT
#include "cufile/async/staging_buffer.hpp"

#include <new>

#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

// False if its context was destroyed, which frees it. Then nothing may be called for that context.
bool StagingBufferPool::is_valid(const StagingBuffer &staging)
{
	Allocation now;
	return !deps_.cuda.allocation(staging.memory_, now) && now.id == staging.id_;
}

StagingBuffer *StagingBufferPool::create(Context context)
{
	auto staging = std::make_unique<StagingBuffer>();
	staging_buffers_.reserve(staging_buffers_.size() + 1);
	void *memory = nullptr;
	if (deps_.cuda.alloc_pinned(StagingBuffer::head + staging_bytes + StagingBuffer::tail, &memory))
		return nullptr;
	staging->memory_ = static_cast<char *>(memory);
	staging->context_ = context;
	Allocation created;
	if (deps_.cuda.allocation(memory, created) || !created.id) {
		deps_.cuda.free_pinned(memory);
		return nullptr;
	}
	staging->id_ = created.id;
	new (memory) CopyDescriptor{nullptr, nullptr, 0};
	staging_buffers_.push_back(std::move(staging));
	return staging_buffers_.back().get();
}

// Only of that context: memory of another context is freed with it, even while in use.
StagingBuffer *StagingBufferPool::idle_in(Context context)
{
	for (size_t i = 0; i < staging_buffers_.size();) {
		StagingBuffer &staging = *staging_buffers_[i];
		if (staging.context_ != context || staging.ios_.load(std::memory_order_acquire)) {
			i++;
			continue;
		}
		if (is_valid(staging))
			return &staging;
		staging_buffers_.erase(staging_buffers_.begin() + static_cast<ptrdiff_t>(i));
	}
	return nullptr;
}

StagingBuffer *StagingBufferPool::acquire(Context context, uint64_t stream)
{
	const std::lock_guard guard(lock_);
	for (const auto &staging : staging_buffers_) {
		if (!stream || staging->stream_ != stream || !staging->ios_.load(std::memory_order_acquire))
			continue;
		staging->ios_++;
		return staging.get();
	}
	StagingBuffer *staging = idle_in(context);
	// Drop those whose context was destroyed with I/O in flight, which never ends.
	if (!staging && staging_buffers_.size() >= max_staging_buffers)
		for (auto &gone : staging_buffers_)
			if (!is_valid(*gone))
				static_cast<void>(gone.release());
	std::erase(staging_buffers_, nullptr);
	if (!staging && staging_buffers_.size() < max_staging_buffers)
		staging = create(context);
	if (staging) {
		staging->stream_ = stream;
		staging->ios_ = 1;
	}
	return staging;
}

void StagingBufferPool::trim()
{
	const std::lock_guard guard(lock_);
	std::erase_if(staging_buffers_, [this](const auto &staging) {
		if (staging->ios_.load(std::memory_order_acquire))
			return false;
		ScopedCudaContext scope(deps_.cuda);
		if (is_valid(*staging) && !scope.enter(staging->context_))
			deps_.cuda.free_pinned(staging->memory_);
		return true;
	});
}

} // namespace cufile
