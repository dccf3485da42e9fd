// SPDX-License-Identifier: MIT
#include "viewd/service.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <list>
#include <random>
#include <semaphore>
#include <set>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "view/chunk.hpp"
#include "view/compressed_file.hpp"
#include "view/source.hpp"

namespace viewd
{

namespace
{

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t scanned_at_once = 8 << 20; // bytes, between looks whether to stop
// What a scan has found is saved so often, and takes at most about a twentieth of its time.
constexpr auto saved_every = std::chrono::seconds(2);
constexpr int saves_share = 20;
// What each view has to end, if those before have taken the time that there was for all.
constexpr auto least_patience = std::chrono::milliseconds(100);

constexpr auto tried_again_every = std::chrono::seconds(2);
// The kernel takes a lease away after 45 s, unless /proc/sys/fs/lease-break-time says otherwise.
constexpr auto lease_patience = std::chrono::seconds(50);
constexpr const char *not_saved = "not saved: a service that is killed now has to scan again, and makes a fresh device";
constexpr const char *not_ended = "withdrawn, but not ended yet: a read of its files has not been answered";
constexpr const char *index_prefix = ".index-";
std::string index_kind(size_t file) { return fmt::format("{}{}", index_prefix, file); }

// The files of the folder that have what is known of compressed files: their kinds and texts.
std::vector<std::pair<std::string, std::string>> indices_of(const std::vector<std::unique_ptr<view::Source>> &sources)
{
	std::vector<std::pair<std::string, std::string>> indices;
	for (size_t i = 0; i < sources.size(); i++)
		if (std::string index = sources[i]->save_index(); !index.empty())
			indices.emplace_back(index_kind(i), std::move(index));
	return indices;
}

// Calls `save` now and then. What cannot be saved is found again after a restart, so that is a message only.
class SaveTimer
{
public:
	template <class Save> void save_if_due(bool now, Save &&save)
	{
		const Clock::time_point began = Clock::now();
		if (!now && began < next_)
			return;
		try {
			save();
			has_failed_ = false;
		} catch (const Refused &error) {
			if (!std::exchange(has_failed_, true))
				std::fprintf(stderr,
					     "peerdma-viewd: %s; until it can be saved, a service that is killed has "
					     "to scan again\n",
					     error.what());
		}
		const Clock::time_point ended = Clock::now();
		next_ = ended + std::max<Clock::duration>(saved_every, (ended - began) * saves_share);
	}
	bool has_failed() const { return has_failed_; }

private:
	Clock::time_point next_ = Clock::now() + saved_every;
	bool has_failed_ = false; // the last time, and it was said
};

// Calls work(name) for each, several at a time: the kernel waits for its readers when it removes a device. Throws the first exception,
// when all were called.
template <class Work> void for_each_at_once(const std::vector<std::string> &names, const Work &work)
{
	constexpr size_t at_once = 16;
	std::atomic<size_t> next = 0;
	std::mutex mutex; // protects first
	std::exception_ptr first;
	const auto take = [&] {
		for (size_t i; (i = next++) < names.size();) {
			try {
				work(names[i]);
			} catch (...) {
				const std::lock_guard lock(mutex);
				if (!first)
					first = std::current_exception();
			}
		}
	};
	{
		std::vector<std::jthread> threads;
		try {
			while (threads.size() + 1 < std::min(at_once, names.size()))
				threads.emplace_back(take);
		} catch (const std::exception &) {
			// Fewer will do.
		}
		take();
	}
	if (first)
		std::rethrow_exception(first);
}

// NAME.device: the cookie of a view's device, and the CRC of the header that it has. It is written before the device is made, and stays
// until the view is withdrawn. What hosts know of a device (serial, number and UUID) is made of the cookie: a host that waits for the
// target finds a device with the same header as it was, though another service may have made it.
struct DeviceRecord {
	uint64_t cookie = 0;
	uint32_t header = 0;

	static DeviceRecord parse(const std::string &text)
	{
		DeviceRecord record;
		std::istringstream in(text);
		in >> record.cookie >> record.header;
		return in && record.cookie ? record : DeviceRecord();
	}
	static DeviceRecord of(uint32_t header, unsigned remainder)
	{
		constexpr uint64_t period = BlockDevices::cookie_period;
		std::random_device random;
		DeviceRecord record = {0, header};
		while (!record.cookie)
			record.cookie =
				(static_cast<uint64_t>(random()) << 32 | random()) / period * period + remainder;
		return record;
	}
	std::string text() const { return fmt::format("{} {}\n", cookie, header); }
};

} // namespace

const char *state_name(Service::State state)
{
	switch (state) {
	case Service::State::scanning:
		return "scanning";
	case Service::State::published:
		return "published";
	case Service::State::failed:
		return "failed";
	case Service::State::ending:
		return "ending";
	}
	return "";
}

struct Service::Published {
	Published(ViewConf what, std::string from) : conf(std::move(what)), origin(std::move(from)), closing{conf.name}
	{
	}

