// SPDX-License-Identifier: MIT
//
// The router checks an I/O, chooses its path, and runs it.
#pragma once

#include <cstdint>
#include <memory>

#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/accounting.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/path/host_bounce.hpp"
#include "cufile/path/request.hpp"
#include "cufile/registry/registry.hpp"

namespace cufile
{

class Router
{
public:
	Router(const Dependencies &deps, DriverState &state, Registry &registry, Log &log, Stats &stats)
		: deps_(deps), state_(state), registry_(registry), log_(log), stats_(stats),
		  accounting_(deps, log, stats), host_bounce_(log)
	{
	}
	Router(const Router &) = delete;
	Router &operator=(const Router &) = delete;

	// cuFileRead() and cuFileWrite(): a count, or a negative errno or CUfileOpError.
	int64_t transfer(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off, bool write);
	int64_t transfer_vector(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				unsigned flags, bool write);

	// Checks an I/O and fills in its request. Negative: refused. 1: there is nothing to transfer.
	int64_t prepare(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base, size_t size,
			off_t file_off, off_t buf_off, bool write, Request &request);
	int64_t run(Engine &engine, Request &request);
	// Runs a request of any path but bounce, without completing it. fallback: the part of a direct request that
	// went through the host.
	int64_t transfer_or_bounce_if_revoked(Engine &engine, const Request &request, HostFallback &fallback);
	// Takes and runs pieces of a job until none is left. Several threads may run one job.
	void run_pieces(Engine &engine, Job &job);
	// One thread's part in a job.
	Workers::Task job_task(Engine &engine, std::shared_ptr<Job> job);

	// The path an I/O would take. 0 or -errno.
	int explain(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off,
		    struct peerdma_cufile_route &out);
	Accounting &accounting() { return accounting_; }
	HostBounce &host_bounce() { return host_bounce_; }

private:
	int64_t choose_path(Engine &engine, FileHandle &handle, const RegisteredBuffer *buffer,
			    std::shared_ptr<RegisteredMemory> registration, const void *base, Request &request);
	bool find_peer_gpu(Engine &engine, FileHandle &handle, Request &request);
	// transient: a shortage or a refusal that may pass was met, so the result is not final.
	std::shared_ptr<PeerGpuBounce> choose_peer_gpu(Engine &engine, FileHandle &handle, int device, bool &transient);
	// Asks the module again. False: out has the actual route and the reason.
	bool strict_allows_direct(const Request &request, struct peerdma_cufile_route &out);
	// 0 or -errno.
	int open_direct_file(FileHandle &handle, const BufferLocation &location, std::shared_ptr<DirectFile> &out);
	int64_t transfer_segments(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				  unsigned flags, bool write);

	const Dependencies deps_;
	DriverState &state_;
	Registry &registry_;
	Log &log_;
	Stats &stats_;
	Accounting accounting_;
	HostBounce host_bounce_;
};

} // namespace cufile
