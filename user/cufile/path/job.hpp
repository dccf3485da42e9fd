// SPDX-License-Identifier: MIT
//
// A job is one I/O, or the I/Os of one batch, cut into pieces that threads take one after the other. Who takes a
// piece moves it to its end and needs nobody else for that: so a job ends however few threads there are.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/peer_gpu_bounce.hpp"
#include "cufile/registry/file.hpp"
#include "cufile/registry/registered_memory.hpp"
#include "peerdma_cufile.h"

namespace cufile
{

// Errors inside the library are negative: an errno, or a CUfileOpError.
constexpr int64_t failed(CUfileOpError error) { return -static_cast<int64_t>(error); }

using FallbackReason = enum peerdma_cufile_why;

enum class TransferPath { direct, host, bounce, peer_gpu }; // their numbers are the probes'

struct FileHandle;
struct Request;

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
	// Immutable once ask() is through.
	uint32_t refused_ = PEERDMA_REASON_NONE;
	uint64_t memory_align_ = 0, block_ = 0; // 0: not known
	int distance_ = 0;
};

// The GPU was given an address that it does not have, or has failed.
constexpr int64_t copy_failed = -EIO;

// What is to be moved, and which way.
struct Request {
	std::shared_ptr<FileHandle> handle;
	std::shared_ptr<File> file;
	bool write = false;
	char *address = nullptr;
	uint64_t size = 0, offset = 0;
	TransferPath path = TransferPath::host;
	FallbackReason fallback = PEERDMA_CUFILE_WHY_NONE;
	uint32_t reason = 0;                          // enum peerdma_reason, if why is REFUSED or NOT_A_BUFFER
	Memory memory;                                // if it bounces
	File::UringTarget uring_target;               // what its file said of its beginning, if that is for a ring
	std::shared_ptr<DirectFile> direct_file;      // if it is direct, or by a peer_gpu
	std::shared_ptr<PeerGpuBounce> peer_gpu;      // if it is by one
	BufferLocation location;                      // if it is direct
	std::weak_ptr<RegisteredMemory> registration; // whose place that is, if it is one's
	bool strict = false;                          // directly, or not at all
	bool in_stream = false;                       // a stream waits for it: nothing may be copied
};

// What did not go directly although it was to.
struct HostFallback {
	uint32_t reason = 0; // enum peerdma_reason, if that was all of it
	uint64_t bytes = 0;  // that went by way of the host
};

class BouncePipeline;

class Job
{
public:
	virtual ~Job();
	Job();
	Job(const Job &) = delete;
	Job &operator=(const Job &) = delete;

	struct Piece {
		size_t request;
		char *address;
		uint64_t size, offset;
		int64_t result = 0;
		HostFallback host_fallback;
		// Where a pipeline has it.
		size_t slab = 0;
		uint64_t at = 0; // in the slab
	};

	// Before it is given to anybody; of no request of 0 bytes. piece_bytes: what a longer one is cut into, at multiples
	// of it in the file.
	void add(Request request, uint64_t piece_bytes);
	const Request &request(const Piece &piece) const { return parts_[piece.request].request; }
	const Request &request(size_t index) const { return parts_[index].request; }
	size_t nr_requests() const { return parts_.size(); }
	size_t nr_pieces() const { return pieces_.size(); }
	Piece &piece(size_t index) { return pieces_[index]; }
	// Behind the last piece that is not taken back.
	size_t end();
	// Its pieces move on it, if it has one.
	void set_pipeline(std::unique_ptr<BouncePipeline> pipeline);
	BouncePipeline *pipeline() { return pipeline_.get(); }
	uint64_t started_ns = 0; // for statistics

	// The next piece, or nullptr: all have been taken.
	Piece *take();
	void finish(Piece &piece, int64_t result);
	// Takes back the requests of which no piece was taken; the result is those, from it to the last.
	size_t cancel();
	// What a request came to: the bytes up to the end of the file, or the error of its first piece that has one.
	int64_t result(size_t index) const;
	// What of it did not go directly although it was to.
	const HostFallback &host_fallback(size_t index) const { return pieces_[parts_[index].first].host_fallback; }
	// Until all pieces are finished.
	void wait();

protected:
	// All pieces of a request are finished.
	virtual void done(size_t) {}

private:
	struct Part {
		Request request;
		size_t first, end; // pieces
		size_t left;
	};

	std::vector<Part> parts_;   // immutable but for left
	std::vector<Piece> pieces_; // each is of who took it
	std::mutex lock_;           // protects next_, end_ and each left
	size_t next_ = 0, end_ = 0;
	std::atomic<int> left_{0}; // pieces
	std::unique_ptr<BouncePipeline> pipeline_;
};

// Moves pieces until there are none to be taken. More than one thread may do so with one job.
void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers);

// Moves one request that fits into one slab. share: of a read.
int64_t bounce_small(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		     NtReader::Share share);

// Moves bytes between the file of a request and a location in a buffer of libpeerdma's.
int64_t transfer_direct(PeerdmaClient &peerdma, const Request &request, const BufferLocation &location, uint64_t size,
			uint64_t offset, struct peerdma_io_result &result);
// Why all that was moved went by way of the host although it was not to: enum peerdma_reason, 0 if it did not.
uint32_t host_fallback_reason(const struct peerdma_io_result &result);

// Moves a request that does not bounce. What of it was to go directly, and went by way of the host, is in host_fallback.
int64_t run_request(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		    HostFallback &host_fallback);

} // namespace cufile
