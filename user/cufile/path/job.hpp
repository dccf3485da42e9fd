// SPDX-License-Identifier: MIT
//
// A job is one I/O, or the I/Os of one batch, cut into pieces. A thread that takes a piece finishes it without waiting
// for another thread, so a job ends with any number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/request.hpp"

namespace cufile
{

class ReadPipeline;

class Job
{
public:
	virtual ~Job() = default;
	Job() = default;
	Job(const Job &) = delete;
	Job &operator=(const Job &) = delete;

	struct Piece {
		size_t request;
		char *address;
		uint64_t size, offset;
		int64_t result = 0;
		HostFallback host_fallback;
		// For a pipeline: the slab, and the offset in it.
		size_t slab = 0;
		uint64_t at = 0;
	};

	// Call before any thread takes a piece, with a size above 0. A request longer than piece_bytes is cut at
	// multiples of it in the file.
	void add(Request request, uint64_t piece_bytes);
	const Request &request(const Piece &piece) const { return parts_[piece.request].request; }
	const Request &request(size_t index) const { return parts_[index].request; }
	size_t nr_requests() const { return parts_.size(); }
	size_t nr_pieces() const { return pieces_.size(); }
	Piece &piece(size_t index) { return pieces_[index]; }
	// One past the last piece that is not canceled.
	size_t end_index();
	void set_pipeline(std::shared_ptr<ReadPipeline> pipeline) { pipeline_ = std::move(pipeline); }
	ReadPipeline *pipeline() { return pipeline_.get(); }
	uint64_t started_ns = 0; // for statistics

	// nullptr if all pieces have been taken.
	Piece *take();
	void finish(Piece &piece, int64_t result);
	// Cancels the requests of which no piece was taken: those from the returned index on.
	size_t cancel();
	// Result of a request: the bytes up to end of file, or the error of its first failed piece.
	int64_t result(size_t index) const;
	// The part of a direct request that went through the host.
	const HostFallback &host_fallback(size_t index) const { return pieces_[parts_[index].first].host_fallback; }
	// Returns once all pieces are finished.
	void wait();

protected:
	// Called when all pieces of a request are finished.
	virtual void request_done(size_t) {}

private:
	struct Part {
		Request request;
		size_t first, end; // pieces
		size_t left;
	};

	std::vector<Part> parts_;   // immutable but for left
	std::vector<Piece> pieces_; // each is owned by the thread that took it
	std::mutex lock_;           // protects next_, end_ and each left
	size_t next_ = 0, end_ = 0;
	std::atomic<int> left_{0}; // pieces
	std::shared_ptr<ReadPipeline> pipeline_;
};

} // namespace cufile
