// SPDX-License-Identifier: MIT
//
// Opens and closes the driver; its properties and parameters.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "cufile/async/batches.hpp"
#include "cufile/async/streams.hpp"
#include "cufile/config/config.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/registry/registry.hpp"

namespace cufile
{

class Driver
{
public:
	Driver(const Dependencies &deps, DriverState &state, Log &log, Stats &stats, Registry &registry,
	       Batches &batches, Streams &streams)
		: deps_(deps), state_(state), log_(log), stats_(stats), registry_(registry), batches_(batches),
		  streams_(streams)
	{
	}
	~Driver();
	Driver(const Driver &) = delete;
	Driver &operator=(const Driver &) = delete;

	CUfileError_t open();
	CUfileError_t close();
	// For programs that do not open the driver explicitly.
	CUfileOpError open_for_use();
	// A program may load CUDA or libpeerdma after the library has looked for them. It then makes a registration
	// call before others.
	void retry_load()
	{
		deps_.cuda.retry_load();
		deps_.peerdma.retry_load();
	}
	long use_count() const { return count_.load(); }

	CUfileError_t properties(CUfileDrvProps_t *props);
	CUfileError_t set_poll_mode(bool poll, size_t threshold_kb);
	CUfileError_t set_max_direct(size_t kb);
	CUfileError_t set_max_cache(size_t kb);
	CUfileError_t set_max_pinned(size_t kb);
	CUfileError_t bar_size(int gpu, size_t *kb);
	CUfileError_t set_p2p_flags(unsigned target, unsigned mask);
	CUfileError_t get_p2p_flags(unsigned target, unsigned *mask);
	CUfileError_t export_topology(const char *path);

	CUfileError_t get(CUFileSizeTConfigParameter_t param, size_t *value);
	CUfileError_t get(CUFileBoolConfigParameter_t param, bool *value);
	CUfileError_t get(CUFileStringConfigParameter_t param, char *text, int len);
	CUfileError_t get_slabs(Pool pool, size_t *sizes, size_t *counts, int len);
	CUfileError_t set(CUFileSizeTConfigParameter_t param, size_t value);
	CUfileError_t set(CUFileBoolConfigParameter_t param, bool value);
	CUfileError_t set(CUFileStringConfigParameter_t param, const char *text);
	CUfileError_t set_slabs(Pool pool, const size_t *sizes, const size_t *counts, int len);

private:
	// Call with open_lock_ held.
	CUfileOpError open_if_closed();
	void open_log(const Config &config, Log::Level least);
	void refuse(const Config &config, const std::string &fault);
	CUfileError_t change(const std::function<void(Config &)> &apply, const std::function<void()> &keep);
	CUfileError_t change_size(CUFileSizeTConfigParameter_t param, size_t value);
	uint64_t bar_bytes(int gpu);
	Config config_now();
	CUfileError_t set_while_closed(const std::function<void(Settings &)> &apply);

	const Dependencies deps_;
	DriverState &state_;
	Log &log_;
	Stats &stats_;
	Registry &registry_;
	Batches &batches_;
	Streams &streams_;
	std::atomic<long> count_{0}; // written under open_lock_
	std::mutex open_lock_;       // protects opening, closing, settings_, p2p_flags_
	Settings settings_;
	std::array<unsigned, CU_FILE_MAX_TARGET_TYPES> p2p_flags_{}; // CU_FILE_P2P_FLAG_*
};

} // namespace cufile
