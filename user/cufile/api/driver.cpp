// SPDX-License-Identifier: MIT
#include "cufile/api/driver.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "common/node.hpp"
#include "cufile/platform/errors.hpp"
#include "cufile/platform/pci_topology.hpp"

namespace cufile
{
namespace
{

std::string named_node(System &system) { return system.variable("PEERDMA_DEVICE").value_or(""); }

// 0 if the module is available, otherwise -errno.
int try_node(System &system)
{
	const int fd =
		peerdma_impl::open_node(system, named_node(system), [&](auto &names) { system.list("/dev/", names); });
	if (fd < 0)
		return fd;
	const int rc = system.ask_module(fd);
	system.close(fd);
	return rc;
}

// Why the driver must not open; empty if it may.
std::string refusal(System &system, const Config &config)
{
	if (config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE) || config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE))
		return "";
	const int rc = try_node(system);
	if (rc >= 0)
		return "";
	const std::string named = named_node(system);
	return "allow_compat_mode is false, and " + peerdma_impl::first_node(named) +
	       (named.empty() ? "" : ", which PEERDMA_DEVICE names,") +
	       " cannot be used: " + std::generic_category().message(-rc);
}

// The largest BAR, from "start end flags" lines of sysfs.
uint64_t largest_bar(const std::string &text)
{
	uint64_t largest = 0;
	const char *at = text.data(), *const end = at + text.size();
	// Six BARs; the ROM and bridge windows follow.
	for (int i = 0; i < 6 && at < end; i++) {
		const char *const line = std::find(at, end, '\n');
		uint64_t word[2] = {};
		bool good = true;
		for (uint64_t &value : word) {
			at = std::find_if(at, line, [](char c) { return c != ' '; });
			if (line - at > 2 && at[0] == '0' && at[1] == 'x')
				at += 2;
			const auto [stop, error] = std::from_chars(at, line, value, 16);
			good = good && error == std::errc();
			at = stop;
		}
		if (good && word[1] > word[0])
			largest = std::max(largest, word[1] - word[0] + 1);
		at = line + (line < end);
	}
	return largest;
}

} // namespace

Driver::~Driver()
{
	while (count_ > 0)
		close();
	streams_.trim(); // of I/O that a stream reached afterwards
}

// At least at this level.
void Driver::open_log(const Config &config, Log::Level least)
{
	log_.open(std::max(least, Log::level_of(config.strings[CUFILE_PARAM_LOGGING_LEVEL])),
		  config.strings[CUFILE_PARAM_ENV_LOGFILE_PATH], config.strings[CUFILE_PARAM_LOG_DIR],
		  config.log_max_mb << 20);
}

// Logs why the driver stays closed.
void Driver::refuse(const Config &config, const std::string &fault)
{
	open_log(config, Log::Level::error);
	log_.say(Log::Level::error, fault);
	log_.close();
}

CUfileOpError Driver::open_if_closed()
{
	if (state_.engine())
		return CU_FILE_SUCCESS;
	state_.set_busy(true);
	Findings found;
	Config config = settings_.merge(deps_.system, found);
	if (!found.fault.empty()) {
		refuse(config, found.fault);
		state_.set_busy(false);
		return found.code;
	}
	open_log(config, Log::Level::notice);
	if (!found.notices.empty()) {
		std::string all;
		for (const std::string &notice : found.notices)
			all += (all.empty() ? "" : "; ") + notice;
		log_.say(Log::Level::notice, all);
	}
	if (const std::string why = refusal(deps_.system, config); !why.empty()) {
		log_.say(Log::Level::error, why);
		log_.close();
		state_.set_busy(false);
		return CU_FILE_DRIVER_NOT_INITIALIZED;
	}
	stats_.set_longer(config.longer_stats);
	registry_.set_pin_limit(config.size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB) << 10);
	const auto level = static_cast<int>(config.size(CUFILE_PARAM_PROFILE_STATS));
	if (level) {
		stats_.set_level(level);
		stats_.start();
	}
	state_.set_engine(std::make_unique<Engine>(std::move(config), deps_));
	return CU_FILE_SUCCESS;
}

CUfileOpError Driver::open_for_use()
{
	// The program did not open the driver explicitly, so this call does not wait.
	if (state_.is_closing())
		return CU_FILE_DRIVER_CLOSING;
	// Without the lock, for callbacks of a user-space filesystem: their thread has a lease, and close() waits for it with
	// the lock held.
	if (count_)
		return CU_FILE_SUCCESS;
	const std::lock_guard guard(open_lock_);
	const CUfileOpError rc = open_if_closed();
	if (rc == CU_FILE_SUCCESS && !count_)
		count_ = 1;
	return rc;
}

CUfileError_t Driver::open()
{
	retry_load();
	const std::lock_guard guard(open_lock_);
	const CUfileOpError rc = open_if_closed();
	if (rc == CU_FILE_SUCCESS)
		count_++;
	return error(rc);
}

CUfileError_t Driver::close()
{
	const std::lock_guard guard(open_lock_);
	if (!count_)
		return error(CU_FILE_DRIVER_NOT_INITIALIZED);
	if (count_ > 1) {
		count_--;
		return success();
	}
	state_.set_closing(true);
	batches_.destroy_all();
	std::unique_ptr<Engine> engine = state_.take_engine();
	// A stream that waits for a worker then finds the driver closed.
	engine->workers.stop();
	engine->stream_workers.stop();
	registry_.clear();
	streams_.clear();
	engine.reset();
	streams_.trim();
	stats_.stop();
	log_.close();
	settings_ = {};
	count_ = 0;
	state_.set_busy(false);
	state_.set_closing(false);
	return success();
}

