// SPDX-License-Identifier: MIT
//
// Turns to work on the files of views, so many at a time. One that takes longer than a second, for storage that does not answer or is
// slow, is no longer counted: it holds up only others of the same storage, of which there are as many at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

namespace viewd
{

class Turns
{
public:
	using Clock = std::chrono::steady_clock;

	explicit Turns(unsigned most, Clock::duration patience = std::chrono::seconds(1))
		: most_(most), patience_(patience)
	{
	}

private:
	struct Taken {
		uint64_t storage;
		Clock::time_point since;
	};
	friend class Turn;
	bool is_free(uint64_t storage) const;

	const unsigned most_;
	const Clock::duration patience_;
	std::mutex mutex_; // protects taken_
	std::condition_variable given_back_;
	std::list<Taken> taken_;
};

// A turn, until its end; none if `stop` is set before it comes.
class Turn
{
public:
	// storage: the number of what is worked on; 0: nothing else is on it.
	Turn(Turns &turns, uint64_t storage, const std::atomic<bool> &stop);
	~Turn();
	Turn(const Turn &) = delete;
	Turn &operator=(const Turn &) = delete;
	explicit operator bool() const { return place_ != turns_.taken_.end(); }

private:
	Turns &turns_;
	std::list<Turns::Taken>::iterator place_;
};

} // namespace viewd
