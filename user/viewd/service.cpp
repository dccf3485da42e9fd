// SPDX-License-Identifier: MIT
#include "viewd/service.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <random>
#include <set>
#include <sstream>
#include <system_error>
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

// A turn to work on a view's files, until its end; none if the view is stopped before it comes.
class Turn
{
public:
	Turn(std::counting_semaphore<> &turns, const std::atomic<bool> &stop) : turns_(turns)
	{
		while (!stop && !(is_taken_ = turns_.try_acquire_for(std::chrono::milliseconds(100)))) {}
	}
	~Turn()
	{
		if (is_taken_)
			turns_.release();
	}
	Turn(const Turn &) = delete;
	Turn &operator=(const Turn &) = delete;
	explicit operator bool() const { return is_taken_; }

private:
	std::counting_semaphore<> &turns_;
	bool is_taken_ = false;
};

constexpr const char *not_saved = "not saved: a service that is killed now has to scan again, and makes a fresh device";
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

// NAME.device: the cookie of a view's device, and the CRC of the header that it has. It is written before the device is made.
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
	static DeviceRecord of(uint32_t header)
	{
		std::random_device random;
		DeviceRecord record = {0, header};
		while (!record.cookie)
			record.cookie = static_cast<uint64_t>(random()) << 32 | random();
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
	}
	return "";
}

struct Service::Published {
	Published(ViewConf what, std::string from) : conf(std::move(what)), origin(std::move(from)) {}

	const ViewConf conf;
	const std::string origin;
	std::atomic<bool> stop = false;
	mutable std::mutex mutex; // protects the members up to `device`, which the view's thread writes
	State state = State::scanning;
	std::string error;
	uint64_t steps_done = 0, steps = 0;
	std::optional<Summary> summary;
	std::string note;
	std::optional<view::Sequence> files;
	std::unique_ptr<ServedView> served;
	std::unique_ptr<BlockDevice> device;
	std::thread thread;

