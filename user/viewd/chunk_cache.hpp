// SPDX-License-Identifier: MIT
//
// The reduced chunks of all views, in memory of a fixed size. Worker threads reduce the chunks that are requested, and in between
// those that are to be prefetched. A chunk stays until its memory is needed; the least recently used one is dropped first.
//
// A chunk that cannot be reduced is not kept: the next request tries again. A prefetched chunk that is not used before twice as many
// chunks were loaded as there is memory for is dropped first.
//
// All memory for chunks is there from the start. A request for which there is no other memory ends with -ENOMEM.
//
// A load may wait for storage that does not answer. After a second another worker takes the place of the one that waits. A storage has
// at most as many loads under way as there are workers, and one more for a view that has none. They take at most half of the chunks that
// those of other storages leave, so that these go on. The next request is of the view with the fewest loads under way: a view whose loads
// take long delays itself.
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
#include <optional>
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
	using Clock = std::chrono::steady_clock;

	struct Counts {
		uint64_t hits = 0, misses = 0;       // of get()
		uint64_t prefetched = 0, wasted = 0; // chunks; and those of them that went before they were used
	};

	static constexpr size_t chunk_size = view::sum_bytes;
	// From here on there are no chunks: get() and run() have the Load called all the same, to do something else. It returns an
	// error then, so that nothing is kept. That is not counted. A request that arrives while such a load runs makes it run again.
	static constexpr uint64_t no_chunk = uint64_t{1} << 63;

	// chunks: at least 2. patience: after which a load no longer counts as one of the workers'.
	ChunkCache(size_t chunks, unsigned workers, Clock::duration patience = std::chrono::seconds(1));
	// No request may be under way.
	~ChunkCache();

	// A new view. Its number is not used again. storage: the number of what it is read from; 0: of nothing else.
	uint64_t add(Load load, uint64_t storage = 0);
	// Forgets a view. All requests for it end with -ENODEV, also those for chunks that are being loaded. Does not wait.
	void remove(uint64_t view);
	// Waits until no worker reads from a view that was removed. false: one still does.
	bool wait_until_unused(uint64_t view, Clock::time_point until = Clock::time_point::max());

	// Calls ready, at once if the chunk is there, otherwise by a worker.
	void get(ChunkKey key, Ready ready);
	// As get(), of what is no chunk, for nobody: not once more if it is asked for already, nor without memory.
	void run(ChunkKey key);
	// Loads the chunk if it is not there, once its storage may have one more load and there is memory that is not held. Chunks that were
	// prefetched and not used take at most half of all.
	void prefetch(ChunkKey key);
	// How many chunks to prefetch for each stream of a view that has so many now: half of the memory is for what was read, the other
	// half is shared by the streams of all views that were read lately.
	size_t share(uint64_t view, size_t streams);

	size_t chunks() const { return entries_.size(); }
	Counts counts() const;

private:
	using Lock = std::unique_lock<std::mutex>;
	struct Storage {
		size_t views = 0;
		unsigned loading = 0; // workers
	};
	struct View {
		Load load;
		std::map<uint64_t, Storage>::iterator storage;
		unsigned loading = 0; // workers
		bool removed = false; // stays until they have ended
		std::list<ChunkKey> demanded = {};
		std::list<View *> idle = {};                // its node of demanding_, while nothing is demanded
		std::list<View *>::iterator demanding = {}; // that node, wherever it is
		size_t streams = 0;                         // that take part in streams_
		Clock::time_point read = {};
		std::list<View *>::iterator place = {}; // in read_, if it has streams
	};
	struct Worker {
		std::thread thread = {};
		std::optional<Clock::time_point> began = {}; // of its load
		bool prefetches = false;                     // and counts in prefetching_
		bool is_late = false;                        // it has lost patience with that: another has its place
	};

	void work(std::list<Worker>::iterator self);
	void watch();
	void start_workers();
	void end_threads();
	bool may_load(const View &view, size_t most) const;
	bool is_gone(uint64_t view) const;
	void forget_unused(std::map<uint64_t, View>::iterator view);
	void demand(ChunkKey key, Ready &ready);
	void enlist(View &view);
	ChunkKey take_demanded(View &view);
	View *next_demanded() const;
	std::deque<ChunkKey>::const_iterator next_prefetch() const;
	Entry *take_memory();
	void drop_old();
	void load(Lock &lock, Worker &self, ChunkKey key);
	void no_streams(View &view);
	void hold(Entry *entry);
	void release(Entry *entry);

	const unsigned most_workers_; // that are not late, and of one storage
	const Clock::duration patience_;
	mutable std::mutex mutex_; // protects everything below
	std::condition_variable wanted_, unused_, watched_;
	std::vector<std::unique_ptr<Entry>> entries_;
	// Each entry is in one of these, the one that was used least recently first: of no chunk; of a chunk that was used; of a prefetched
	// chunk that was not used yet; held, or being loaded. Prefetching does not take memory of the third kind.
	std::list<Entry *> free_, used_, fresh_, busy_;
	uint64_t loads_ = 0;                // begun so far
	std::map<ChunkKey, Entry *> there_; // chunks in memory or being loaded
	std::map<ChunkKey, std::vector<Ready>> waiting_;
	std::list<View *> demanding_; // views with requests, the one that was served least recently first
	std::deque<ChunkKey> to_prefetch_;
	std::set<ChunkKey> queued_; // those in to_prefetch_
	size_t prefetching_ = 0;    // workers that load a chunk that nobody has demanded, without those that are late
	std::map<uint64_t, Storage> storages_;
	std::map<uint64_t, View> views_;
	std::list<View *> read_; // that have streams, the one that was read least recently first
	size_t streams_ = 0;     // of these
	uint64_t next_view_ = 1;
	Counts counts_;
	bool ending_ = false;
	unsigned on_time_ = 0, loading_ = 0; // workers that are not late; that load
	bool is_watched_ = false;            // the watcher looks at them now and then
	std::list<Worker> workers_, ended_;  // the watcher joins those that have ended
	std::thread watcher_;
};

} // namespace viewd
