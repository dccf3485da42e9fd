// SPDX-License-Identifier: MIT
#include "viewd/service.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "view/source.hpp"

namespace viewd
{

namespace
{

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t scanned_at_once = 64 << 20; // bytes, between looks whether to stop
constexpr auto saved_every = std::chrono::seconds(10);

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
	std::optional<view::Header> header;
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
	: options_(options), devices_(devices),
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
}

std::vector<Service::ViewStatus> Service::status() const
{
	const std::lock_guard lock(mutex_);
	std::vector<ViewStatus> all;
	for (const auto &[name, view] : views_) {
		const std::lock_guard view_lock(view->mutex);
		ViewStatus status = {view->conf, view->state, view->error, view->steps_done, view->steps, view->header,
				     "",         "",          {}};
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
		const std::lock_guard lock(view.mutex);
		view.state = State::failed;
		view.error = error.what();
	}
}

// On the view's thread.
void Service::scan(Published &view)
{
	std::vector<std::unique_ptr<view::Source>> sources;
	for (const std::string &path : expand(view.conf.files))
		sources.push_back(view::open_plain(path));
	view::Sequence files(view.conf.element, std::move(sources));
	view::Scan scan(files, view.conf.codec);
	const fs::path saved = file_of(view.conf.name, ".scan"), device_file = file_of(view.conf.name, ".device");
	scan.resume(read_file(saved));
	Clock::time_point next_save = Clock::now() + saved_every;
	for (bool done = false; !done;) {
		if (view.stop) {
			write_file(saved, scan.save());
			return;
		}
		done = scan.advance(scanned_at_once);
		{
			const std::lock_guard lock(view.mutex);
			view.steps_done = scan.steps_done();
			view.steps = scan.steps();
		}
		if (done || Clock::now() >= next_save) {
			write_file(saved, scan.save());
			next_save = Clock::now() + saved_every;
		}
	}

	const view::Header header = scan.header();
	const std::vector<view::Identity> identities = scan.identities();
	{
		const std::lock_guard lock(view.mutex);
		view.files.emplace(std::move(files));
		view.served = std::make_unique<ServedView>(cache_, *view.files, header, identities, view.conf.prefetch);
	}
	int left = -1;
	const std::string number = read_file(device_file);
	std::from_chars(number.data(), number.data() + number.size(), left);
	// It is read before this returns: the kernel looks for partitions.
	std::unique_ptr<BlockDevice> device = devices_.serve(*view.served, view.conf, left);
	write_file(device_file, fmt::format("{}\n", device->number()));
	const std::lock_guard lock(view.mutex);
	view.header = header;
	view.device = std::move(device);
	view.state = State::published;
}

} // namespace viewd
