// SPDX-License-Identifier: MIT
#include "viewd/chunk_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
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

ChunkCache::ChunkCache(size_t chunks, unsigned workers, Clock::duration patience)
	: most_workers_(workers), patience_(patience)
{
	for (size_t i = 0; i < chunks; i++) {
		entries_.push_back(std::make_unique<Entry>());
		entries_.back()->place = free_.insert(free_.end(), entries_.back().get());
	}
	try {
		const Lock lock(mutex_);
		start_workers();
		watcher_ = std::thread([this] { watch(); });
	} catch (...) {
		end_threads();
		throw;
	}
}

ChunkCache::~ChunkCache() { end_threads(); }

void ChunkCache::end_threads()
{
	{
		const Lock lock(mutex_);
		ending_ = true;
	}
	wanted_.notify_all();
	watched_.notify_all();
	if (watcher_.joinable())
		watcher_.join();
	for (std::list<Worker> *workers : {&workers_, &ended_})
		for (Worker &worker : *workers)
			worker.thread.join();
}

// With the mutex held. Throws if there cannot be so many threads.
void ChunkCache::start_workers()
{
	while (on_time_ < most_workers_) {
		const auto worker = workers_.emplace(workers_.end());
		try {
			worker->thread = std::thread([this, worker] { work(worker); });
		} catch (...) {
			workers_.erase(worker);
			throw;
		}
		on_time_++;
	}
}

// Gives the places of workers that are late to others.
void ChunkCache::watch()
{
	Lock lock(mutex_);
	while (!ending_) {
		is_watched_ = loading_ || on_time_ < most_workers_;
		if (is_watched_)
			watched_.wait_for(lock, patience_ / 2, [this] { return ending_; });
		else
			watched_.wait(lock, [this] { return ending_ || loading_ || !ended_.empty(); });
		const Clock::time_point now = Clock::now();
		for (Worker &worker : workers_)
			if (worker.began && !worker.is_late && now - *worker.began >= patience_) {
				worker.is_late = true;
				on_time_--;
				prefetching_ -= std::exchange(worker.prefetches, false);
			}
		try {
			start_workers();
		} catch (const std::exception &) {
			// The next time.
		}
		std::list<Worker> ended;
		ended.swap(ended_);
		lock.unlock();
		for (Worker &worker : ended)
			worker.thread.join();
		lock.lock();
	}
}

uint64_t ChunkCache::add(Load load, uint64_t storage)
{
	const Lock lock(mutex_);
	// Numbers of file systems are not that large.
	const uint64_t number = storage ? storage : UINT64_MAX - next_view_;
	const auto at = storages_.try_emplace(number).first;
	try {
		std::list<View *> node(1);
		View &view = views_.emplace(next_view_, View{std::move(load), at}).first->second;
		view.idle.swap(node);
		view.demanding = view.idle.begin();
		*view.demanding = &view;
	} catch (...) {
		if (!at->second.views)
			storages_.erase(at);
		throw;
	}
	at->second.views++;
	return next_view_++;
}

// With the mutex held: whether its storage may have one more load. It may have `most`, and half of the memory that the loads of others
// leave.
bool ChunkCache::may_load(const View &view, size_t most) const
{
	const unsigned loading = view.storage->second.loading;
	const size_t left = entries_.size() - (loading_ - loading);
	return loading < std::clamp<size_t>(left / 2, 1, most);
}

// With the mutex held.
bool ChunkCache::is_gone(uint64_t view) const
{
	const auto found = views_.find(view);
	return found == views_.end() || found->second.removed;
}

// With the mutex held.
void ChunkCache::forget_unused(std::map<uint64_t, View>::iterator view)
{
	if (!view->second.removed || view->second.loading)
		return;
	if (!--view->second.storage->second.views)
		storages_.erase(view->second.storage);
	views_.erase(view);
	unused_.notify_all();
}

void ChunkCache::remove(uint64_t view)
{
	std::map<ChunkKey, std::vector<Ready>> refused;
	{
		const Lock lock(mutex_);
		if (is_gone(view))
			return;
		const auto found = views_.find(view);
		found->second.removed = true;
		for (auto waiting = waiting_.lower_bound({view, 0});
		     waiting != waiting_.end() && waiting->first.view == view;)
			refused.insert(waiting_.extract(waiting++));
		const auto is_of_view = [&](const ChunkKey &key) { return key.view == view; };
		while (!found->second.demanded.empty())
			take_demanded(found->second);
		std::erase_if(to_prefetch_, is_of_view);
		std::erase_if(queued_, is_of_view);
		for (std::list<Entry *> *list : {&used_, &fresh_})
			for (auto at = list->begin(); at != list->end();) {
				Entry *const entry = *at++;
				if (entry->key.view != view)
					continue;
				there_.erase(entry->key);
				free_.splice(free_.end(), *list, entry->place);
			}
		no_streams(found->second);
		forget_unused(found);
	}
	wanted_.notify_all();
	for (const auto &[key, waiting] : refused)
		for (const Ready &ready : waiting)
			ready({}, -ENODEV);
}

bool ChunkCache::wait_until_unused(uint64_t view, Clock::time_point until)
{
	Lock lock(mutex_);
	const auto is_unused = [&] { return !views_.contains(view); };
	if (until != Clock::time_point::max())
		return unused_.wait_until(lock, until, is_unused);
	unused_.wait(lock, is_unused);
	return true;
}

