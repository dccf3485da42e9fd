// SPDX-License-Identifier: MIT
//
// The views that this process publishes. Each one is scanned in the background first, then served.
//
// A folder keeps, for each view, NAME.scan, what the scan has found so far; NAME.index-N, the index of its N-th file, if that is
// compressed; NAME.device, a number that its device carries, with what it had; and, of a view that was published by a request, NAME.conf,
// what it is made of. Its file .remainder has the last of those numbers modulo BlockDevices::cookie_period. A service that begins anew
// goes on from there: after one that was killed with the same devices if the kernel has kept them, else with devices of the same numbers.
//
// Other views are defined by the files NAME.conf of a directory of the administrator's, which reload() follows. A definition that is
// not valid is not followed: a view that an earlier one has published stays.
//
// No call waits for storage that does not answer for longer than some seconds. A view that is withdrawn meanwhile fails its reads; what
// else there is of it ends once the storage has answered.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "view/decompressors.hpp"
#include "view/header.hpp"
#include "view/scan.hpp"
#include "view/view_conf.hpp"
#include "viewd/chunk_cache.hpp"
#include "viewd/served_view.hpp"
#include "viewd/state_folder.hpp"
#include "viewd/turns.hpp"

namespace viewd
{

using view::ViewConf;

// A block device that is made of a view. Its destruction removes it.
class BlockDevice
{
public:
	virtual ~BlockDevice() = default;
	// Lets hosts connect to it, if it is exported. Throws std::runtime_error.
	virtual void open() {}
	// Whether open() opens a port, to which no host can connect before.
	virtual bool opens_port() const { return false; }
	virtual std::string path() const = 0;
	virtual std::string nqn() const { return ""; }  // by which hosts connect to it; "": it is not exported
	virtual std::string note() const { return ""; } // what its user should know, in words
};

// Makes block devices: by ublk, or, in tests, in memory.
class BlockDevices
{
public:
	virtual ~BlockDevices() = default;
	// The cookies of this many consecutive devices differ modulo this number: as many namespaces as the kernel's NVMe target numbers.
	static constexpr unsigned cookie_period = 1024;
	// Takes over the device that a service before has left with this cookie, if there is one; else makes one with it. cookie: not 0.
	// Throws std::runtime_error.
	virtual std::unique_ptr<BlockDevice> serve(ServedView &view, const ViewConf &conf, uint64_t cookie) = 0;
	// Removes the device of this view that a service before has left, if there is one: what waits for it fails. Returns whether
	// there was one. Throws std::runtime_error.
	virtual bool remove_left(const std::string &name, uint64_t cookie) = 0;
	// Disconnects all hosts, and lets none connect any more.
	virtual void close() noexcept {}
};

class Service
{
public:
	enum class State { scanning, published, failed, ending };
	struct Summary {
		view::Codec codec;
		uint64_t elements = 0, bytes = 0, files = 0;
	};
	struct ViewStatus {
		ViewConf conf;
		std::string origin; // the path of its definition; "": published by a request
		State state = State::scanning;
		std::string error;                  // why it failed, or has not ended
		std::string conf_error;             // why its definition is not followed
		uint64_t steps_done = 0, steps = 0; // of the scan
		std::optional<Summary> summary;     // once it is published
		std::string device, nqn, note;
		ServedView::Status served;
	};

	struct Options {
		std::filesystem::path folder;
		std::filesystem::path conf_dir = {};      // of the definitions; empty: none
		uint64_t memory = 256ULL << 20;           // bytes of chunks and of the buffers of the workers
		uint64_t decompress_memory = 64ULL << 20; // and of decompressors
		unsigned workers = 2;
		// How long a call, and the end of the process, wait for storage.
		std::chrono::milliseconds patience{2'000}, last_patience{10'000};
		// At the start: how long exported views that are ready wait for others.
		std::chrono::milliseconds start_patience{10'000};
		uint64_t max_header = view::max_client_header; // bytes of a view's header
	};

	// Publishes what the folder has and what is defined. Throws std::runtime_error if the folder cannot be used.
	Service(const Options &options, BlockDevices &devices);
	Service(const Options &options, BlockDevices &devices, std::unique_ptr<StateFolder> folder);
	// Waits for the storage too.
	~Service();
	Service(const Service &) = delete;
	Service &operator=(const Service &) = delete;

