// SPDX-License-Identifier: MIT
//
// The reads of a job that go to the memory of one CUDA context through host memory. Threads read pieces side by side into a
// slab, and a slab that is full goes to the GPU as one copy, for a GPU is slow to begin one. Pieces are taken in the
// order of their slabs, so who waits for a slab to be free waits only for threads that are further on. Or one thread
// has a ring: it waits for what it has in there itself, and nothing is under way when the lane is given back.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "job.hpp"
#include "lane.hpp"

namespace cufile
{

class Belt
{
public:
	// batch: whoever is the last to leave ends it. Else the thread that began it calls wait(), and has moved all of it alone
	// (crowded: with so many others beside it that they keep the bus busy), or was helped.
	enum class Use { alone, crowded, helped, batch };

	// Of all pieces of a job; once it moves, nothing may be added to it any more. by_ring: the thread that comes first is
	// alone in it, and has as much under way as there is room for, where it can. share: of what others read.
	Belt(Job &job, const Seams &seams, Lanes &lanes, Context context, Use use, bool by_ring, Scratch::Share share)
		: job_(job), seams_(seams), lanes_(lanes), context_(context), use_(use), by_ring_(by_ring),
		  share_(share)
	{
	}
	Belt(const Belt &) = delete;
	Belt &operator=(const Belt &) = delete;

	// Moves pieces until there are none to be taken. Any number of threads may be in it; by a ring all but the first are
	// back at once.
	void take_part();
	// All that others took has been read, and is where it belongs.
	void wait();

private:
	enum State : int { reading, copying, ended };
	// What goes to the GPU at once.
	struct Unit {
		size_t first = 0, end = 0; // pieces
		std::atomic<size_t> left{0};
		std::atomic<int> state{reading};
		int64_t error = 0; // of its copy
	};

	// With the lane that it gets. 0 or -errno, the same for each who asks.
	int64_t begin();
	int64_t take_lane();
	void pack();
	// number: which of the threads in it this is.
	void move(Job::Piece &piece, unsigned number);
	void read(Job::Piece &piece, unsigned number);
	// A piece has been read, well or not.
	void arrive(Job::Piece &piece, int64_t result);
	// Of who has the ring.
	void start(Job::Piece &piece);
	bool queue(Job::Piece &piece);
	void land(bool wait);
	void drain();
	char *place(const Job::Piece &piece) const;
	// Where the ring may read it. The file may have to ask the kernel.
	File::Apart apart(const Job::Piece &piece) const;
	// Until the slab of a unit may be used again.
	void clear(Unit &unit, unsigned slab);
	void copy(Unit &unit);
	int send(const Unit &unit);
	void finish(Unit &unit, int64_t error);
	void close();

	Job &job_;
	const Seams seams_;
	Lanes &lanes_;
	const Context context_;
	const Use use_;
	const bool by_ring_;
	const Scratch::Share share_;
	std::mutex lock_; // protects begun_; what begin() makes is immutable after
	bool begun_ = false;
	int64_t error_ = 0;
	std::unique_ptr<Lane> lane_;
	unsigned slabs_ = lane_slabs;
	uint64_t slab_bytes_ = 0; // the slack included
	std::vector<Unit> units_;
	std::atomic<unsigned> inside_{0}, came_{0};
	std::atomic<bool> taken_{false}; // by_ring: there is somebody
	std::atomic<bool> closed_{false}, broken_{false};
	// Of the one thread that has it.
	Ring *ring_ = nullptr;
	size_t under_way_ = 0;        // in the ring
	Job::Piece *aside_ = nullptr; // not for the ring: read while that is at work
};

} // namespace cufile