	~Published()
	{
		stop = true;
		if (thread.joinable())
			thread.join();
		// The device's reads end before it can be removed: those that wait fail.
		if (served)
			served->withdraw();
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
	  cache_(chunks_of(options), options.workers), turns_(std::max(options.workers, 1U))
{
	publish_saved();
	reload();
}

Service::~Service()
{
	try {
		std::vector<std::string> names;
		for (const auto &[name, view] : views_) {
			view->stop = true;
			names.push_back(name);
		}
		for_each_at_once(names, [this](const std::string &name) { finish(name, std::move(views_.at(name))); });
	} catch (const std::exception &) {
		// The next service finds what is left.
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
		if (is_kept && !views_.contains(name) && !unread.contains(name))
			left[name] = bad_definitions_.contains(name);
	}
	std::vector<std::string> names;
	for (const auto &[name, is_defined] : left)
		names.push_back(name);
	for_each_at_once(names, [&](const std::string &name) {
		try_remove_left(name);
		if (!left.at(name))
			forget(name);
	});
}

// With the mutex held: devices that a service before has left for views that this one does not know.
size_t Service::count_held() const
{
	if (is_left_discarded_)
		return 0;
	return static_cast<size_t>(std::ranges::count_if(folder_->files(), [this](const fs::path &path) {
		return path.extension() == ".device" && !views_.contains(path.stem());
	}));
}

fs::path Service::definition_of(const std::string &name) const { return options_.conf_dir / (name + ".conf"); }

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
	Published &view = *(views_[conf.name] = std::make_unique<Published>(conf, origin));
	try {
		view.thread = std::thread([this, &view] { run(view); });
	} catch (const std::exception &error) {
		const std::lock_guard view_lock(view.mutex);
		view.state = State::failed;
		view.error = fmt::format("no thread for it: {}", error.what());
	}
}

// Ends a view and forgets it.
void Service::end(const std::string &name)
{
	bool is_defined;
	{
		const std::lock_guard lock(mutex_);
		is_defined = !views_.at(name)->origin.empty();
	}
	// First: a service that dies from here on does not publish it again. A defined view has no such file.
	if (!is_defined)
		folder_->remove(name, ".conf");
	std::unique_ptr<Published> view;
	{
		const std::lock_guard lock(mutex_);
		view = std::move(views_.at(name));
		views_.erase(name);
	}
	finish(name, std::move(view));
	forget(name);
}

// Waits until a view's thread writes no more, and removes its device, or the one that a service before has left and that this one
// has not taken over yet.
void Service::finish(const std::string &name, std::unique_ptr<Published> view)
{
	view->stop = true;
	if (view->thread.joinable())
		view->thread.join();
	view.reset();
	try_remove_left(name);
}

// Removes what the folder keeps of a view that is there no more.
void Service::forget(const std::string &name)
{
	try {
		folder_->remove_all(name, {".scan", index_prefix});
	} catch (const std::exception &) {
		// The next service finds what is left.
	}
}

void Service::withdraw(const std::string &name)
{
	const std::lock_guard change(change_mutex_);
	{
		const std::lock_guard lock(mutex_);
		const auto found = views_.find(name);
		const bool is_defined =
			found != views_.end() ? !found->second->origin.empty() : bad_definitions_.contains(name);
		if (is_defined)
			throw Refused(fmt::format("{}: defined by {}; remove that file and reload peerdma-viewd", name,
						  definition_of(name).string()));
		if (found == views_.end())
			throw Refused(fmt::format("{}: there is no such view", name));
	}
	end(name);
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
			conf_error_ +=
				fmt::format("; devices that a service before has left: {}; their reads wait until "
					    "peerdma-viewd is reloaded",
					    held);
		return;
	}
	std::vector<std::string> ending;
	{
		const std::lock_guard lock(mutex_);
		conf_error_.clear();
		for (const auto &[name, view] : views_) {
			const auto definition = found.good.find(name);
			if (view->origin.empty()) {
				if (definition != found.good.end()) {
					found.bad[name] = fmt::format("{}: {} was published by command; withdraw it, "
								      "then reload peerdma-viewd",
								      definition_of(name).string(), name);
					found.good.erase(definition);
				}
				continue;
			}
			const std::lock_guard view_lock(view->mutex);
			// The last question reads the files' times, which may wait for the storage.
			if (definition != found.good.end() && definition->second == view->conf &&
			    view->state != State::failed && !(view->served && view->served->is_stale()))
				found.good.erase(definition);
			else if (definition != found.good.end() || !found.bad.contains(name))
				ending.push_back(name);
		}
		bad_definitions_ = std::move(found.bad);
		for (const std::string &name : ending)
			views_.at(name)->stop = true;
	}
	// None of them is refused: only a view that was published by command has a definition to remove.
	for_each_at_once(ending, [&](const std::string &name) { end(name); });
	{
		const std::lock_guard lock(mutex_);
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
		status.note = view->note;
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
	for (const auto &[name, error] : bad_definitions_) {
		if (views_.contains(name))
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
		save_later(view, scan(view));
	} catch (const std::exception &error) {
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

// Removes the device that a service before has left for this view, if there is one, and which this one has not taken over: its
// requests would wait for ever. Returns whether there was one.
bool Service::remove_left(const std::string &name)
{
	const DeviceRecord record = DeviceRecord::parse(folder_->read(name, ".device"));
	const bool was_left = record.cookie && devices_.remove_left(name, record.cookie);
	folder_->remove(name, ".device");
	return was_left;
}

void Service::try_remove_left(const std::string &name) noexcept
{
	try {
		remove_left(name);
	} catch (const std::exception &error) {
		// Its record stays: the next service tries again.
		std::fprintf(stderr, "peerdma-viewd: %s: %s\n", name.c_str(), error.what());
	}
}

// On the view's thread. Returns false if it was stopped.
bool Service::index(Published &view, std::vector<std::unique_ptr<view::Source>> &sources)
{
	// All of them first: each save is of all.
	bool is_known = true;
	for (size_t i = 0; i < sources.size(); i++)
		is_known &= sources[i]->resume_index(folder_->read(view.conf.name, index_kind(i)));
	if (view.conf.compressed && !is_known)
		discard_stale(view);
	SaveTimer timer;
	for (size_t i = 0; i < sources.size(); i++) {
		for (bool done = false; !done;) {
			if (!view.stop)
				done = sources[i]->index(scanned_at_once);
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

// On the view's thread, once it is published. Space may come back.
void Service::save_later(Published &view, const Unsaved &unsaved)
{
	Clock::time_point next = Clock::now() + saved_every;
	for (bool is_saved = unsaved.empty(); !is_saved && !view.stop;) {
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
		if (Clock::now() < next)
			continue;
		next += saved_every;
		try {
			write(view.conf.name, unsaved);
			is_saved = true;
		} catch (const std::exception &) {
			continue;
		}
		const std::lock_guard lock(view.mutex);
		if (view.note == not_saved)
			view.note.clear();
	}
}

// Whoever has read the header of the device that a service before has left would take other elements for those that it describes.
void Service::discard_stale(Published &view)
{
	if (!remove_left(view.conf.name))
		return;
	const std::lock_guard lock(view.mutex);
	view.note = "fresh device: the files are not those that the one before had";
}

// On the view's thread, until it is published or stopped.
Service::Unsaved Service::scan(Published &view)
{
	const std::string &name = view.conf.name;
	std::vector<std::unique_ptr<view::Source>> sources;
	for (const std::string &path : view::expand(view.conf.files))
		sources.push_back(view.conf.compressed ? view::open_compressed(path, decompressors_) :
							 view::open_plain(path));
	if (!index(view, sources))
		return {};
	view::Sequence files(view.conf.element, std::move(sources));
	view::Scan scan(files, view.conf.codec);
	scan.resume(folder_->read(name, ".scan"));
	if (scan.steps_done() < scan.steps())
		discard_stale(view);
	const bool is_saved = scan.steps_done() == scan.steps();
	const auto results = [&] {
		Unsaved all = indices_of(files.files());
		all.emplace_back(".scan", scan.save());
		return all;
	};
	SaveTimer timer;
	for (bool done = false; !done;) {
		if (const Turn turn(turns_, view.stop); turn)
			done = scan.advance(scanned_at_once);
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
	const uint32_t header_sum = view::crc32c(view::serialize(header));
	const std::vector<view::Identity> identities = scan.identities();
	{
		const std::lock_guard lock(view.mutex);
		view.files.emplace(std::move(files));
		view.served = std::make_unique<ServedView>(cache_, *view.files, header, identities, view.conf.prefetch);
	}
	const Turn turn(turns_, view.stop);
	if (!turn)
		return {};
	DeviceRecord record = DeviceRecord::parse(folder_->read(name, ".device"));
	if (record.cookie && record.header != header_sum) {
		discard_stale(view);
		record = {};
	}
	if (!record.cookie) {
		record = DeviceRecord::of(header_sum);
		folder_->write(name, ".device", record.text());
	}
	// It is read before this returns: the kernel looks for partitions.
	std::unique_ptr<BlockDevice> device = devices_.serve(*view.served, view.conf, record.cookie);
	const std::lock_guard lock(view.mutex);
	view.summary = {header.codec, header.elements, header.data_bytes(), header.files.size()};
	if (view.note.empty())
		view.note = device->note();
	if (view.note.empty() && !unsaved.empty())
		view.note = not_saved;
	view.device = std::move(device);
	view.state = State::published;
	return unsaved;
}

} // namespace viewd
