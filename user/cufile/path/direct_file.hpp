// SPDX-License-Identifier: MIT
//
// The direct path: a file of libpeerdma, and I/O between it and buffers of libpeerdma.
#pragma once

#include <cstdint>
#include <memory>

#include "cufile/path/request.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/registered_memory.hpp"

namespace cufile
{

// A file of libpeerdma with what the module said about it.
class DirectFile
{
public:
	// Takes ownership of file.
	DirectFile(PeerdmaClient &peerdma, struct peerdma_file *file, uint32_t provider, uint64_t now_ns);
	// Shares the file, and asks the module again.
	DirectFile(const DirectFile &before, uint32_t provider, uint64_t now_ns);
	DirectFile(const DirectFile &) = delete;
	DirectFile &operator=(const DirectFile &) = delete;
	struct peerdma_file *get() const { return file_.get(); }
	// Why no I/O of the file is direct: enum peerdma_reason.
	uint32_t refused() const { return refused_; }
	// True if the refusal was transient and is old enough to ask again.
	bool is_stale(uint64_t now_ns) const;
	// The reason may differ later.
	bool is_transient() const
	{
		return refused_ == PEERDMA_REASON_MAPPING || refused_ == PEERDMA_REASON_RDMA_ROUTE;
	}
	// From the buffers to the file's farthest device.
	int distance() const { return distance_; }
	// Why no byte of this request would be direct, although others of the file are: enum peerdma_reason.
	uint32_t misalignment(const Request &request) const;
	// Why not all bytes of it would be.
	uint32_t strict_misalignment(const Request &request) const;

private:
	void query(uint32_t provider);

	PeerdmaClient &peerdma_;
	const std::shared_ptr<struct peerdma_file> file_;
	const uint64_t queried_ns_;
	// Immutable once query() has returned.
	uint32_t refused_ = PEERDMA_REASON_NONE;
	uint64_t memory_align_ = 0, block_ = 0; // 0: unknown
	int distance_ = 0;
};

int64_t transfer_direct(PeerdmaClient &peerdma, const Request &request, const BufferLocation &location, uint64_t size,
			uint64_t offset, struct peerdma_io_result &result);
// Transfers all of a request, one I/O for each run of the memory. An error of one part is the error of the request.
int64_t transfer_runs(PeerdmaClient &peerdma, const Request &request, const RegisteredMemory &memory,
		      struct peerdma_io_result &result);
// Why a direct request went through the host entirely: enum peerdma_reason, 0 if it did not.
uint32_t reason_if_all_by_host(const struct peerdma_io_result &result);

} // namespace cufile
