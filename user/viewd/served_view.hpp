// SPDX-License-Identifier: MIT
//
// A published view: answers the reads of its device, from its header and from the reduced chunks of its files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
	struct Status {
		uint64_t reads = 0, bytes = 0, failed = 0; // of the device
		bool stale = false;                        // a file is not as it was when it was scanned
		Fault fault = {};                          // the last one
		size_t plan_length = 0, plan_position = 0; // ranges
		uint64_t restarts = 0;                     // of compressed files
	};

	// header and identities: of a finished scan of these files. `cache` outlives it. prefetch: whether streams are recognized; a plan
	// is followed in any case.
	ServedView(ChunkCache &cache, const view::Sequence &files, const view::Header &header,
		   std::vector<view::Identity> identities, bool prefetch);
	// No read may be under way.
	~ServedView();
	ServedView(const ServedView &) = delete;
	ServedView &operator=(const ServedView &) = delete;

	uint64_t device_bytes() const { return device_bytes_; } // a multiple of 4096
	// A read of bytes that the device has. Does not wait.
	void read(uint64_t offset, uint32_t bytes, std::shared_ptr<ViewRead> read);
	// Prefetches along a plan from now on, instead of the one before.
	void plan(Plan plan);
	// Fails what waits and what comes.
	void withdraw();
	Status status() const;
	// Whether a file is not as it was when it was scanned, as far as reads or the files' times tell.
	bool is_stale();

private:
	struct Parts;

	int load(uint64_t chunk, std::byte *to);
	// Whether the files that these bytes of the data are of are as they were scanned. unchanged() throws SourceError.
	bool unchanged(uint64_t begin, uint64_t end);
	bool is_fresh(uint64_t begin, uint64_t end);
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
	const uint64_t data_bytes_, device_bytes_;
	const bool prefetches_;
	mutable std::mutex ahead_mutex_; // protects ahead_, plan_ and shared_
	ReadAhead ahead_;
	std::optional<Plan> plan_;
	size_t shared_ = 0; // streams that the cache was told of
	std::atomic<bool> stale_ = false;
	std::atomic<uint64_t> reads_ = 0, bytes_ = 0, failed_ = 0;
	mutable std::mutex fault_mutex_; // protects fault_
	Fault fault_;
	uint64_t number_ = 0; // in the cache
};

} // namespace viewd
