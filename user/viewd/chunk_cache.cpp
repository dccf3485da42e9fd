// SPDX-License-Identifier: MIT
#include "viewd/chunk_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

namespace viewd
{

namespace
{

// How long after its last read a view's streams take part in sharing.
constexpr auto lately = std::chrono::seconds(10);

} // namespace

struct ChunkCache::Entry {
	ChunkKey key;
	size_t holders = 0;
	bool loading = false;
	bool used = false;   // by a get()
	uint64_t loaded = 0; // the number of the load
	std::list<Entry *>::iterator place;
	std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(chunk_size);
};

ChunkCache::Held::~Held()
{
	if (cache_)
		cache_->release(entry_);
}

const std::byte *ChunkCache::Held::bytes() const { return entry_->bytes.get(); }

ChunkCache::ChunkCache(size_t chunks, unsigned workers)
{
	for (size_t i = 0; i < chunks; i++) {
		entries_.push_back(std::make_unique<Entry>());
		entries_.back()->place = free_.insert(free_.end(), entries_.back().get());
	}
	for (unsigned i = 0; i < workers; i++)
		workers_.emplace_back([this] { work(); });
}

ChunkCache::~ChunkCache()
{
	{
		const Lock lock(mutex_);
		ending_ = true;
	}
	wanted_.notify_all();
	for (std::thread &worker : workers_)
		worker.join();
}

uint64_t ChunkCache::add(Load load)
{
	const Lock lock(mutex_);
	views_[next_view_].load = std::move(load);
	return next_view_++;
}

void ChunkCache::remove(uint64_t view)
{
	std::map<ChunkKey, std::vector<Ready>> refused;
	{
		Lock lock(mutex_);
		const auto found = views_.find(view);
		if (found == views_.end())
			return;
		found->second.removed = true;
		// A worker answers those who wait for what it loads.
		for (auto waiting = waiting_.lower_bound({view, 0});
		     waiting != waiting_.end() && waiting->first.view == view;) {
			if (there_.contains(waiting->first)) {
				++waiting;
				continue;
			}
			refused.insert(waiting_.extract(waiting++));
		}
		const auto is_of_view = [&](const ChunkKey &key) { return key.view == view; };
		std::erase_if(demanded_, is_of_view);
		std::erase_if(to_prefetch_, is_of_view);
		std::erase_if(queued_, is_of_view);
		idle_.wait(lock, [&] { return !found->second.loading; });
		for (std::list<Entry *> *list : {&used_, &fresh_})
			for (auto at = list->begin(); at != list->end();) {
				Entry *const entry = *at++;
				if (entry->key.view != view)
					continue;
				there_.erase(entry->key);
				free_.splice(free_.end(), *list, entry->place);
			}
		no_streams(found->second);
		views_.erase(found);
	}
	wanted_.notify_all();
	for (const auto &[key, waiting] : refused)
		for (const Ready &ready : waiting)
			ready({}, -ENODEV);
}

void ChunkCache::get(ChunkKey key, Ready ready)
{
	Lock lock(mutex_);
	const auto view = views_.find(key.view);
	if (view == views_.end() || view->second.removed) {
		lock.unlock();
		ready({}, -ENODEV);
		return;
	}
	const auto found = there_.find(key);
	if (found != there_.end() && !found->second->loading) {
		counts_.hits++;
		hold(found->second);
		lock.unlock();
		ready(Held(this, found->second), 0);
		return;
	}
	counts_.misses++;
	try {
		demand(key, ready);
	} catch (const std::bad_alloc &) {
		lock.unlock();
		ready({}, -ENOMEM);
		return;
	}
	lock.unlock();
	wanted_.notify_one();
}

// With the mutex held. Takes `ready`, or throws std::bad_alloc.
void ChunkCache::demand(ChunkKey key, Ready &ready)
{
	const bool is_first = !waiting_.contains(key) && !there_.contains(key);
	if (is_first)
		demanded_.push_back(key);
	try {
		waiting_[key].push_back(std::move(ready));
	} catch (const std::bad_alloc &) {
		if (is_first) {
			demanded_.pop_back();
			waiting_.erase(key);
		} else if (const auto found = waiting_.find(key); found->second.empty()) {
			waiting_.erase(found);
		}
		throw;
	}
}

void ChunkCache::prefetch(ChunkKey key)
{
	{
		const Lock lock(mutex_);
		const auto view = views_.find(key.view);
		if (view == views_.end() || view->second.removed || there_.contains(key) || waiting_.contains(key) ||
		    to_prefetch_.size() >= entries_.size() || queued_.contains(key))
			return;
		to_prefetch_.push_back(key);
		try {
			queued_.insert(key);
		} catch (const std::bad_alloc &) {
			to_prefetch_.pop_back();
			throw;
		}
	}
	wanted_.notify_one();
}

size_t ChunkCache::share(uint64_t view, size_t streams)
{
	const Lock lock(mutex_);
	const auto found = views_.find(view);
	if (found == views_.end() || found->second.removed)
		return 0;
	const Clock::time_point now = Clock::now();
	no_streams(found->second);
	if (streams) {
		found->second.place = read_.insert(read_.end(), &found->second);
		found->second.streams = streams;
		found->second.read = now;
		streams_ += streams;
	}
	while (!read_.empty() && now - read_.front()->read > lately)
		no_streams(*read_.front());
	return entries_.size() / 2 / std::max<size_t>(streams_, 1);
}

// With the mutex held.
void ChunkCache::no_streams(View &view)
{
	if (!view.streams)
		return;
	streams_ -= view.streams;
	view.streams = 0;
	read_.erase(view.place);
}

ChunkCache::Counts ChunkCache::counts() const
{
	const Lock lock(mutex_);
	return counts_;
}

bool ChunkCache::can_demand() const
{
	return !demanded_.empty() && !(free_.empty() && used_.empty() && fresh_.empty());
}

bool ChunkCache::can_prefetch() const
{
	return !to_prefetch_.empty() && demanded_.empty() && !(free_.empty() && used_.empty()) &&
	       fresh_.size() + prefetching_ < std::max<size_t>(entries_.size() / 2, 1);
}

// There is some. The entry is in busy_ then.
ChunkCache::Entry *ChunkCache::take_memory()
{
	std::list<Entry *> &from = !free_.empty() ? free_ : !used_.empty() ? used_ : fresh_;
	Entry *const entry = from.front();
	if (&from != &free_)
		there_.erase(entry->key);
	if (&from == &fresh_)
		counts_.wasted++;
	busy_.splice(busy_.end(), from, entry->place);
	return entry;
}

// Prefetched chunks for which nobody has come.
void ChunkCache::drop_old()
{
	while (!fresh_.empty() && fresh_.front()->loaded + 2 * entries_.size() < loads_) {
		there_.erase(fresh_.front()->key);
		free_.splice(free_.end(), fresh_, fresh_.begin());
		counts_.wasted++;
	}
}

void ChunkCache::work()
{
	Lock lock(mutex_);
	for (;;) {
		wanted_.wait(lock, [this] { return ending_ || can_demand() || can_prefetch(); });
		if (ending_)
			return;
		const bool is_demanded = can_demand();
		std::deque<ChunkKey> &queue = is_demanded ? demanded_ : to_prefetch_;
		const ChunkKey key = queue.front();
		queue.pop_front();
		if (!is_demanded)
			queued_.erase(key);
		// A prefetch may have begun to load what was demanded then, and the opposite.
		if (there_.contains(key))
			continue;
		prefetching_ += !is_demanded;
		load(lock, key);
		prefetching_ -= !is_demanded;
	}
}

void ChunkCache::load(Lock &lock, ChunkKey key)
{
	View &view = views_.at(key.view);
	Entry *const entry = take_memory();
	int error = 0;
	try {
		there_[key] = entry;
	} catch (const std::bad_alloc &) {
		error = -ENOMEM;
	}
	entry->key = key;
	entry->loading = true;
	entry->used = false;
	entry->loaded = loads_++;
	drop_old();
	view.loading++;
	lock.unlock();
	if (!error) {
		try {
			error = view.load(key.chunk, entry->bytes.get());
		} catch (const std::bad_alloc &) {
			error = -ENOMEM;
		}
	}
	lock.lock();
	entry->loading = false;
	if (view.removed)
		error = -ENODEV;
	std::vector<Ready> waiting;
	if (auto found = waiting_.extract(key))
		waiting = std::move(found.mapped());
	if (error) {
		there_.erase(key);
		free_.splice(free_.end(), busy_, entry->place);
	} else if (waiting.empty()) {
		counts_.prefetched++;
		fresh_.splice(fresh_.end(), busy_, entry->place);
	} else {
		entry->used = true;
		entry->holders = waiting.size();
	}
	const bool is_idle = !--view.loading;
	lock.unlock();
	if (is_idle)
		idle_.notify_all();
	// Memory may have become available for another worker.
	wanted_.notify_one();
	for (const Ready &ready : waiting)
		ready(error ? Held() : Held(this, entry), error);
	waiting.clear(); // what they keep may hold chunks
	lock.lock();
}

void ChunkCache::hold(Entry *entry)
{
	if (!entry->holders++)
		busy_.splice(busy_.end(), entry->used ? used_ : fresh_, entry->place);
	entry->used = true;
}

void ChunkCache::release(Entry *entry)
{
	{
		const Lock lock(mutex_);
		if (--entry->holders)
			return;
		std::list<Entry *> *to = &used_;
		if (!views_.contains(entry->key.view)) {
			there_.erase(entry->key);
			to = &free_;
		}
		to->splice(to->end(), busy_, entry->place);
	}
	wanted_.notify_one();
}

} // namespace viewd