	// Ends serving; the folder keeps what was published. Names the views whose storage has not answered on stderr, and returns how many
	// there are: what waits for it does so until the process ends. Another process may use the folder then.
	size_t stop();

	// These throw Refused.
	void publish(const ViewConf &conf);
	void withdraw(const std::string &name);
	// Reads the definitions: publishes new views, withdraws those whose definition is gone, and publishes again those whose
	// definition has changed, or whose files have changed. Views that have failed are published again, those by request too.
	void reload();
	// Elements [first, first + count) of each range.
	void plan(const std::string &name, const std::vector<std::pair<uint64_t, uint64_t>> &ranges);
	std::vector<ViewStatus> status() const;
	std::string conf_dir() const { return options_.conf_dir; }
	// Why the directory of the definitions cannot be read; "" if it can.
	std::string conf_error() const;
	// What is wrong with the directory and with each definition.
	std::vector<std::string> conf_errors() const;
	ChunkCache::Counts cache_counts() const { return cache_.counts(); }

private:
	struct Published;
	class Stoppable;
	// What the folder keeps of a view that has ended: scan: the number too.
	enum class Kept { nothing, number, scan };
	// A view that was withdrawn, and that has not ended yet: a read of its files has not.
	struct Ending {
		std::unique_ptr<Published> view;
		std::string origin;
		std::optional<std::pair<ViewConf, std::string>> next; // to be started then
		Kept kept = Kept::nothing;
	};
	using Clock = std::chrono::steady_clock;

	void publish_saved();
	void add_failed(const std::string &name, const std::string &error);
	void discard_left(const std::set<std::string> &unread);
	size_t count_held() const;
	void start(const ViewConf &conf, const std::string &origin);
	void end(const std::string &name, Clock::time_point until, Kept kept);
	void end_later();
	void close_files(std::unique_ptr<Published> view);
	void ask_storage();
	void stop_all();
	void run(Published &view);
	void has_started(Published &view);
	void wait_for_others(Published &view);
	// The files of the folder that could not be written: their kinds and texts.
	using Unsaved = std::vector<std::pair<std::string, std::string>>;
	std::unique_ptr<view::Source> open(Published &view, const std::string &path);
	Unsaved scan(Published &view);
	std::unique_ptr<BlockDevice> serve(Published &view, uint32_t header_sum);
	void finish_later(Published &view, const Unsaved &unsaved);
	static std::string open(BlockDevice &device);
	void write(const std::string &name, const Unsaved &files) const;
	void forget(const std::string &name, Kept kept) noexcept;
	bool remove_left(const std::string &name);
	void try_remove_left(const std::string &name) noexcept;
	bool discard_stale(Published &view);
	template <class Work> static bool unless_stopped(const Published &view, const Work &work);
	void check_header(uint64_t bytes) const;
	bool index(Published &view, std::vector<std::unique_ptr<view::Source>> &sources);
	std::filesystem::path definition_of(const std::string &name) const;
	unsigned next_remainder();

	const Options options_;
	const Clock::time_point begun_ = Clock::now();
	const std::unique_ptr<const StateFolder> folder_;
	BlockDevices &devices_;
	view::Decompressors decompressors_;
	ChunkCache cache_;
	Turns turns_;            // to scan, of views; each takes one for a while
	std::mutex start_mutex_; // protects starting_ and Published::is_starting; no other is taken with it held
	std::condition_variable have_started_;
	// Views of the start that have neither what they serve nor failed, and whose files are not read for that; and the constructor.
	size_t starting_ = 1;
	std::mutex remainder_mutex_; // protects the file of the last cookie's remainder
	std::mutex change_mutex_;    // serializes publish(), withdraw() and reload(); protects is_left_discarded_
	// Whether what services before have left of views that are gone was removed: once the definitions can be read.
	bool is_left_discarded_ = false;
	mutable std::mutex mutex_; // protects the members below
	std::map<std::string, std::unique_ptr<Published>> views_;
	std::map<std::string, Ending> ending_; // none of these is in views_
	std::condition_variable has_ending_, has_closed_;
	std::list<std::string> closing_; // views whose files are being closed, which may wait for the storage too
	bool is_stopped_ = false, is_constructed_ = false;
	std::map<std::string, std::string> bad_definitions_; // by the name of the view: what is wrong
	std::string conf_error_;
	std::thread ender_; // ends those in ending_
};

const char *state_name(Service::State state);

} // namespace viewd
