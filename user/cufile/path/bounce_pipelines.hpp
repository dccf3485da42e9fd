// SPDX-License-Identifier: MIT
#pragma once

#include "cufile/path/read_pipeline.hpp"
#include "cufile/path/write_pipeline.hpp"

namespace cufile
{

// Takes pieces of a job until none is left. Several threads may process one job. other: runs and finishes a piece that
// does not bounce.
template <class Other>
void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers, Other &&other)
{
	if (job.pipeline()) {
		job.pipeline()->process_pieces();
		return;
	}
	WritePipeline pipeline(job, deps, bounce_buffers);
	while (Job::Piece *piece = job.take()) {
		if (job.request(*piece).path == TransferPath::bounce)
			pipeline.add(*piece);
		else
			other(*piece);
	}
}

} // namespace cufile
