// SPDX-License-Identifier: MIT
//
// Completion of every I/O: counts it, and logs once why it was not direct.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/request.hpp"
#include "cufile/platform/dependencies.hpp"

namespace cufile
{

class Accounting
{
public:
	Accounting(const Dependencies &deps, Log &log, Stats &stats) : deps_(deps), log_(log), stats_(stats) {}
	Accounting(const Accounting &) = delete;
	Accounting &operator=(const Accounting &) = delete;

	// ns: duration, if statistics are on.
	void complete(const Request &request, int64_t result, const HostFallback &fallback, uint64_t ns);
	void counts(struct peerdma_cufile_counts &out) const;

	// Logs each reason once for each file.
	void log_fallback(FileHandle &handle, FallbackReason fallback, uint32_t reason) noexcept;
	// For a descriptor of the library that the program has closed.
	void log_lost_descriptor(FileHandle &handle) noexcept;
	void log_lost_descriptor(const BufferLocation &location) noexcept;

private:
	const Dependencies deps_;
	Log &log_;
	Stats &stats_;
	std::array<std::atomic<uint64_t>, PEERDMA_CUFILE_NR_WHYS> ios_{}, bytes_{};
	std::atomic<uint64_t> peer_gpu_ios_{0}, peer_gpu_bytes_{0};
	std::atomic<int> logged_lost_device_{0}; // BufferLocation::device; 0: nothing logged
};

} // namespace cufile
