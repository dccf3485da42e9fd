// SPDX-License-Identifier: MIT
//
// Reads that bounce: threads read pieces in parallel into a slab, and a full slab goes to the GPU as one copy, because
// starting a copy is slow. Pieces are taken in slab order, so a thread that waits for a free slab waits only for threads
// that are further on. With io_uring, one thread reads. It waits for its own reads; none is in flight when the buffer
// is released.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"
#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

class ReadPipeline
{
public:
	// batch: the last thread to leave ends the pipeline. Otherwise the thread that created it calls wait(). alone:
	// without helpers. crowded: alone, while enough other threads keep the bus busy. helped: with worker threads.
	enum class Mode { alone, crowded, helped, batch };

	// The job must be complete before a thread calls process_pieces(). by_uring: the first thread works alone, with
	// as many reads in flight as the ring holds. share: for reads without io_uring.
	ReadPipeline(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers, Context context, Mode use,
		     bool by_uring, NtReader::Share share)
		: job_(job), deps_(deps), pool_(bounce_buffers), context_(context), mode_(use), by_uring_(by_uring),
		  share_(share)
	{
	}
	ReadPipeline(const ReadPipeline &) = delete;
	ReadPipeline &operator=(const ReadPipeline &) = delete;

	// Reads pieces until none is left. Any number of threads may call it; with io_uring all but the first return at
	// once.
	void process_pieces();
	// Returns once all pieces that other threads took are in GPU memory.
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
	// number: of the calling thread, in order of arrival.
	void read_piece(Job::Piece &piece, unsigned number);
	void read(Job::Piece &piece, unsigned number);
	// Called when a read of a piece ends. The last piece of a slab starts its copy.
	void complete_read(Job::Piece &piece, int64_t result);
	// Called by the thread that has the ring.
	void submit_read(Job::Piece &piece);
	bool queue_read(Job::Piece &piece);
	void reap(bool wait);
	void drain();
	char *slab_address(const Job::Piece &piece) const;
	// May ask the kernel what is cached.
	File::UringTarget uring_target(const Job::Piece &piece) const;
	// Returns when the memory of a slab may be reused.
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
	std::mutex lock_; // protects prepared_; what prepare() creates is immutable afterwards
	bool prepared_ = false;
	int64_t error_ = 0;
	std::unique_ptr<BounceBuffer> buffer_;
	unsigned nr_slabs_ = bounce_slabs;
	uint64_t slab_bytes_ = 0; // including the slack
	std::vector<Slab> slabs_;
	std::atomic<unsigned> threads_{0}, readers_{0};
	std::atomic<bool> claimed_{false}; // by_uring: a thread has the ring
	std::atomic<bool> ended_{false}, broken_{false};
	// Owned by the thread that has the ring.
	Ring *ring_ = nullptr;
	size_t in_flight_ = 0;           // in the ring
	Job::Piece *deferred_ = nullptr; // not for the ring: read by pread() meanwhile
};

} // namespace cufile
