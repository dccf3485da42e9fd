// SPDX-License-Identifier: MIT
//
// The bounce path: chooses the number of threads, io_uring and non-temporal copies, and runs the request.
#pragma once

#include <cstdint>

#include "cufile/diag/log.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/path/nt_copy.hpp"
#include "cufile/path/request.hpp"

namespace cufile
{

class HostBounce
{
public:
	explicit HostBounce(Log &log) : log_(log) {}

	// Returns bytes or a negative error.
	int64_t run(Engine &engine, Request &request);
	// The same without helpers, one slab at a time.
	int64_t run_serially(Engine &engine, const Request &request);
	// True if pieces of a request bypass the page cache and one thread can have many in flight. Through the page
	// cache several threads are faster, because they copy.
	bool can_use_uring(Engine &engine, Request &request, uint64_t piece_bytes);

private:
	struct Plan {
		unsigned threads = 1; // including the caller
		bool by_uring = false, crowded = false;
		NtReader::Share share = NtReader::Share::none;
	};
	Plan plan(Engine &engine, Request &request);
	int64_t run_as_job(Engine &engine, const Request &request, const Plan &plan);

	Log &log_;
};

} // namespace cufile