void ChunkCache::get(ChunkKey key, Ready ready)
{
	Lock lock(mutex_);
	if (is_gone(key.view)) {
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
	counts_.misses += key.chunk < no_chunk;
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

void ChunkCache::run(ChunkKey key)
{
	{
		const Lock lock(mutex_);
		if (is_gone(key.view) || waiting_.contains(key))
			return;
		try {
			Ready nobody = [](const Held &, int) {};
			demand(key, nobody);
		} catch (const std::bad_alloc &) {
			return;
		}
	}
	wanted_.notify_one();
}

// With the mutex held. Takes `ready`, or throws std::bad_alloc.
void ChunkCache::demand(ChunkKey key, Ready &ready)
{
	View &view = views_.at(key.view);
	const bool is_first = !waiting_.contains(key) && !there_.contains(key);
	if (is_first)
		view.demanded.push_back(key);
	try {
		waiting_[key].push_back(std::move(ready));
		enlist(view);
	} catch (const std::bad_alloc &) {
		if (is_first) {
			view.demanded.pop_back();
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
		if (is_gone(key.view) || there_.contains(key) || waiting_.contains(key) ||
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
	if (is_gone(view))
		return 0;
	const auto found = views_.find(view);
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

// With the mutex held, after the view's requests have changed.
void ChunkCache::enlist(View &view)
{
	if (!view.demanded.empty())
		demanding_.splice(demanding_.end(), view.idle);
}

// With the mutex held. The view is the last one then.
ChunkKey ChunkCache::take_demanded(View &view)
{
	const ChunkKey key = view.demanded.front();
	view.demanded.pop_front();
	std::list<View *> &to = view.demanded.empty() ? view.idle : demanding_;
	to.splice(to.end(), demanding_, view.demanding);
	return key;
}

// With the mutex held: the view whose request is next, if there is memory.
ChunkCache::View *ChunkCache::next_demanded() const
{
	if (free_.empty() && used_.empty() && fresh_.empty())
		return nullptr;
	View *next = nullptr;
	for (View *view : demanding_)
		if ((!next || view->loading < next->loading) && may_load(*view, most_workers_ + !view->loading))
			next = view;
	return next;
}

// With the mutex held: the first chunk whose storage may have one more load, if there is memory. A storage that is slow or does not
// answer delays its own chunks only.
std::deque<ChunkKey>::const_iterator ChunkCache::next_prefetch() const
{
	if ((free_.empty() && used_.empty()) ||
	    fresh_.size() + prefetching_ >= std::max<size_t>(entries_.size() / 2, 1))
		return to_prefetch_.end();
	return std::ranges::find_if(
		to_prefetch_, [this](const ChunkKey &key) { return may_load(views_.at(key.view), most_workers_); });
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

void ChunkCache::work(std::list<Worker>::iterator self)
{
	Lock lock(mutex_);
	// There are too many after one that was late.
	while (on_time_ <= most_workers_) {
		View *demanding = nullptr;
		auto prefetch = to_prefetch_.cend();
		wanted_.wait(lock, [&] {
			demanding = next_demanded();
			prefetch = demanding ? to_prefetch_.cend() : next_prefetch();
			return ending_ || demanding || prefetch != to_prefetch_.cend();
		});
		if (ending_)
			return;
		ChunkKey key;
		if (demanding) {
			key = take_demanded(*demanding);
		} else {
			key = *prefetch;
			to_prefetch_.erase(prefetch);
			queued_.erase(key);
		}
		// A prefetch may have begun to load what was demanded then, and the opposite.
		if (there_.contains(key))
			continue;
		self->prefetches = !demanding;
		prefetching_ += self->prefetches;
		load(lock, *self, key);
		prefetching_ -= std::exchange(self->prefetches, false);
	}
	if (ending_)
		return;
	on_time_--;
	ended_.splice(ended_.end(), workers_, self);
	watched_.notify_one();
}

void ChunkCache::load(Lock &lock, Worker &self, ChunkKey key)
{
	const auto found = views_.find(key.view);
	View &view = found->second;
	Storage &storage = view.storage->second;
	Entry *const entry = take_memory();
	int error = 0;
	// A question that arrives during this load is loaded again: this load may have looked at the files too early for it.
	std::list<ChunkKey> again;
	try {
		there_[key] = entry;
		if (key.chunk >= no_chunk)
			again.push_back(key);
	} catch (const std::bad_alloc &) {
		error = -ENOMEM;
	}
	entry->key = key;
	entry->loading = true;
	entry->used = false;
	entry->loaded = loads_++;
	drop_old();
	view.loading++;
	storage.loading++;
	loading_++;
	self.began = Clock::now();
	if (!is_watched_)
		watched_.notify_one();
	std::vector<Ready> waiting;
	const auto take_waiting = [&] {
		if (auto those = waiting_.extract(key))
			waiting = std::move(those.mapped());
	};
	if (!again.empty())
		take_waiting();
	lock.unlock();
	if (!error) {
		try {
			error = view.load(key.chunk, entry->bytes.get());
		} catch (const std::bad_alloc &) {
			error = -ENOMEM;
		}
	}
	lock.lock();
	self.began.reset();
	on_time_ += std::exchange(self.is_late, false);
	entry->loading = false;
	if (view.removed)
		error = -ENODEV;
	if (again.empty())
		take_waiting();
	else if (waiting_.contains(key))
		view.demanded.splice(view.demanded.end(), again);
	enlist(view);
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
	loading_--;
	storage.loading--;
	view.loading--;
	forget_unused(found);
	lock.unlock();
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
		if (is_gone(entry->key.view)) {
			there_.erase(entry->key);
			to = &free_;
		}
		to->splice(to->end(), busy_, entry->place);
	}
	wanted_.notify_one();
}

} // namespace viewd
