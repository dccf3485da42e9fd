// SPDX-License-Identifier: MIT
//
// The direct path: a file of libpeerdma's, and I/O between it and buffers of libpeerdma's.
#pragma once

#include <cstdint>
#include <memory>

#include "cufile/path/request.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/registered_memory.hpp"

namespace cufile
{

// A file of libpeerdma's, and what it said of it when it was opened.
class DirectFile
{
public:
	// Takes the file.
	DirectFile(PeerdmaClient &peerdma, struct peerdma_file *file, uint32_t provider, uint64_t now_ns);
	// The same file, of which the module is asked again.
	DirectFile(const DirectFile &before, uint32_t provider, uint64_t now_ns);
	DirectFile(const DirectFile &) = delete;
	DirectFile &operator=(const DirectFile &) = delete;
	struct peerdma_file *get() const { return file_.get(); }
	// Why it does not go directly, whatever is asked of it: enum peerdma_reason.
	uint32_t refused() const { return refused_; }
	// Whether what it was refused for may have passed since.
	bool is_stale(uint64_t now_ns) const;
	// The refusal is of now: it may be another one later.
	bool is_transient() const
	{
		return refused_ == PEERDMA_REASON_MAPPING || refused_ == PEERDMA_REASON_RDMA_ROUTE;
	}
	// From the buffers to the farthest device of the file.
	int distance() const { return distance_; }
	// Why not one of these bytes would go directly, although others of the file do: enum peerdma_reason.
	uint32_t misalignment(const Request &request) const;
	// Why not all of them would.
	uint32_t partial_misalignment(const Request &request) const;

private:
	void query(uint32_t provider);

	PeerdmaClient &peerdma_;
	const std::shared_ptr<struct peerdma_file> file_;
	const uint64_t queried_ns_;
	// Immutable once query() has returned.
	uint32_t refused_ = PEERDMA_REASON_NONE;
	uint64_t memory_align_ = 0, block_ = 0; // 0: not known
	int distance_ = 0;
};

// Transfers bytes between the file of a request and a buffer of libpeerdma's.
int64_t transfer_direct(PeerdmaClient &peerdma, const Request &request, const BufferLocation &location, uint64_t size,
			uint64_t offset, struct peerdma_io_result &result);
// All of a request, in as many parts as the memory has runs. An error of one part is the error of the request.
int64_t transfer_runs(PeerdmaClient &peerdma, const Request &request, const RegisteredMemory &memory,
		      struct peerdma_io_result &result);
// Why all that was transferred went by way of the host although it was to be direct: enum peerdma_reason, 0 if it did not.
uint32_t host_fallback_reason(const struct peerdma_io_result &result);

} // namespace cufile
