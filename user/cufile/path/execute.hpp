// SPDX-License-Identifier: MIT
//
// Runs requests, and the pieces of jobs, by the path that the router has chosen.
#pragma once

#include <cstdint>

#include "cufile/path/bounce_buffer.hpp"
#include "cufile/path/job.hpp"
#include "cufile/path/request.hpp"

namespace cufile
{

// Runs a request of any path but bounce. fallback: what was to be direct and went by way of the host.
int64_t run_request(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		    HostFallback &fallback);
// Bounces a request that fits into one slab. share: of a read.
int64_t bounce_small(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		     NtReader::Share share);
// Takes and runs pieces of a job until there are none left. Several threads may do so with one job.
void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers);

} // namespace cufile