	const ViewConf conf;
	const std::string origin;
	std::atomic<bool> stop = false;
	mutable std::mutex mutex; // protects the members up to `device`, which the view's thread writes
	State state = State::scanning;
	std::string error;
	uint64_t steps_done = 0, steps = 0;
	std::optional<Summary> summary;
	std::string note, closed; // closed: why hosts cannot connect yet; written by the view's thread only
	std::optional<view::Sequence> files;
	std::unique_ptr<ServedView> served;
	std::unique_ptr<BlockDevice> device;
	bool is_running = false;  // the thread; protected by the mutex
	bool is_starting = false; // the others wait for it; protected by Service::start_mutex_
	std::condition_variable has_run;
	std::vector<view::Source *> scanned; // files that its thread reads; protected by the mutex
	// The view's thread has begun to take over or remove the device that an earlier service left; protected by the mutex.
	bool is_left_taken = false;
	std::list<std::string> closing; // the node that goes into Service::closing_, so that closing needs no memory
	std::thread thread;

	~Published() { end(Clock::time_point::max()); }

	// Has it end as soon as it can, and fails its reads. Does not wait.
	void begin_to_end()
	{
		stop = true;
		const std::lock_guard lock(mutex);
		for (view::Source *file : scanned)
			file->stop();
		// Its thread may wait until the kernel has read the device.
		if (served)
			served->withdraw();
	}

	// The view's thread calls it before it takes over or removes the device that an earlier service left. False: the view is being
	// ended, and the ender removes the device.
	bool take_left()
	{
		const std::lock_guard lock(mutex);
		is_left_taken |= !stop;
		return is_left_taken;
	}

	// Does not change after begin_to_end().
	bool has_taken_left()
	{
		const std::lock_guard lock(mutex);
		return is_left_taken;
	}

