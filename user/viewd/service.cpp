// SPDX-License-Identifier: MIT
#include "viewd/service.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

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

// "" if there is none.
std::string read_file(const fs::path &path)
{
	std::ostringstream text;
	text << std::ifstream(path, std::ios::binary).rdbuf();
	return text.str();
}

// Replaces the file as a whole, also if the machine stops meanwhile. Throws Refused.
void write_file(const fs::path &path, const std::string &text)
{
	const std::string fresh = path.string() + ".new";
	const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int error = fd < 0 ? errno : 0;
	for (size_t at = 0; !error && at < text.size();) {
		const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
		if (n < 0 && errno != EINTR)
			error = errno;
		at += n > 0 ? static_cast<size_t>(n) : 0;
	}
	if (!error && ::fsync(fd) < 0)
		error = errno;
	if (fd >= 0 && ::close(fd) < 0 && !error)
		error = errno;
	if (!error && ::rename(fresh.c_str(), path.c_str()) < 0)
		error = errno;
	if (error)
		throw Refused(fmt::format("{}: {}", path.string(), std::strerror(error)));
}

std::string index_kind(size_t file) { return fmt::format(".index-{}", file); }

// Calls `save` now and then.
class SaveTimer
{
public:
	template <class Save> void save_if_due(bool now, Save &&save)
	{
		const Clock::time_point began = Clock::now();
		if (!now && began < next_)
			return;
		save();
		const Clock::time_point ended = Clock::now();
		next_ = ended + std::max<Clock::duration>(saved_every, (ended - began) * saves_share);
	}

private:
	Clock::time_point next_ = Clock::now() + saved_every;
};

// The numbers of devices are given out anew when the machine starts.
std::string boot_id()
{
	std::string id = read_file("/proc/sys/kernel/random/boot_id");
	std::erase(id, '\n');
	return id;
}

// NAME.device: which device it is, of which boot, and the CRC of the header that it had.
struct LeftDevice {
	int number = -1;
	std::string boot;
	uint32_t header = 0;

	static LeftDevice parse(const std::string &text)
	{
		LeftDevice left;
		std::istringstream in(text);
		in >> left.number >> left.boot >> left.header;
		return in && left.number >= 0 && left.boot == boot_id() ? left : LeftDevice();
	}
	std::string text() const { return fmt::format("{} {} {}\n", number, boot, header); }
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
	explicit Published(ViewConf what) : conf(std::move(what)) {}

	const ViewConf conf;
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

Service::Service(const Options &options, BlockDevices &devices)
	: options_(options), devices_(devices), decompressors_(options.decompress_memory),
	  cache_(std::max<uint64_t>(options.memory / ChunkCache::chunk_size, 2), options.workers)
{
	std::error_code error;
	fs::create_directories(options_.folder, error);
	if (error)
		throw std::runtime_error(fmt::format("{}: {}", options_.folder.string(), error.message()));
	for (const fs::directory_entry &entry : fs::directory_iterator(options_.folder)) {
		if (entry.path().extension() != ".conf")
			continue;
		const std::string name = entry.path().stem();
		try {
			start(parse_conf(entry.path(), name, read_file(entry.path())));
		} catch (const BadConf &bad) {
			auto view = std::make_unique<Published>(ViewConf{.name = name});
			view->state = State::failed;
			view->error = bad.what();
			views_[name] = std::move(view);
		}
	}
}

Service::~Service()
{
	const std::lock_guard lock(mutex_);
	// Their devices are removed: there is none to be taken over.
	std::error_code ignored;
	for (auto &[name, view] : views_) {
		view.reset();
		fs::remove(file_of(name, ".device"), ignored);
	}
	views_.clear();
}

fs::path Service::file_of(const std::string &name, const char *kind) const { return options_.folder / (name + kind); }

void Service::publish(const ViewConf &conf)
{
	const std::lock_guard lock(mutex_);
	if (views_.contains(conf.name))
		throw Refused(fmt::format("{}: there is such a view already; withdraw it first", conf.name));
	write_file(file_of(conf.name, ".conf"), conf_text(conf));
	start(conf);
}

// With the mutex held, or from the constructor.
void Service::start(const ViewConf &conf)
{
	auto view = std::make_unique<Published>(conf);
	view->thread = std::thread([this, view = view.get()] { run(*view); });
	views_[conf.name] = std::move(view);
}

void Service::withdraw(const std::string &name)
{
	std::unique_ptr<Published> view;
	{
		const std::lock_guard lock(mutex_);
		const auto found = views_.find(name);
		if (found == views_.end())
			throw Refused(fmt::format("{}: there is no such view", name));
		view = std::move(found->second);
		views_.erase(found);
	}
	// First: a service that dies from here on does not publish it again.
	std::error_code ignored;
	for (const char *kind : {".conf", ".scan", ".device"})
		fs::remove_all(file_of(name, kind), ignored);
	view.reset();
	for (size_t i = 0; fs::remove(file_of(name, index_kind(i).c_str()), ignored); i++) {}
	// What its thread has saved since.
	fs::remove_all(file_of(name, ".scan"), ignored);
	fs::remove_all(file_of(name, ".device"), ignored);
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
		ViewStatus status = {view->conf,    view->state, view->error, view->steps_done, view->steps,
				     view->summary, {},          {},          view->note,       {}};
		if (view->device) {
			status.device = view->device->path();
			status.nqn = view->device->nqn();
		}
		if (view->served)
			status.served = view->served->status();
		all.push_back(std::move(status));
	}
	return all;
}

