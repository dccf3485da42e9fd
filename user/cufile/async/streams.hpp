// SPDX-License-Identifier: MIT
//
// I/O in the order of a CUDA stream: cuFileReadAsync(), cuFileWriteAsync(), cuFileStream*().
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <utility>

#include "cufile/async/staging_buffer.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/path/router.hpp"

namespace cufile
{

class Streams
{
public:
	Streams(const Dependencies &deps, DriverState &state, Registry &registry, Router &router, Log &log,
		Stats &stats)
		: deps_(deps), state_(state), registry_(registry), router_(router), log_(log), stats_(stats),
		  staging_buffers_(deps)
	{
	}
	Streams(const Streams &) = delete;
	Streams &operator=(const Streams &) = delete;

	CUfileError_t submit(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
			     ssize_t *result, CUstream stream, bool write);
	CUfileError_t register_stream(CUstream stream, unsigned flags);
	CUfileError_t deregister_stream(CUstream stream);
	// Ends all registrations.
	void clear();
	// Frees unused staging buffers.
	void trim() { staging_buffers_.trim(); }

private:
	struct StreamIo;
	// Handle and id. Default streams share a handle: each context has one, and each thread in it, so their id is
	// part of the key.
	using StreamKey = std::pair<void *, uint64_t>;
	static StreamKey key_of(CUstream stream, uint64_t id);
	// The program may reuse the handle after destroying the stream.
	struct RegisteredStream {
		uint64_t id; // the driver's, never reused; 0: unknown, then without flags
		unsigned flags;
	};
	// Returns a CUresult.
	int id_of(CUstream stream, uint64_t &id);
	int flags_of(CUstream stream, unsigned &flags);
	CUfileError_t enqueue(std::unique_ptr<StreamIo> io, CUstream stream);
	// Stream callback.
	template <void (StreamIo::*...steps)()> static void in_stream(void *io);

	const Dependencies deps_;
	DriverState &state_;
	Registry &registry_;
	Router &router_;
	Log &log_;
	Stats &stats_;
	StagingBufferPool staging_buffers_;
	std::atomic<bool> logged_no_stream_copy_{false};
	std::shared_mutex lock_; // protects streams_
	std::map<StreamKey, RegisteredStream> streams_;
};

} // namespace cufile