	// Ends it. Returns false if it has not ended by then, and must be called again.
	bool end(Clock::time_point until)
	{
		begin_to_end();
		{
			std::unique_lock lock(mutex);
			const auto has_ended = [this] { return !is_running; };
			if (until == Clock::time_point::max())
				has_run.wait(lock, has_ended);
			else if (!has_run.wait_until(lock, until, has_ended))
				return false;
		}
		if (thread.joinable())
			thread.join();
		if (!served)
			return true;
		// It may have been made meanwhile.
		served->withdraw();
		device.reset();
		return served->wait_until_unused(until);
	}
};

namespace
{

// What the directory of definitions has, by the names of the views.
struct Definitions {
	std::map<std::string, ViewConf> good;
	std::map<std::string, std::string> bad;
	std::set<std::string> unread; // of the bad ones: nobody knows what they define
};

// No directory: no definitions. Throws fs::filesystem_error if it cannot be read.
Definitions read_definitions(const fs::path &folder)
{
	Definitions found;
	std::error_code error;
	if (folder.empty() || fs::status(folder, error).type() == fs::file_type::not_found)
		return found;
	for (const fs::directory_entry &entry : fs::directory_iterator(folder)) {
		const fs::path path = entry.path();
		const std::string name = path.stem();
		// An editor's temporary files begin with a dot.
		if (path.extension() != ".conf" || name.starts_with('.'))
			continue;
		try {
			found.good[name] = view::parse_conf(path, name, view::read_conf(path));
		} catch (const view::UnreadConf &unread) {
			found.bad[name] = unread.what();
			found.unread.insert(name);
		} catch (const view::BadConf &bad) {
			found.bad[name] = bad.what();
		}
	}
	return found;
}

} // namespace

// Each worker's buffers are of the memory too, of which chunks get at least half.
static size_t chunks_of(const Service::Options &options)
{
	const uint64_t buffers = std::min(options.workers * view::Reducer::most_buffer_bytes, options.memory / 2);
	return std::max<uint64_t>((options.memory - buffers) / ChunkCache::chunk_size, 2);
}

Service::Service(const Options &options, BlockDevices &devices)
	: Service(options, devices, std::make_unique<StateFolder>(options.folder))
{
}

Service::Service(const Options &options, BlockDevices &devices, std::unique_ptr<StateFolder> folder)
	: options_(options), folder_(std::move(folder)), devices_(devices), decompressors_(options.decompress_memory),
	  cache_(chunks_of(options), options.workers), turns_(std::max(options.workers, 1U)),
	  ender_([this] { end_later(); })
{
	try {
		publish_saved();
		reload();
		const std::scoped_lock lock(mutex_, start_mutex_);
		is_constructed_ = true;
		starting_--;
		have_started_.notify_all();
	} catch (...) {
		stop_all();
		throw;
	}
}

Service::~Service() { stop_all(); }

// Stops the service and waits for all views, those that wait for storage too.
void Service::stop_all()
{
	stop();
	views_.clear();
	ending_.clear();
	std::unique_lock lock(mutex_);
	has_closed_.wait(lock, [this] { return closing_.empty(); });
}

size_t Service::stop()
{
	{
		const std::lock_guard lock(mutex_);
		is_stopped_ = true;
	}
	has_ending_.notify_all();
	if (ender_.joinable())
		ender_.join();
	// First: hosts wait for the next service then, and would not for a read that has failed.
	devices_.close();
	for (const auto &[name, view] : views_)
		view->begin_to_end();
	const Clock::time_point until = Clock::now() + options_.last_patience;
	const auto end = [&](const std::string &name, std::unique_ptr<Published> &view) {
		if (!view)
			return;
		const bool has_ended = view->end(std::max(until, Clock::now() + least_patience));
		// Readers of the device that an earlier service left would wait for the next service.
		if (has_ended || !view->has_taken_left())
			try_remove_left(name);
		if (has_ended)
			close_files(std::move(view));
	};
	try {
		while (!views_.empty()) {
			const auto view = views_.begin();
			Ending &ending = ending_[view->first];
			ending.view = std::move(view->second);
			views_.erase(view);
		}
		std::vector<std::string> names;
		for (const auto &[name, ending] : ending_)
			names.push_back(name);
		for_each_at_once(names, [&](const std::string &name) { end(name, ending_.at(name).view); });
	} catch (const std::exception &) {
		// Out of memory: end the rest one after the other, in place.
		for (auto &[name, view] : views_)
			end(name, view);
		for (auto &[name, ending] : ending_)
			end(name, ending.view);
	}
	std::erase_if(ending_, [](const auto &ending) { return !ending.second.view; });
	std::erase_if(views_, [](const auto &view) { return !view.second; });
	std::unique_lock lock(mutex_);
	has_closed_.wait_until(lock, std::max(until, Clock::now() + least_patience),
			       [this] { return closing_.empty(); });
	const auto say = [](const std::string &name) {
		std::fprintf(stderr, "peerdma-viewd: %s: its storage does not answer; ending without it\n",
			     name.c_str());
	};
	for (const std::string &name : closing_)
		say(name);
	for (const auto &[name, view] : views_)
		say(name);
	for (const auto &[name, ending] : ending_)
		say(name);
	const size_t left = closing_.size() + views_.size() + ending_.size();
	if (left)
		folder_->unlock();
	return left;
}

// Of a view that has ended. By a thread of its own: to close a file of a server may wait for that.
void Service::close_files(std::unique_ptr<Published> view)
{
	const auto name = view->closing.begin();
	{
		const std::lock_guard lock(mutex_);
		closing_.splice(closing_.end(), view->closing);
	}
	Published *const closed = view.release();
	const auto close = [this, closed, name] {
		delete closed;
		const std::lock_guard lock(mutex_);
		closing_.erase(name);
		has_closed_.notify_all();
	};
	try {
		std::thread(close).detach();
	} catch (const std::exception &) {
		close();
	}
}

void Service::publish_saved()
{
	const std::lock_guard lock(mutex_);
	for (const fs::path &path : folder_->files()) {
		if (path.extension() != ".conf")
			continue;
		const std::string name = path.stem();
		try {
			start(view::parse_conf(path, name, view::read_conf(path)), "");
		} catch (const view::UnreadConf &unread) {
			add_failed(name,
				   fmt::format("{}; reads of the device that was left wait: restart peerdma-viewd, or "
					       "withdraw the view",
					       unread.what()));
		} catch (const view::BadConf &bad) {
			try_remove_left(name);
			add_failed(name, bad.what());
		}
	}
}

// With the mutex held.
void Service::add_failed(const std::string &name, const std::string &error)
{
	auto view = std::make_unique<Published>(ViewConf{.name = name}, "");
	view->state = State::failed;
	view->error = error;
	views_[name] = std::move(view);
}

// Of views that were withdrawn while there was no service, or by one that died meanwhile. What a scan has found is kept for a view
// whose definition has a mistake, and everything for one in `unread`.
void Service::discard_left(const std::set<std::string> &unread)
{
	std::map<std::string, bool> left; // by name: whether it is defined
	for (const fs::path &path : folder_->files()) {
		const std::string name = path.stem(), kind = path.extension();
		const std::lock_guard lock(mutex_);
		const bool is_kept = kind == ".scan" || kind == ".device" || kind.starts_with(index_prefix);
		if (is_kept && !views_.contains(name) && !ending_.contains(name) && !unread.contains(name))
			left[name] = bad_definitions_.contains(name);
	}
	std::vector<std::string> names;
	for (const auto &[name, is_defined] : left)
		names.push_back(name);
	for_each_at_once(names, [&](const std::string &name) {
		if (left.at(name))
			try_remove_left(name);
		else
			forget(name, Kept::nothing);
	});
}

// With the mutex held: views of a service before that this one does not know, each of which may have a device still.
size_t Service::count_held() const
{
	if (is_left_discarded_)
		return 0;
	return static_cast<size_t>(std::ranges::count_if(folder_->files(), [this](const fs::path &path) {
		return path.extension() == ".device" && !views_.contains(path.stem()) && !ending_.contains(path.stem());
	}));
}

fs::path Service::definition_of(const std::string &name) const { return options_.conf_dir / (name + ".conf"); }

// The remainder of the next cookie. It is saved before it is used, so that a later service does not repeat it.
unsigned Service::next_remainder()
{
	const std::lock_guard lock(remainder_mutex_);
	std::istringstream in(folder_->read("", ".remainder"));
	unsigned last = std::random_device()();
	in >> last;
	const unsigned next = (last % BlockDevices::cookie_period + 1) % BlockDevices::cookie_period;
	folder_->write("", ".remainder", fmt::format("{}\n", next));
	return next;
}

void Service::publish(const ViewConf &conf)
{
	const std::lock_guard change(change_mutex_);
	const std::lock_guard lock(mutex_);
	const auto found = views_.find(conf.name);
	if (bad_definitions_.contains(conf.name) || (found != views_.end() && !found->second->origin.empty()))
		throw Refused(fmt::format("{}: defined by {}; change that file and reload peerdma-viewd", conf.name,
					  definition_of(conf.name).string()));
	if (found != views_.end())
		throw Refused(fmt::format("{}: there is such a view already; withdraw it first", conf.name));
	if (ending_.contains(conf.name))
		throw Refused(fmt::format("{}: {}", conf.name, not_ended));
	const std::string text = view::conf_text(conf);
	if (text.size() > view::max_conf)
		throw Refused(fmt::format("{}: its definition has more than {} KiB", conf.name, view::max_conf >> 10));
	try {
		folder_->write(conf.name, ".conf", text);
		start(conf, "");
	} catch (...) {
		// What is refused is not published by the next service either.
		try {
			folder_->remove(conf.name, ".conf");
		} catch (const Refused &) {
			// The first error says enough.
		}
		throw;
	}
}

// With the mutex held.
void Service::start(const ViewConf &conf, const std::string &origin)
{
	if (const auto before = ending_.find(conf.name); before != ending_.end()) {
		before->second.next.emplace(conf, origin);
		return;
	}
	Published &view = *(views_[conf.name] = std::make_unique<Published>(conf, origin));
	if (!is_constructed_) {
		const std::lock_guard lock(start_mutex_);
		view.is_starting = true;
		starting_++;
	}
	const std::lock_guard view_lock(view.mutex);
	try {
		view.thread = std::thread([this, &view] {
			run(view);
			has_started(view);
			{
				const std::lock_guard lock(view.mutex);
				view.is_running = false;
			}
			view.has_run.notify_all();
		});
		view.is_running = true;
	} catch (const std::exception &error) {
		view.state = State::failed;
		view.error = fmt::format("no thread for it: {}", error.what());
		has_started(view);
		// Otherwise reads of the device that was left would wait for ever.
		try_remove_left(conf.name);
	}
}

// Ends a view and forgets it, later if its storage has not answered by then.
void Service::end(const std::string &name, Clock::time_point until, Kept kept)
{
	// With the memory that it may need.
	std::map<std::string, Ending> one;
	Ending &ending = one[name];
	ending.kept = kept;
	{
		const std::lock_guard lock(mutex_);
		ending.origin = views_.at(name)->origin;
	}
	// First: a service that dies from here on does not publish it again. A defined view has no such file.
	if (ending.origin.empty() && kept == Kept::nothing)
		folder_->remove(name, ".conf");
	{
		const std::lock_guard lock(mutex_);
		ending.view = std::move(views_.at(name));
		views_.erase(name);
	}
	if (!ending.view->end(std::max(until, Clock::now() + least_patience))) {
		// Readers of the device that an earlier service left would wait for the storage.
		if (!ending.view->has_taken_left())
			try_remove_left(name);
		{
			const std::lock_guard lock(mutex_);
			ending_.merge(one);
		}
		has_ending_.notify_all();
		return;
	}
	close_files(std::move(ending.view));
	forget(name, kept);
}

// On a thread of its own: ends views whose storage has answered at last.
void Service::end_later()
{
	std::unique_lock lock(mutex_);
	while (!is_stopped_) {
		if (ending_.empty()) {
			has_ending_.wait(lock);
			continue;
		}
		has_ending_.wait_for(lock, std::chrono::milliseconds(100));
		for (auto at = ending_.begin(); at != ending_.end() && !is_stopped_;) {
			const auto ending = at++;
			const Kept kept = ending->second.kept;
			// Nobody else takes it out.
			lock.unlock();
			const bool has_ended = ending->second.view->end(Clock::now());
			if (has_ended) {
				close_files(std::move(ending->second.view));
				forget(ending->first, kept);
			}
			lock.lock();
			if (!has_ended)
				continue;
			const std::optional<std::pair<ViewConf, std::string>> next = std::move(ending->second.next);
			at = ending_.erase(ending);
			try {
				if (next)
					start(next->first, next->second);
			} catch (const std::exception &) {
				// The next reload starts it.
			}
		}
	}
}

// Removes what there is of a view that is not published any more: the device that a service before has left, if this one has not taken it
// over yet, and what the folder keeps, but for what the view needs if it is published again.
void Service::forget(const std::string &name, Kept kept) noexcept
{
	try {
		remove_left(name);
		if (kept != Kept::scan)
			folder_->remove_all(name, {".scan", index_prefix});
		if (kept == Kept::nothing)
			folder_->remove(name, ".device");
	} catch (const std::exception &error) {
		// The next service finds what is left.
		std::fprintf(stderr, "peerdma-viewd: %s: %s\n", name.c_str(), error.what());
	}
}

void Service::withdraw(const std::string &name)
{
	const std::lock_guard change(change_mutex_);
	{
		const std::lock_guard lock(mutex_);
		const auto found = views_.find(name);
		const auto before = ending_.find(name);
		const bool is_defined =
			found != views_.end() ?
				!found->second->origin.empty() :
				bad_definitions_.contains(name) || (before != ending_.end() && before->second.next &&
								    !before->second.next->second.empty());
		if (is_defined)
			throw Refused(fmt::format("{}: defined by {}; remove that file and reload peerdma-viewd", name,
						  definition_of(name).string()));
		if (before != ending_.end())
			throw Refused(fmt::format("{}: {}", name, not_ended));
		if (found == views_.end())
			throw Refused(fmt::format("{}: there is no such view", name));
	}
	end(name, Clock::now() + options_.patience, Kept::nothing);
}

// Asks the storage of all views how their files are. One that does not answer is not waited for.
void Service::ask_storage()
{
	const auto answers = std::make_shared<std::counting_semaphore<>>(0);
	size_t asked = 0;
	{
		const std::lock_guard lock(mutex_);
		for (const auto &[name, view] : views_) {
			const std::lock_guard view_lock(view->mutex);
			if (!view->served)
				continue;
			asked += view->served->ask_all([answers] { answers->release(); });
		}
	}
	for (const Clock::time_point until = Clock::now() + options_.patience;
	     asked && answers->try_acquire_until(until);)
		asked--;
}

void Service::reload()
{
	const std::lock_guard change(change_mutex_);
	Definitions found;
	try {
		found = read_definitions(options_.conf_dir);
	} catch (const fs::filesystem_error &error) {
		const std::lock_guard lock(mutex_);
		conf_error_ = fmt::format("{}: {}", options_.conf_dir.string(), error.code().message());
		if (const size_t held = count_held())
			conf_error_ += fmt::format("; views that a service before has published: {}; reads of devices "
						   "that it has left wait until peerdma-viewd is reloaded",
						   held);
		return;
	}
	ask_storage();
	std::map<std::string, Kept> ending;
	std::vector<ViewConf> failed; // published by command
	{
		const std::lock_guard lock(mutex_);
		conf_error_.clear();
		// What a definition with a mistake has defined before is followed still.
		for (auto &[name, before] : ending_)
			if (!found.bad.contains(name) && before.next && !before.next->second.empty()) {
				before.next.reset();
				if (!found.good.contains(name))
					before.kept = Kept::nothing;
			}
		for (const auto &[name, view] : views_) {
			const auto definition = found.good.find(name);
			const std::lock_guard view_lock(view->mutex);
			const bool has_failed = view->state == State::failed;
			if (view->origin.empty()) {
				// Not at the start, which has tried it. One whose saved definition is damaged has no files.
				if (has_failed && is_constructed_ && !view->conf.files.empty()) {
					ending[name] = Kept::scan;
					failed.push_back(view->conf);
				}
				if (definition != found.good.end()) {
					found.bad[name] = fmt::format("{}: {} was published by command; withdraw it, "
								      "then reload peerdma-viewd",
								      definition_of(name).string(), name);
					found.good.erase(definition);
				}
				continue;
			}
			// What a scan of other bytes has found is of no use. That of a view that has failed knows which files it is of.
			const bool is_stale = view->served && view->served->is_stale();
			if (definition != found.good.end() && definition->second == view->conf && !has_failed &&
			    !is_stale)
				found.good.erase(definition);
			else if (definition != found.good.end())
				ending[name] = is_stale ? Kept::number : Kept::scan;
			else if (!found.bad.contains(name))
				ending[name] = Kept::nothing;
		}
		bad_definitions_ = std::move(found.bad);
		for (const auto &[name, kept] : ending)
			views_.at(name)->stop = true;
	}
	// None of them is refused: only a view that was published by command, and ends for good, has a definition to remove.
	const Clock::time_point until = Clock::now() + options_.patience;
	std::vector<std::string> names;
	for (const auto &[name, kept] : ending)
		names.push_back(name);
	for_each_at_once(names, [&](const std::string &name) { end(name, until, ending.at(name)); });
	{
		const std::lock_guard lock(mutex_);
		for (const ViewConf &conf : failed)
			start(conf, "");
		for (const auto &[name, conf] : found.good)
			start(conf, definition_of(name));
	}
	if (!is_left_discarded_)
		discard_left(found.unread);
	is_left_discarded_ |= found.unread.empty();
}

std::string Service::conf_error() const
{
	const std::lock_guard lock(mutex_);
	return conf_error_;
}

std::vector<std::string> Service::conf_errors() const
{
	const std::lock_guard lock(mutex_);
	std::vector<std::string> all;
	if (!conf_error_.empty())
		all.push_back(conf_error_);
	for (const auto &[name, error] : bad_definitions_)
		all.push_back(error);
	return all;
}

void Service::plan(const std::string &name, const std::vector<std::pair<uint64_t, uint64_t>> &ranges)
{
	if (ranges.size() > Plan::max_ranges)
		throw Refused(fmt::format("{}: a plan of {} ranges; expected at most {}", name, ranges.size(),
					  Plan::max_ranges));
	const std::lock_guard lock(mutex_);
	const auto found = views_.find(name);
	if (found == views_.end())
		throw Refused(fmt::format("{}: there is no such view", name));
	const std::lock_guard view_lock(found->second->mutex);
	const Published &view = *found->second;
	if (view.state != State::published)
		throw Refused(fmt::format("{}: the view is not published yet", name));
	const Summary &summary = *view.summary;
	std::vector<Plan::Range> bytes;
	bytes.reserve(ranges.size());
	for (const auto &[first, count] : ranges) {
		if (!count || first >= summary.elements || count > summary.elements - first)
			throw Refused(fmt::format("{}: range {} of the plan: {} elements from {} on; the view has {}",
						  name, bytes.size(), count, first, summary.elements));
		bytes.push_back({summary.codec.reduced_bytes(first) - (first % 8 * summary.codec.bits % 8 != 0),
				 summary.codec.reduced_bytes(first + count)});
	}
	view.served->plan(Plan(std::move(bytes)));
}

std::vector<Service::ViewStatus> Service::status() const
{
	const std::lock_guard lock(mutex_);
	std::vector<ViewStatus> all;
	for (const auto &[name, view] : views_) {
		const std::lock_guard view_lock(view->mutex);
		ViewStatus status;
		status.conf = view->conf;
		status.origin = view->origin;
		status.state = view->state;
		status.error = view->error;
		status.steps_done = view->steps_done;
		status.steps = view->steps;
		status.summary = view->summary;
		status.note = view->closed.empty() ? view->note : view->closed;
		if (const auto bad = bad_definitions_.find(name); bad != bad_definitions_.end())
			status.conf_error = bad->second;
		if (view->device) {
			status.device = view->device->path();
			status.nqn = view->device->nqn();
		}
		if (view->served)
			status.served = view->served->status();
		all.push_back(std::move(status));
	}
	for (const auto &[name, ending] : ending_) {
		ViewStatus status;
		status.conf.name = name;
		status.state = State::ending;
		status.origin = ending.origin;
		status.error = not_ended;
		if (ending.next) {
			std::tie(status.conf, status.origin) = *ending.next;
			status.error += "; then it is published as it is defined now";
		}
		if (const auto bad = bad_definitions_.find(name); bad != bad_definitions_.end())
			status.conf_error = bad->second;
		all.push_back(std::move(status));
	}
	for (const auto &[name, error] : bad_definitions_) {
		if (views_.contains(name) || ending_.contains(name))
			continue;
		ViewStatus status;
		status.conf.name = name;
		status.origin = definition_of(name);
		status.state = State::failed;
		status.error = error;
		all.push_back(std::move(status));
	}
	std::ranges::sort(all, {}, [](const ViewStatus &status) -> const std::string & { return status.conf.name; });
	return all;
}

void Service::run(Published &view)
{
	try {
		finish_later(view, scan(view));
	} catch (const std::exception &error) {
		if (view.take_left())
			try_remove_left(view.conf.name);
		const std::lock_guard lock(view.mutex);
		view.state = State::failed;
		try {
			view.error = error.what();
		} catch (const std::bad_alloc &) {
			// It has failed, without words.
		}
	}
}

// The others need not wait for it any more.
void Service::has_started(Published &view)
{
	const std::lock_guard lock(start_mutex_);
	if (std::exchange(view.is_starting, false) && --starting_ == 0)
		have_started_.notify_all();
}

// On the view's thread, when it is ready for its hosts. A host that reconnects after the port has opened must find its view.
void Service::wait_for_others(Published &view)
{
	has_started(view);
	std::unique_lock lock(start_mutex_);
	while (starting_ && !view.stop && Clock::now() < begun_ + options_.start_patience)
		have_started_.wait_for(lock, std::chrono::milliseconds(200));
}

// Removes the device that a service before has left for this view, if there is one, and which this one has not taken over: its
// requests would wait for ever. Its record stays: if the view has the same header again, the next device has the same cookie. Returns
// whether there was one.
bool Service::remove_left(const std::string &name)
{
	const DeviceRecord record = DeviceRecord::parse(folder_->read(name, ".device"));
	return record.cookie && devices_.remove_left(name, record.cookie);
}

void Service::try_remove_left(const std::string &name) noexcept
{
	try {
		remove_left(name);
	} catch (const std::exception &error) {
		// The next service tries again.
		std::fprintf(stderr, "peerdma-viewd: %s: %s\n", name.c_str(), error.what());
	}
}

// On the view's thread. Returns what `work` returns, or false if the view is stopped before or during it.
template <class Work> bool Service::unless_stopped(const Published &view, const Work &work)
{
	try {
		return !view.stop && work();
	} catch (const view::SourceError &) {
		if (!view.stop)
			throw;
		return false;
	}
}

// On the view's thread. Returns false if it was stopped.
bool Service::index(Published &view, std::vector<std::unique_ptr<view::Source>> &sources)
{
	// All of them first: each save is of all.
	bool is_known = true;
	for (size_t i = 0; i < sources.size(); i++)
		is_known &= sources[i]->resume_index(folder_->read(view.conf.name, index_kind(i)));
	if (view.conf.compressed && !is_known && !discard_stale(view))
		return false;
	SaveTimer timer;
	for (size_t i = 0; i < sources.size(); i++) {
		for (bool done = false; !done;) {
			done = unless_stopped(view, [&] { return sources[i]->index(scanned_at_once); });
			timer.save_if_due(view.stop, [&] { write(view.conf.name, indices_of(sources)); });
			if (view.stop)
				return false;
		}
	}
	if (view.conf.compressed && !is_known)
		timer.save_if_due(true, [&] { write(view.conf.name, indices_of(sources)); });
	return true;
}

void Service::write(const std::string &name, const Unsaved &files) const
{
	for (const auto &[kind, text] : files)
		folder_->write(name, kind, text);
}

// On the view's thread, once it is published: what could not be done yet. Space comes back, and an address or a network card may come
// after the service.
void Service::finish_later(Published &view, const Unsaved &unsaved)
{
	Clock::time_point next = Clock::now() + tried_again_every;
	bool is_saved = unsaved.empty(), is_open = view.closed.empty();
	while (!(is_saved && is_open) && !view.stop) {
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
		if (Clock::now() < next)
			continue;
		next += tried_again_every;
		try {
			if (!is_saved)
				write(view.conf.name, unsaved);
			is_saved = true;
		} catch (const std::exception &) {
		}
		try {
			const std::string why_not = is_open ? "" : open(*view.device);
			is_open = why_not.empty();
			const std::lock_guard lock(view.mutex);
			view.closed = why_not;
			if (is_saved && view.note == not_saved)
				view.note.clear();
		} catch (const std::bad_alloc &) {
			// It is served all the same.
		}
	}
}

// Lets hosts connect. Returns why some of them cannot yet.
std::string Service::open(BlockDevice &device)
{
	try {
		device.open();
		return "";
	} catch (const std::exception &error) {
		return fmt::format("{}; tried again every {} s", error.what(), tried_again_every.count());
	}
}

// Whoever has read the header of the device that a service before has left would take other elements for those that it describes.
// Returns false if the view is being ended.
bool Service::discard_stale(Published &view)
{
	has_started(view); // to read its files takes longer
	if (!view.take_left())
		return false;
	if (!remove_left(view.conf.name))
		return true;
	const std::lock_guard lock(view.mutex);
	view.note = "fresh device: the files are not those that the one before had";
	return true;
}

// Lets the files that a view's thread reads be stopped.
class Service::Stoppable
{
public:
	// Of files that outlive it.
	Stoppable(Published &view, const std::vector<std::unique_ptr<view::Source>> &files) : view_(view)
	{
		const std::lock_guard lock(view_.mutex);
		view_.scanned.reserve(files.size());
		for (const std::unique_ptr<view::Source> &file : files)
			view_.scanned.push_back(file.get());
		// It may have been too late for these.
		if (view_.stop)
			for (view::Source *file : view_.scanned)
				file->stop();
	}
	~Stoppable()
	{
		const std::lock_guard lock(view_.mutex);
		view_.scanned.clear();
	}
	Stoppable(const Stoppable &) = delete;
	Stoppable &operator=(const Stoppable &) = delete;

private:
	Published &view_;
};

// Of a view. Throws Refused if no client reads one of so many bytes.
void Service::check_header(uint64_t bytes) const
{
	if (bytes > options_.max_header)
		throw Refused(
			fmt::format("the names of its files and the sums of its data take {} KiB, of which a client "
				    "reads at most {}: publish fewer files, or a part of them, in one view",
				    bytes >> 10, options_.max_header >> 10));
}

// On the view's thread. Returns nothing if it was stopped. Whoever has a lease on a file, as a file server has for its clients, is asked by
// the first try to give it back.
std::unique_ptr<view::Source> Service::open(Published &view, const std::string &path)
{
	const Clock::time_point last = Clock::now() + lease_patience;
	while (!view.stop) {
		try {
			return view.conf.compressed ? view::open_compressed(path, decompressors_) :
						      view::open_plain(path);
		} catch (const view::SourceError &error) {
			if (error.error != EAGAIN || Clock::now() >= last)
				throw;
		}
		has_started(view);
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
	}
	return nullptr;
}

// On the view's thread, until it is published or stopped.
Service::Unsaved Service::scan(Published &view)
{
	const std::string &name = view.conf.name;
	std::vector<std::unique_ptr<view::Source>> sources;
	for (const std::string &path : view::expand(view.conf.files)) {
		sources.push_back(open(view, path));
		if (!sources.back())
			return {};
	}
	std::optional<view::Sequence> sequence;
	const Stoppable stoppable(view, sources);
	if (!index(view, sources))
		return {};
	view::Sequence &files = sequence.emplace(view.conf.element, std::move(sources));
	view::Scan scan(files, view.conf.codec);
	check_header(scan.least_header_bytes());
	scan.resume(folder_->read(name, ".scan"));
	if (scan.steps_done() < scan.steps() && !discard_stale(view))
		return {};
	const bool is_saved = scan.steps_done() == scan.steps();
	const auto results = [&] {
		Unsaved all = indices_of(files.files());
		all.emplace_back(".scan", scan.save());
		return all;
	};
	SaveTimer timer;
	for (bool done = false; !done;) {
		done = unless_stopped(view, [&] {
			const Turn turn(turns_, files.storage(), view.stop);
			return turn && scan.advance(scanned_at_once);
		});
		{
			const std::lock_guard lock(view.mutex);
			view.steps_done = scan.steps_done();
			view.steps = scan.steps();
		}
		if (!is_saved)
			timer.save_if_due(done || view.stop, [&] { write(name, results()); });
		if (view.stop)
			return {};
	}
	Unsaved unsaved;
	if (timer.has_failed())
		unsaved = results();

	const view::Header header = scan.header();
	check_header(header.bytes());
	const uint32_t header_sum = view::crc32c(view::serialize(header));
	const std::vector<view::Identity> identities = scan.identities();
	{
		const std::lock_guard lock(view.mutex);
		view.files.emplace(std::move(files));
		view.served = std::make_unique<ServedView>(cache_, *view.files, header, identities, view.conf.prefetch);
	}
	std::unique_ptr<BlockDevice> device = serve(view, header_sum);
	if (!device)
		return {};
	if (device->opens_port())
		wait_for_others(view);
	if (view.stop)
		return {};
	std::string why_not = open(*device);
	if (!why_not.empty())
		std::fprintf(stderr, "peerdma-viewd: %s: %s\n", name.c_str(), why_not.c_str());
	const std::lock_guard lock(view.mutex);
	view.closed = std::move(why_not);
	view.summary = {header.codec, header.elements, header.data_bytes(), header.files.size()};
	if (view.note.empty())
		view.note = device->note();
	if (view.note.empty() && !unsaved.empty())
		view.note = not_saved;
	view.device = std::move(device);
	view.state = State::published;
	return unsaved;
}

// On the view's thread. Returns nothing if it was stopped.
std::unique_ptr<BlockDevice> Service::serve(Published &view, uint32_t header_sum)
{
	const std::string &name = view.conf.name;
	const Turn turn(turns_, view.files->storage(), view.stop);
	if (!turn || !view.take_left())
		return nullptr;
	const DeviceRecord before = DeviceRecord::parse(folder_->read(name, ".device"));
	DeviceRecord record = before;
	const bool is_same = before.cookie && before.header == header_sum;
	if (before.cookie && !is_same)
		discard_stale(view);
	if (!is_same) {
		do
			record = DeviceRecord::of(header_sum, next_remainder());
		while (before.cookie &&
		       record.cookie % BlockDevices::cookie_period == before.cookie % BlockDevices::cookie_period);
		folder_->write(name, ".device", record.text());
	}
	// It is read before this returns: the kernel looks for partitions.
	return devices_.serve(*view.served, view.conf, record.cookie);
}

} // namespace viewd
