// SPDX-License-Identifier: MIT
//
// The exported cuFile calls. They throw nothing, and set errno only as a result.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include <pthread.h>

#include "cufile/api/library.hpp"
#include "cufile/platform/errors.hpp"
#include "cufile/platform/real_dependencies.hpp"

#undef cuFileDriverClose

using cufile::Library;

namespace
{

std::atomic<Library *> the_library{nullptr};

// Created by the first call and never destroyed: threads of the program may call while the process exits. Not a
// function-local static: a child forked during its creation would wait for it for ever.
Library &library()
{
	if (Library *const known = the_library.load(std::memory_order_acquire))
		return *known;
	auto made = std::make_unique<Library>(
		cufile::Dependencies{cufile::real_system(), cufile::real_cuda(), cufile::real_peerdma()});
	// Before any thread is in a call. Concurrent first calls may register it twice, which is harmless.
	pthread_atfork(nullptr, nullptr, [] {
		if (Library *const known = the_library.load())
			known->state.after_fork();
	});
	Library *first = nullptr;
	return the_library.compare_exchange_strong(first, made.get()) ? *made.release() : *first;
}

class KeepErrno
{
public:
	KeepErrno() = default;
	~KeepErrno() { errno = saved_; }
	KeepErrno(const KeepErrno &) = delete;
	KeepErrno &operator=(const KeepErrno &) = delete;

private:
	const int saved_ = errno;
};

template <class Body> CUfileError_t call(Body &&body) noexcept
{
	const KeepErrno keep;
	try {
		const cufile::DriverState::ActiveCall active(library().state);
		if (library().state.is_dead())
			return cufile::error(CU_FILE_DRIVER_NOT_INITIALIZED);
		return body();
	} catch (const std::bad_alloc &) {
		return cufile::error(CU_FILE_NOMEM_ERROR);
	} catch (...) {
		return cufile::error(CU_FILE_INTERNAL_ERROR);
	}
}

// Returns -1 with errno set to an errno or CUfileOpError, as programs expect.
template <class Body> ssize_t counted(Body &&body) noexcept
{
	int64_t rc;
	{
		const KeepErrno keep;
		try {
			const cufile::DriverState::ActiveCall active(library().state);
			rc = library().state.is_dead() ? cufile::failed(CU_FILE_DRIVER_NOT_INITIALIZED) : body();
		} catch (const std::bad_alloc &) {
			rc = -ENOMEM;
		} catch (...) {
			rc = cufile::failed(CU_FILE_INTERNAL_ERROR);
		}
	}
	if (rc >= 0)
		return rc;
	errno = static_cast<int>(-rc);
	return -1;
}

template <class Body> void quietly(Body &&body) noexcept
{
	call([&] {
		body();
		return cufile::success();
	});
}

template <class Stats> CUfileError_t stats_of(int level, Stats *out)
{
	return call([&] {
		if (!out || library().stats.level() < level)
			return cufile::error(CU_FILE_INVALID_VALUE);
		library().stats.write(level, out);
		return cufile::success();
	});
}

} // namespace

extern "C" {

CUfileError_t cuFileDriverOpen(void)
{
	return call([] { return library().driver.open(); });
}
CUfileError_t cuFileDriverClose_v2(void)
{
	return call([] { return library().driver.close(); });
}
CUfileError_t cuFileDriverClose(void) { return cuFileDriverClose_v2(); }
long cuFileUseCount(void)
{
	long count = 0;
	quietly([&] { count = library().driver.use_count(); });
	return count;
}
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props)
{
	return call([&] { return library().driver.properties(props); });
}
CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
{
	return call([&] { return library().driver.set_poll_mode(poll, poll_threshold_size); });
}
CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size)
{
	return call([&] { return library().driver.set_max_direct(max_direct_io_size); });
}
CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size)
{
	return call([&] { return library().driver.set_max_cache(max_cache_size); });
}
CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
{
	return call([&] { return library().driver.set_max_pinned(max_pinned_size); });
}
CUfileError_t cuFileGetVersion(int *version)
{
	if (!version)
		return cufile::error(CU_FILE_INVALID_VALUE);
	*version = 1150; // 1000 * major + 10 * minor of the emulated release
	return cufile::success();
}
CUfileError_t cuFileGetBARSizeInKB(int gpu_index, size_t *bar_size)
{
	return call([&] { return library().driver.bar_size(gpu_index, bar_size); });
}
CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t mask)
{
	return call([&] { return library().driver.set_p2p_flags(target, mask); });
}
CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t target, CUfileP2PFlags_t *mask)
{
	return call([&] {
		unsigned ways;
		const CUfileError_t rc = library().driver.get_p2p_flags(target, mask ? &ways : nullptr);
		if (mask && rc.err == CU_FILE_SUCCESS)
			*mask = static_cast<CUfileP2PFlags_t>(ways);
		return rc;
	});
}
CUfileError_t cuFileExportPCIeTopology(const char *path)
{
	return call([&] { return library().driver.export_topology(path); });
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	return call([&] { return library().register_file(fh, descr); });
}
void cuFileHandleDeregister(CUfileHandle_t fh)
{
	quietly([&] { library().deregister_file(fh); });
}
CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags)
{
	return call([&] { return library().register_buffer(base, length, flags); });
}
CUfileError_t cuFileBufDeregister(const void *base)
{
	return call([&] { return library().deregister_buffer(base); });
}

ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return counted([&] { return library().router.transfer(fh, base, size, file_offset, buf_offset, false); });
}
ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset, off_t buf_offset)
{
	return counted([&] { return library().router.transfer(fh, base, size, file_offset, buf_offset, true); });
}
ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned int flags)
{
	return counted([&] { return library().router.transfer_vector(fh, iov, iovcnt, file_offset, flags, false); });
}
ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt, off_t file_offset, unsigned int flags)
{
	return counted([&] { return library().router.transfer_vector(fh, iov, iovcnt, file_offset, flags, true); });
}

CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch, unsigned nr)
{
	return call([&] { return library().create_batch(batch, nr); });
}
CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned nr, CUfileIOParams_t *ios, unsigned int)
{
	return call([&] { return library().batches.submit(batch, nr, ios); });
}
CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch, unsigned min_nr, unsigned *nr, CUfileIOEvents_t *events,
				     struct timespec *timeout)
{
	return call([&] { return library().batches.status(batch, min_nr, nr, events, timeout); });
}
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch)
{
	return call([&] { return library().batches.cancel(batch); });
}
void cuFileBatchIODestroy(CUfileBatchHandle_t batch)
{
	quietly([&] { library().batches.destroy(batch); });
}

CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p, off_t *buf_offset_p,
			      ssize_t *bytes_read_p, CUstream stream)
{
	return call([&] {
		return library().streams.submit(fh, base, size_p, file_offset_p, buf_offset_p, bytes_read_p, stream,
						false);
	});
}
CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size_p, off_t *file_offset_p, off_t *buf_offset_p,
			       ssize_t *bytes_written_p, CUstream stream)
{
	return call([&] {
		return library().streams.submit(fh, base, size_p, file_offset_p, buf_offset_p, bytes_written_p, stream,
						true);
	});
}
CUfileError_t cuFileStreamRegister(CUstream stream, unsigned flags)
{
	return call([&] { return library().streams.register_stream(stream, flags); });
}
CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	return call([&] { return library().streams.deregister_stream(stream); });
}

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value)
{
	return call([&] { return library().driver.get(param, value); });
}
CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value)
{
	return call([&] { return library().driver.get(param, value); });
}
CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *desc_str, int len)
{
	return call([&] { return library().driver.get(param, desc_str, len); });
}
CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value, size_t *max_value)
{
	if (static_cast<unsigned>(param) >= cufile::nr_sizes || !min_value || !max_value)
		return cufile::error(CU_FILE_INVALID_VALUE);
	const cufile::Range range = cufile::size_range(param);
	*min_value = range.min;
	*max_value = range.max;
	return cufile::success();
}
CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values, int len)
{
	return call([&] { return library().driver.get_slabs(cufile::posix_pool, size_values, count_values, len); });
}
CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values, size_t *count_values, int len)
{
	return call([&] { return library().driver.get_slabs(cufile::gpu_pool, size_values, count_values, len); });
}
CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value)
{
	return call([&] { return library().driver.set(param, value); });
}
CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value)
{
	return call([&] { return library().driver.set(param, value); });
}
CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *desc_str)
{
	return call([&] { return library().driver.set(param, desc_str); });
}
CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values, const size_t *count_values, int len)
{
	return call([&] { return library().driver.set_slabs(cufile::posix_pool, size_values, count_values, len); });
}
CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values, const size_t *count_values, int len)
{
	return call([&] { return library().driver.set_slabs(cufile::gpu_pool, size_values, count_values, len); });
}

CUfileError_t cuFileSetStatsLevel(int level)
{
	return call([&] {
		return cufile::error(library().stats.set_level(level) ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
	});
}
CUfileError_t cuFileGetStatsLevel(int *level)
{
	return call([&] {
		if (!level)
			return cufile::error(CU_FILE_INVALID_VALUE);
		*level = library().stats.level();
		return cufile::success();
	});
}
CUfileError_t cuFileStatsStart(void)
{
	return call([] {
		if (library().stats.start())
			return cufile::success();
		// Level 0, as in the original.
		return cufile::error(library().driver.use_count() ? CU_FILE_INTERNAL_ERROR :
								    CU_FILE_DRIVER_NOT_INITIALIZED);
	});
}
CUfileError_t cuFileStatsStop(void)
{
	return call([] {
		library().stats.stop();
		return cufile::success();
	});
}
CUfileError_t cuFileStatsReset(void)
{
	return call([] {
		library().stats.reset();
		return cufile::success();
	});
}
CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats) { return stats_of(1, stats); }
CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats) { return stats_of(2, stats); }
CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats) { return stats_of(3, stats); }

int peerdma_cufile_explain(CUfileHandle_t fh, const void *base, size_t len, off_t file_off, off_t buf_off,
			   struct peerdma_cufile_route *route)
{
	if (!route || route->size < sizeof(*route))
		return -EINVAL;
	int rc = -ENOTCONN;
	quietly([&] { rc = library().router.explain(fh, base, len, file_off, buf_off, *route); });
	return rc;
}

int peerdma_cufile_count(struct peerdma_cufile_counts *counts)
{
	if (!counts || counts->size < sizeof(*counts))
		return -EINVAL;
	struct peerdma_cufile_counts full = {};
	full.size = counts->size;
	quietly([&] { library().router.accounting().counts(full); });
	std::memcpy(counts, &full, std::min<size_t>(full.size, sizeof(full)));
	return 0;
}

int peerdma_cufile_stats(int level, void *stats, size_t size)
{
	if (!stats || level < 1 || level > 3)
		return -EINVAL;
	int rc = -ENOTCONN;
	quietly([&] { rc = level > library().stats.level() ? -EINVAL : library().stats.write(level, stats, size); });
	return rc;
}

} // extern "C"