CUfileError_t Driver::properties(CUfileDrvProps_t *props)
{
	if (!props)
		return error(CU_FILE_INVALID_VALUE);
	const std::lock_guard guard(open_lock_);
	// While closed, the answer is that of an open driver.
	Findings found; // notices are logged on open
	const Config config = state_.engine() ? state_.engine()->config : settings_.merge(deps_.system, found);
	if (!found.fault.empty()) {
		refuse(config, found.fault);
		return error(found.code);
	}
	if (!state_.engine() && !refusal(deps_.system, config).empty())
		return error(CU_FILE_DRIVER_NOT_INITIALIZED);
	*props = {};
	props->nvfs.poll_thresh_size = config.size(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB);
	props->nvfs.max_direct_io_size = config.size(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB);
	props->nvfs.dstatusflags = try_node(deps_.system) >= 0 ? 1u << CU_FILE_NVME_SUPPORTED : 0;
	props->nvfs.dcontrolflags = static_cast<unsigned>(config.flag(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE))
					    << CU_FILE_USE_POLL_MODE |
				    static_cast<unsigned>(config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE))
					    << CU_FILE_ALLOW_COMPAT_MODE;
	props->fflags = 1u << CU_FILE_DYN_ROUTING_SUPPORTED | 1u << CU_FILE_BATCH_IO_SUPPORTED |
			1u << CU_FILE_STREAMS_SUPPORTED | 1u << CU_FILE_PARALLEL_IO_SUPPORTED;
	props->max_device_cache_size =
		static_cast<unsigned>(config.size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB));
	// The original returns 0 as well if GPU memory is not used as a cache.
	props->per_buffer_cache_size = 0;
	props->max_device_pinned_mem_size =
		static_cast<unsigned>(config.size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB));
	props->max_batch_io_size = static_cast<unsigned>(config.size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE));
	props->max_batch_io_timeout_msecs =
		static_cast<unsigned>(config.size(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS));
	return success();
}

CUfileError_t Driver::change(const std::function<void(Config &)> &apply, const std::function<void()> &keep)
{
	const std::lock_guard guard(open_lock_);
	if (!state_.engine()) {
		keep();
		return success();
	}
	// No I/O reads these settings, otherwise it would have to be drained first.
	apply(state_.engine()->config);
	return success();
}

CUfileError_t Driver::change_size(CUFileSizeTConfigParameter_t param, size_t value)
{
	return change([&](Config &config) { config.sizes[param] = value; }, [&] { settings_.sizes[param] = value; });
}

CUfileError_t Driver::set_poll_mode(bool poll, size_t threshold_kb)
{
	if (threshold_kb > size_range(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB).max)
		return error(CU_FILE_INVALID_VALUE);
	return change(
		[&](Config &config) {
			config.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = poll;
			config.sizes[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB] = threshold_kb;
		},
		[&] {
			settings_.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = poll;
			settings_.sizes[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB] = threshold_kb;
		});
}

CUfileError_t Driver::set_max_direct(size_t kb)
{
	const Range range = size_range(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB);
	if (kb % 64 || kb < range.min || kb > range.max)
		return error(CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	return change_size(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, kb);
}

// 0 if unknown.
uint64_t Driver::bar_bytes(int gpu)
{
	std::string text;
	const std::string folder = pci_folder(deps_.cuda, gpu);
	if (folder.empty() || deps_.system.read_file(folder + "/resource", text) < 0)
		return 0;
	return largest_bar(text);
}

CUfileError_t Driver::set_max_cache(size_t kb)
{
	const uint64_t bar = bar_bytes(0);
	if (kb > size_range(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB).max || (bar && kb > bar / 1024))
		return error(CU_FILE_INVALID_VALUE);
	return change_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, kb);
}

CUfileError_t Driver::set_max_pinned(size_t kb)
{
	if (kb > size_range(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB).max)
		return error(CU_FILE_INVALID_VALUE);
	registry_.set_pin_limit(static_cast<uint64_t>(kb) << 10);
	return change_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, kb);
}

CUfileError_t Driver::bar_size(int gpu, size_t *kb)
{
	if (!kb || gpu < 0)
		return error(CU_FILE_INVALID_VALUE);
	int count = 0;
	if (!deps_.cuda.load() || deps_.cuda.device_count(count))
		return error(CU_FILE_DEVICE_NOT_FOUND);
	if (gpu >= count)
		return error(CU_FILE_INVALID_VALUE);
	const uint64_t bytes = bar_bytes(gpu);
	if (!bytes)
		return error(CU_FILE_DEVICE_NOT_FOUND);
	*kb = bytes / 1024;
	return success();
}

// The value is stored and returned. It has no effect: direct I/O always uses P2PDMA.
CUfileError_t Driver::set_p2p_flags(unsigned target, unsigned mask)
{
	if (target >= p2p_flags_.size() || mask & ~static_cast<unsigned>(CU_FILE_P2P_FLAG_PCI_P2PDMA))
		return error(CU_FILE_INVALID_VALUE);
	const std::lock_guard guard(open_lock_);
	p2p_flags_[target] = mask;
	return success();
}

CUfileError_t Driver::get_p2p_flags(unsigned target, unsigned *mask)
{
	if (target >= p2p_flags_.size() || !mask)
		return error(CU_FILE_INVALID_VALUE);
	const std::lock_guard guard(open_lock_);
	*mask = p2p_flags_[target];
	return success();
}

CUfileError_t Driver::export_topology(const char *path)
{
	if (!path || !*path)
		return error(CU_FILE_INVALID_VALUE);
	const std::string text = describe_topology(deps_.system);
	return error(deps_.system.write_file(path, text) < 0 ? CU_FILE_INVALID_VALUE : CU_FILE_SUCCESS);
}

} // namespace cufile
