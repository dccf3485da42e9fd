// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"
#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

// One thread's part in a writing job: it copies one piece from the GPU while it writes the previous one.
class WritePipeline
{
public:
	WritePipeline(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers)
		: job_(job), deps_(deps), pool_(bounce_buffers), scope_(deps.cuda)
	{
	}
	~WritePipeline() { leave(); }
	WritePipeline(const WritePipeline &) = delete;
	WritePipeline &operator=(const WritePipeline &) = delete;

	// Starts the copy of a piece from the GPU, possibly after the write of an older one.
	void add(Job::Piece &piece);

private:
	// With few pieces, the end of the stream is waited for once instead.
	bool wants_events() const { return job_.nr_pieces() > slabs(); }
	unsigned slabs() const { return buffer_->large() ? 2 : 1; }
	char *slab_address(unsigned slab) const { return buffer_->memory() + slab * small_slab; }

	int enter(Context context);

	void finish_oldest(bool waited);

	void leave();

	Job &job_;
	const Dependencies deps_;
	BounceBufferPool &pool_;
	std::unique_ptr<BounceBuffer> buffer_;
	std::optional<BounceBufferPool::Holder> holder_; // while buffer_ is set
	ScopedCudaContext scope_;
	bool broken_ = false;
	Job::Piece *in_flight_[bounce_slabs]{};
	unsigned oldest_ = 0, count_ = 0;
};

} // namespace cufile
