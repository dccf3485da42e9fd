// SPDX-License-Identifier: MIT
//
// The bounce pipelines. Of reads: threads read pieces side by side into a slab, and a full slab goes to the GPU as one copy,
// because a GPU is slow to begin one. Pieces are taken in the order of their slabs, so a thread that waits for a free slab
// waits only for threads that are further on. Or one thread reads by io_uring; it waits for its own reads, and none is in
// flight when the buffer is released. Of writes: each thread copies one piece from the GPU while it writes the one before.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"
#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

class BouncePipeline
{
public:
	// batch: the last thread to leave ends it. Else the thread that began it calls wait(). It works alone (crowded: beside so
	// many others that they keep the bus busy), or with helpers.
	enum class Mode { alone, crowded, helped, batch };

	// Of all pieces of a job, to which no more may be added once a thread is in here. by_uring: the first thread works alone,
	// with as many reads in flight as there is room for. share: of what is read without io_uring.
	BouncePipeline(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers, Context context, Mode use,
		       bool by_uring, NtReader::Share share)
		: job_(job), deps_(deps), pool_(bounce_buffers), context_(context), mode_(use), by_uring_(by_uring),
		  share_(share)
	{
	}
	BouncePipeline(const BouncePipeline &) = delete;
	BouncePipeline &operator=(const BouncePipeline &) = delete;

	// Reads pieces until there are none left. By any number of threads; with io_uring all but the first return at once.
	void process_pieces();
	// Returns once all pieces that other threads took are in the GPU's memory.
	void wait();

private:
	enum State : int { reading, copying, ended };
	// The pieces that go to the GPU as one copy.
	struct Slab {
		size_t first = 0, end = 0; // pieces
		std::atomic<size_t> left{0};
		std::atomic<int> state{reading};
		int64_t error = 0; // of its copy
	};

	// Acquires the buffer and lays out the slabs, once. 0 or -errno, the same for each caller.
	int64_t prepare();
	int64_t acquire_buffer();
	void pack();
	// number: of the calling thread, in the order in which they came.
	void read_piece(Job::Piece &piece, unsigned number);
	void read(Job::Piece &piece, unsigned number);
	// A piece has been read, or has failed. The last one of a slab begins its copy.
	void complete_read(Job::Piece &piece, int64_t result);
	// By the thread that has the ring.
	void submit_read(Job::Piece &piece);
	bool queue_read(Job::Piece &piece);
	void reap(bool wait);
	void drain();
	char *slab_address(const Job::Piece &piece) const;
	// May have to ask the kernel what is cached.
	File::UringTarget uring_target(const Job::Piece &piece) const;
	// Until the memory of a slab may be used again.
	void wait_for_slab(Slab &slab, unsigned index);
	void copy_slab(Slab &slab);
	int submit_copies(const Slab &slab);
	void complete_slab(Slab &slab, int64_t error);
	void end();

	Job &job_;
	const Dependencies deps_;
	BounceBufferPool &pool_;
	const Context context_;
	const Mode mode_;
	const bool by_uring_;
	const NtReader::Share share_;
	std::mutex lock_; // protects prepared_; what prepare() makes is immutable after
	bool prepared_ = false;
	int64_t error_ = 0;
	std::unique_ptr<BounceBuffer> buffer_;
	unsigned nr_slabs_ = bounce_slabs;
	uint64_t slab_bytes_ = 0; // the slack included
	std::vector<Slab> slabs_;
	std::atomic<unsigned> threads_{0}, readers_{0};
	std::atomic<bool> claimed_{false}; // by_uring: a thread has it
	std::atomic<bool> ended_{false}, broken_{false};
	// Of the one thread that has the ring.
	Ring *ring_ = nullptr;
	size_t in_flight_ = 0;           // in the ring
	Job::Piece *deferred_ = nullptr; // not for the ring: read while its reads are in flight
};

// One thread's part in a job that writes: while one piece is copied from the GPU, the one before is written.
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

	// Begins the copy of a piece from the GPU. The write of an older one may come first.
	void add(Job::Piece &piece);

private:
	// With few pieces the end of the stream is waited for, once.
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
	std::optional<BounceBufferPool::Holder> holder_; // as long as it has that
	ScopedCudaContext scope_;
	bool broken_ = false;
	Job::Piece *in_flight_[bounce_slabs]{};
	unsigned oldest_ = 0, count_ = 0;
};

// Takes pieces of a job until there are none left. Several threads may do so with one job. other: runs and finishes a piece
// that does not bounce.
template <class Other>
void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers, Other &&other)
{
	if (job.pipeline()) {
		job.pipeline()->process_pieces();
		return;
	}
	WritePipeline pipeline(job, deps, bounce_buffers);
	while (Job::Piece *piece = job.take()) {
		if (job.request(*piece).path == TransferPath::bounce)
			pipeline.add(*piece);
		else
			other(*piece);
	}
}

} // namespace cufile
