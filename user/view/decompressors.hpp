// SPDX-License-Identifier: MIT
//
// The decompressors of all compressed files, in bounded memory. Each is somewhere in its file and is kept there between reads, so that a
// read that follows another one goes on where that one ended. A read before that begins anew at a point.
//
// If sequential readers need more streams than fit, they take turns: a stream is kept for four times as long as it took to reach its place.
//
// Several threads that read one sequence of bytes by turns take the same decompressor by turns. One whose turn is later waits as long
// as the decompressor comes nearer; without that each would begin anew at the point.
//
// The files of a storage that does not answer hold up no others: those in use for each storage take an equal part of the memory, at least
// one. Each storage gets its part in any case, beyond the bound while others, that came first, have more than theirs. Readers of one
// storage get memory in order of arrival. A reader that needs more than its storage's part runs alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "view/decoder.hpp"

namespace view
{

// A decoder, and the bytes that came out of it last: neighbouring reads overlap by some elements.
class DecodedStream
{
public:
	// passes: called where the decoder is at a point. Once `stopped` is set nothing is decompressed: SourceError, ECANCELED.
	DecodedStream(std::unique_ptr<Decoder> decoder, std::function<void(const Decoder &)> passes,
		      const std::atomic<bool> &stopped);

	uint64_t begin() const { return decoder_->position() - kept_; } // from where it can read
	uint64_t position() const { return decoder_->position(); }      // to where it has read
	// From begin() on. Throws SourceError and std::bad_alloc, and cannot be used any more then.
	void read(uint64_t offset, std::span<std::byte> to);
	// What was read ends there, and so must the file: throws SourceError if it does not.
	void finish(uint64_t end);
	// Decompresses about `most` bytes. Returns true once a frame ends at `until`, bytes of the file, or behind.
	bool pass(uint64_t most, uint64_t until);

private:
	size_t advance();

	const std::unique_ptr<Decoder> decoder_;
	const std::function<void(const Decoder &)> passes_;
	const std::atomic<bool> &stopped_;
	std::vector<std::byte> buffer_;
	size_t end_ = 0, kept_ = 0; // the last kept_ bytes before buffer_[end_]
};

class Decompressors
{
public:
	using Begin = std::function<std::unique_ptr<DecodedStream>()>;
	using Clock = std::chrono::steady_clock;
	// A stream is kept for a sequential reader for this many times as long as it took to begin it: at most a fifth of the time is overhead.
	static constexpr int kept_times = 4;

	// bytes: of memory. patience: how long a reader waits for others to read what lies before it.
	explicit Decompressors(uint64_t bytes, Clock::duration patience = std::chrono::milliseconds(50));

	// What one may take.
	uint64_t most() const { return limit_ / 2; }

	// There is a file of this storage; and the opposite.
	void join(uint64_t storage);
	void leave(uint64_t storage);

	struct Wanted {
		const void *owner;                // the file
		uint64_t storage;                 // the number of what that is on
		uint64_t offset, end;             // decompressed, to be read
		uint64_t point;                   // decompressed: where `begin` begins
		uint64_t memory;                  // that one takes, at most most()
		bool follows;                     // the last read of the file ended about there
		const std::atomic<bool> &stopped; // as of a DecodedStream, and then nobody waits
	};
	// Calls `use` with a stream that can read from the offset on; no other thread uses it meanwhile. If `use` throws, the stream is
	// forgotten.
	void with(const Wanted &wanted, const Begin &begin, const std::function<void(DecodedStream &)> &use);
	// Those that wait look whether they are stopped.
	void wake();
	// Forgets the streams of a file. None may be in use.
	void forget(const void *owner);

	// Memory for a decompressor that is in use for long: of such ones, and of the others, each have half of all. False if there is none
	// for a while.
	bool reserve(uint64_t storage, uint64_t memory);
	void release(uint64_t storage, uint64_t memory);

	// Of streams in use or kept.
	uint64_t used_bytes() const;
	size_t readers_waiting() const;

private:
	struct Slot {
		const void *owner = nullptr;
		uint64_t storage = 0;
		uint64_t memory = 0;
		std::unique_ptr<DecodedStream> stream = nullptr;
		bool busy = true;
		uint64_t begin = 0;    // the stream's; of a busy one, when it was taken
		uint64_t position = 0; // behind what was read
		Clock::time_point moved = {};
		Clock::time_point kept_until = {}; // by a reader in order
	};
	using Lock = std::unique_lock<std::mutex>;
	using Place = std::list<Slot>::iterator;

	// The slot from which it is the shortest way to `wanted`; end(): none is nearer than the point.
	Place nearest(const Wanted &wanted);
	bool is_first_in_line(const Wanted &wanted, uint64_t position) const;
	// Whether so much more may be in use for a storage for which so much is.
	bool has_share(uint64_t memory, uint64_t used) const;
	uint64_t part() const; // of the memory, of each storage
	uint64_t in_use(uint64_t storage) const;
	void forget_idle(uint64_t storage, uint64_t bytes, uint64_t asks);
	void make_room(uint64_t storage, uint64_t memory = 0);
	bool is_behind(const Wanted &wanted, const Slot *kept);
	Place take(Lock &lock, const Wanted &wanted);

	const uint64_t limit_;
	const Clock::duration patience_;
	mutable std::mutex mutex_; // protects everything below, and streams that are not busy
	std::condition_variable changed_;
	std::list<Slot> slots_;               // the least recently used first
	std::vector<const Wanted *> waiting_; // in order of arrival
	uint64_t used_ = 0, reserved_ = 0;
	struct Storage {
		size_t files = 0;
		uint64_t reserved = 0;
	};
	std::map<uint64_t, Storage> storages_;
};

} // namespace view
