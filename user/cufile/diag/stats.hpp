// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <mutex>

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// Counters of CUfileStatsLevel*_t. Nothing is counted or locked before start().
class Stats
{
public:
	explicit Stats(System &system) : system_(system) {}

	struct Io {
		bool write;
		bool direct;
		bool aligned;
		int device; // -1: host memory
		uint64_t bytes;
		uint64_t ns;
		bool ok;
	};

	bool set_level(int level);
	int level() const { return level_.load(std::memory_order_relaxed); }
	bool on() const { return on_.load(std::memory_order_relaxed); }
	// False if the level disables counting.
	bool start();
	void stop();
	void reset();

	void io(const Io &io, Cuda *cuda);
	// Counts one success or failure in a member of CUfileStatsLevel1_t.
	void count(CUfileOpCounter_t CUfileStatsLevel1_t::*counter, bool ok, uint64_t by = 1);
	void batch_submitted(uint64_t entries, uint64_t direct, uint64_t read_bytes, uint64_t write_bytes, uint64_t ns,
			     bool ok);
	void batch_request_completed(bool ok, bool direct, uint64_t ns);
	void buffer(int device, bool add, bool ok, uint64_t bytes, Cuda *cuda);
	// A vectored call.
	void vector(bool write, bool ok);

	// Rates cover the time during which statistics were on.
	void get(CUfileStatsLevel3_t &out);
	// Writes a program's struct of this level in the layout of CUDA 13.0, or of 13.4, whose level 1 is longer. The
	// call does not say which.
	void write(int level, void *out) { write_as(longer_, level, out); }
	// Chooses the layout by size. -EINVAL: no layout has this size.
	int write(int level, void *out, size_t size);
	void set_longer(bool longer) { longer_ = longer; }

private:
	void write_as(bool longer, int level, void *out);
	CUfilePerGpuStats_t *gpu(int device, Cuda *cuda);

	System &system_;
	std::atomic<int> level_{0};
	std::atomic<bool> on_{false}, longer_{false};
	std::mutex lock_; // protects all below
	CUfileStatsLevel3_t all_{};
	CUfileOpCounter_t vectors_[2]{}; // reads, writes
	int devices_[16]{};              // of per_gpu_stats
	uint64_t started_ns_ = 0, counted_ns_ = 0;
};

} // namespace cufile
