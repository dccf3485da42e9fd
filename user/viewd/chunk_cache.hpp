// SPDX-License-Identifier: MIT
//
// The reduced chunks of all views, in memory of a fixed size. Worker threads reduce the chunks that are requested, and in between
// those that are to be prefetched. A chunk stays until its memory is needed; the least recently used one is dropped first.
//
// A chunk that cannot be reduced is not kept: the next request tries again. A prefetched chunk that is not used before twice as many
// chunks were loaded as there is memory for is dropped first.
//
// All memory for chunks is there from the start. A request for which there is no other memory ends with -ENOMEM.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "view/header.hpp"

namespace viewd
{

struct ChunkKey {
	uint64_t view = 0, chunk = 0;
	auto operator<=>(const ChunkKey &) const = default;
};

class ChunkCache
{
public:
	// Writes a chunk, of at most chunk_size bytes; called by workers, several at a time. Returns 0 or -errno.
	using Load = std::function<int(uint64_t chunk, std::byte *to)>;
	struct Entry;
	// A chunk in memory. While it is held its bytes do not change, whatever happens to the cache's other chunks.
	class Held
	{
	public:
		Held() = default;
		Held(ChunkCache *cache, Entry *entry) : cache_(cache), entry_(entry) {}
		Held(Held &&other) noexcept : cache_(std::exchange(other.cache_, nullptr)), entry_(other.entry_) {}
		Held &operator=(Held &&other) noexcept
		{
			std::swap(cache_, other.cache_);
			std::swap(entry_, other.entry_);
			return *this;
		}
		~Held();
		explicit operator bool() const { return cache_; }
		const std::byte *bytes() const;

	private:
		ChunkCache *cache_ = nullptr;
		Entry *entry_ = nullptr;
	};
	// error: 0 or -errno, and then nothing is held.
	using Ready = std::function<void(Held chunk, int error)>;

	struct Counts {
		uint64_t hits = 0, misses = 0;       // of get()
		uint64_t prefetched = 0, wasted = 0; // chunks; and those of them that went before they were used
	};

	static constexpr size_t chunk_size = view::sum_bytes;

	// chunks: at least 2.
	ChunkCache(size_t chunks, unsigned workers);
	// No request may be under way.
	~ChunkCache();

	// A new view. Its number is not used again.
	uint64_t add(Load load);
	// Forgets a view and waits until no worker reads from it. Requests for it that have not begun end with -ENODEV; so do later ones.
	void remove(uint64_t view);

	// Calls ready, at once if the chunk is there, otherwise by a worker.
	void get(ChunkKey key, Ready ready);
	// Loads the chunk if it is not there, once there is memory that is not held. Chunks that were prefetched and not used take at most
	// half of all.
	void prefetch(ChunkKey key);
	// How many chunks to prefetch for each stream of a view that has so many now: half of the memory is for what was read, the other
	// half is shared by the streams of all views that were read lately.
	size_t share(uint64_t view, size_t streams);

	size_t chunks() const { return entries_.size(); }
	Counts counts() const;

private:
	using Lock = std::unique_lock<std::mutex>;
	using Clock = std::chrono::steady_clock;
	struct View {
		Load load;
		unsigned loading = 0; // workers
		bool removed = false; // waits for them
		size_t streams = 0;   // that take part in streams_
		Clock::time_point read = {};
		std::list<View *>::iterator place = {}; // in read_, if it has streams
	};

	void work();
	void demand(ChunkKey key, Ready &ready);
	bool can_demand() const;
	bool can_prefetch() const;
	Entry *take_memory();
	void drop_old();
	void load(Lock &lock, ChunkKey key);
	void no_streams(View &view);
	void hold(Entry *entry);
	void release(Entry *entry);

	mutable std::mutex mutex_; // protects everything below
	std::condition_variable wanted_, idle_;
	std::vector<std::unique_ptr<Entry>> entries_;
	// Each entry is in one of these, the one that was used least recently first: of no chunk; of a chunk that was used; of a prefetched
	// chunk that was not used yet; held, or being loaded. Prefetching does not take memory of the third kind.
	std::list<Entry *> free_, used_, fresh_, busy_;
	uint64_t loads_ = 0;                // begun so far
	std::map<ChunkKey, Entry *> there_; // chunks in memory or being loaded
	std::map<ChunkKey, std::vector<Ready>> waiting_;
	std::deque<ChunkKey> demanded_, to_prefetch_;
	std::set<ChunkKey> queued_; // those in to_prefetch_
	size_t prefetching_ = 0;    // workers that load a chunk that nobody has demanded
	std::map<uint64_t, View> views_;
	std::list<View *> read_; // that have streams, the one that was read least recently first
	size_t streams_ = 0;     // of these
	uint64_t next_view_ = 1;
	Counts counts_;
	bool ending_ = false;
	std::vector<std::thread> workers_;
};

} // namespace viewd
