// SPDX-License-Identifier: MIT
//
// The reads of a job that go to the memory of one CUDA context through host memory. Threads read pieces side by side into a
// slab, and a slab that is full goes to the GPU as one copy, for a GPU is slow to begin one. Pieces are taken in the
// order of their slabs, so who waits for a slab to be free waits only for threads that are further on. Or one thread
// has a ring: it waits for what it has in there itself, and nothing is under way when the buffer is given back.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"

namespace cufile
{

class BouncePipeline
{
public:
	// batch: whoever is the last to leave ends it. Else the thread that began it calls wait(), and has moved all of it alone
	// (crowded: with so many others beside it that they keep the bus busy), or was nr_threads.
	enum class Mode { alone, crowded, nr_threads, batch };

	// Of all pieces of a job; once it moves, nothing may be added to it any more. by_uring: the thread that comes first is
	// alone in it, and has as much under way as there is room for, where it can. share: of what others read.
	BouncePipeline(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers, Context context, Mode use,
		       bool by_uring, NtReader::Share share)
		: job_(job), deps_(deps), pool_(bounce_buffers), context_(context), mode_(use), by_uring_(by_uring),
		  share_(share)
	{
	}
	BouncePipeline(const BouncePipeline &) = delete;
	BouncePipeline &operator=(const BouncePipeline &) = delete;

	// Moves pieces until there are none to be taken. Any number of threads may be in it; by a ring all but the first are
	// back at once.
	void process_pieces();
	// All that others took has been read, and is where it belongs.
	void wait();

private:
	enum State : int { reading, copying, ended };
	// What goes to the GPU at once.
	struct Slab {
		size_t first = 0, end = 0; // pieces
		std::atomic<size_t> left{0};
		std::atomic<int> state{reading};
		int64_t error = 0; // of its copy
	};

	// With the buffer that it gets. 0 or -errno, the same for each who asks.
	int64_t prepare();
	int64_t acquire_buffer();
	void pack();
	// number: which of the threads in it this is.
	void read_piece(Job::Piece &piece, unsigned number);
	void read(Job::Piece &piece, unsigned number);
	// A piece has been read, well or not.
	void complete_read(Job::Piece &piece, int64_t result);
	// Of who has the ring.
	void submit_read(Job::Piece &piece);
	bool queue_read(Job::Piece &piece);
	void reap(bool wait);
	void drain();
	char *slab_address(const Job::Piece &piece) const;
	// Where the ring may read it. The file may have to ask the kernel.
	File::UringTarget uring_target(const Job::Piece &piece) const;
	// Until the slab of a slab may be used again.
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
	std::atomic<bool> claimed_{false}; // by_uring: there is somebody
	std::atomic<bool> ended_{false}, broken_{false};
	// Of the one thread that has it.
	Ring *ring_ = nullptr;
	size_t in_flight_ = 0;           // in the ring
	Job::Piece *deferred_ = nullptr; // not for the ring: read while that is at work
};

} // namespace cufile
