// SPDX-License-Identifier: MIT
//
// A published view: answers the reads of its device, from its header and from the reduced chunks of its files.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "view/chunk.hpp"
#include "view/header.hpp"
#include "view/source.hpp"
#include "viewd/chunk_cache.hpp"
#include "viewd/plan.hpp"
#include "viewd/read_ahead.hpp"

namespace viewd
{

// A read of a view's device. Whoever implements it is told once, when all its bytes were copied or none will be.
class ViewRead
{
public:
	virtual ~ViewRead() = default;
	// Several threads may copy, each other bytes. Returns 0 or -errno.
	virtual int copy(uint32_t at, const std::byte *from, size_t len) = 0;
	virtual void done(int error) = 0; // 0 or -errno
};

class ServedView
{
public:
	// Why elements could not be read.
	struct Fault {
		std::string text = {}; // "" if there was none
		std::string file = {}; // "" if it is of none in particular
		uint64_t element = 0;  // of the file: the first that cannot be read, or the first that was to be read
	};
	static constexpr size_t most_changed_files = 16; // that a status names
	struct Status {
		uint64_t reads = 0, bytes = 0, failed = 0;   // of the device
		bool stale = false;                          // a file is not as it was when it was scanned
		size_t changed = 0;                          // files that were seen to have changed
		std::vector<std::string> changed_files = {}; // the first of them, at most most_changed_files
		Fault fault = {};                            // the last one
		size_t plan_length = 0, plan_position = 0;   // ranges
		uint64_t restarts = 0;                       // of compressed files
	};

	// header and identities: of a finished scan of these files. `cache` outlives it. prefetch: whether streams are recognized; a plan
	// is followed in any case. asked_every: how often a file's storage is asked how the file is, while it is read from the cache.
	ServedView(ChunkCache &cache, const view::Sequence &files, const view::Header &header,
		   std::vector<view::Identity> identities, bool prefetch,
		   ChunkCache::Clock::duration asked_every = std::chrono::seconds(1));
	// No read may be under way. Waits for the loads that are.
	~ServedView();
	ServedView(const ServedView &) = delete;
	ServedView &operator=(const ServedView &) = delete;

	uint64_t device_bytes() const { return device_bytes_; } // a multiple of 4096
	// A read of bytes that the device has. Does not wait.
	void read(uint64_t offset, uint32_t bytes, std::shared_ptr<ViewRead> read);
	// Prefetches along a plan from now on, instead of the one before.
	void plan(Plan plan);
	// Fails what waits and what comes. Does not wait.
	void withdraw();
	// Waits, after withdraw(), until no file is read any more. false: one still is.
	bool wait_until_unused(ChunkCache::Clock::time_point until) { return cache_.wait_until_unused(number_, until); }
	Status status() const;
	// Whether a file is not as it was when it was scanned, as far as reads or the files' times tell. Does not wait for the storage.
	bool is_stale();
	// Asks the storage of all files how they are now, for is_stale(). `done` is called when that was answered, once for each storage.
	// Returns how many there are.
	size_t ask_all(const std::function<void()> &done);

private:
	struct Parts;

	// Indices of files.
	struct Files {
		view::Sequence::Place first = {};
		size_t end = 0;
	};
	enum class Ask { nobody, storage };

	int load(uint64_t chunk, std::byte *to);
	int ask_now(size_t storage);
	size_t storage_of(size_t file) const;
	void changed(view::Sequence::Place at);
	void failed(const view::SourceError &error, view::Sequence::Place at);
	Files files_of(uint64_t begin, uint64_t end) const;
	// Whether the files that these bytes of the data are of are as they were scanned: as far as this machine knows, or as their
	// storage says. Notes each that is not. The last throws SourceError.
	bool unchanged(uint64_t begin, uint64_t end, Ask ask);
	bool is_fresh(uint64_t begin, uint64_t end);
	bool is_unchanged(const std::optional<view::Identity> &now, view::Sequence::Place at);
	void ask_now_and_then(uint64_t begin, uint64_t end);
	void fault(const std::string &what, view::Sequence::Place at);
	view::Sequence::Place place_of(uint64_t begin) const;
	void read_data(uint64_t begin, uint64_t end, uint32_t at, const std::shared_ptr<Parts> &parts);
	void prefetch(uint64_t begin, uint64_t end);
	size_t streams() const;
	uint64_t share();

	ChunkCache &cache_;
	const view::Sequence &files_;
	const view::Codec codec_;
	const view::Reducer reducer_;
	const std::vector<std::byte> header_;
	const std::vector<uint32_t> sums_;
	const std::vector<view::Identity> identities_;
	const std::vector<uint64_t> storages_; // the numbers of the file systems that the files are on
	const uint64_t data_bytes_, device_bytes_;
	const bool prefetches_;
	const ChunkCache::Clock::duration asked_every_;
	mutable std::mutex ahead_mutex_; // protects ahead_, plan_ and shared_
	ReadAhead ahead_;
	std::optional<Plan> plan_;
	size_t shared_ = 0;    // streams that the cache was told of
	std::mutex ask_mutex_; // protects asked_ and to_ask_
	// For each file, when it was last added to to_ask_.
	std::vector<ChunkCache::Clock::time_point> asked_;
	std::vector<std::set<size_t>> to_ask_;   // for each storage: files
	std::vector<std::atomic<bool>> changed_; // for each file: whether it differs from when it was scanned
	std::atomic<bool> stale_ = false;
	std::atomic<uint64_t> reads_ = 0, bytes_ = 0, failed_ = 0;
	mutable std::mutex fault_mutex_; // protects fault_
	Fault fault_;
	uint64_t number_ = 0; // in the cache
};

} // namespace viewd