void Service::run(Published &view)
{
	try {
		scan(view);
	} catch (const std::exception &error) {
		remove_left(view);
		const std::lock_guard lock(view.mutex);
		view.state = State::failed;
		view.error = error.what();
	}
}

// On the view's thread. The device that a service before has left is of no use: its requests would wait for ever.
void Service::remove_left(Published &view)
{
	const fs::path file = file_of(view.conf.name, ".device");
	const LeftDevice left = LeftDevice::parse(read_file(file));
	if (left.number >= 0)
		devices_.remove_left(view.conf, left.number);
	std::error_code ignored;
	fs::remove(file, ignored);
}

// On the view's thread. Returns false if it was stopped.
bool Service::index(Published &view, std::vector<std::unique_ptr<view::Source>> &sources)
{
	SaveTimer timer;
	for (size_t i = 0; i < sources.size(); i++) {
		sources[i]->resume_index(read_file(file_of(view.conf.name, index_kind(i).c_str())));
		for (bool done = false; !done;) {
			if (view.stop) {
				save_indices(view, sources);
				return false;
			}
			done = sources[i]->index(scanned_at_once);
			timer.save_if_due(false, [&] { save_indices(view, sources); });
		}
	}
	return true;
}

void Service::save_indices(const Published &view, const std::vector<std::unique_ptr<view::Source>> &sources) const
{
	for (size_t i = 0; i < sources.size(); i++)
		if (const std::string index = sources[i]->save_index(); !index.empty())
			write_file(file_of(view.conf.name, index_kind(i).c_str()), index);
}

// On the view's thread.
void Service::scan(Published &view)
{
	std::vector<std::unique_ptr<view::Source>> sources;
	for (const std::string &path : expand(view.conf.files))
		sources.push_back(view.conf.compressed ? view::open_compressed(path, decompressors_) :
							 view::open_plain(path));
	if (!index(view, sources))
		return;
	view::Sequence files(view.conf.element, std::move(sources));
	view::Scan scan(files, view.conf.codec);
	const fs::path saved = file_of(view.conf.name, ".scan"), device_file = file_of(view.conf.name, ".device");
	scan.resume(read_file(saved));
	std::string note;
	if (scan.steps_done() < scan.steps() && LeftDevice::parse(read_file(device_file)).number >= 0) {
		// Whoever has read the header of before would take other elements for those that it describes.
		remove_left(view);
		note = "fresh device: the files are not those that the one before had";
	}
	const auto save = [&] {
		save_indices(view, files.files());
		write_file(saved, scan.save());
	};
	SaveTimer timer;
	for (bool done = false; !done;) {
		if (view.stop) {
			save();
			return;
		}
		done = scan.advance(scanned_at_once);
		{
			const std::lock_guard lock(view.mutex);
			view.steps_done = scan.steps_done();
			view.steps = scan.steps();
		}
		timer.save_if_due(done, save);
	}

	const view::Header header = scan.header();
	const uint32_t header_sum = view::crc32c(view::serialize(header));
	const std::vector<view::Identity> identities = scan.identities();
	{
		const std::lock_guard lock(view.mutex);
		view.files.emplace(std::move(files));
		view.served = std::make_unique<ServedView>(cache_, *view.files, header, identities, view.conf.prefetch);
	}
	LeftDevice left = LeftDevice::parse(read_file(device_file));
	if (left.number >= 0 && left.header != header_sum) {
		remove_left(view);
		note = "fresh device: the one before had another header";
		left = {};
	}
	// It is read before this returns: the kernel looks for partitions.
	std::unique_ptr<BlockDevice> device = devices_.serve(*view.served, view.conf, left.number);
	write_file(device_file, LeftDevice{device->number(), boot_id(), header_sum}.text());
	const std::lock_guard lock(view.mutex);
	view.summary = {header.codec, header.elements, header.data_bytes(), header.files.size()};
	view.note = note.empty() ? device->note() : note;
	view.device = std::move(device);
	view.state = State::published;
}

} // namespace viewd
