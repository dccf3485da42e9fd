// SPDX-License-Identifier: MIT
#include "cufile/path/write_pipeline.hpp"

#include <cerrno>
#include <utility>

#include "cufile/platform/errors.hpp"

namespace cufile
{

void WritePipeline::add(Job::Piece &piece)
{
	if (const int rc = enter(job_.request(piece).memory.context)) {
		job_.finish(piece, rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed);
		return;
	}
	while (count_ >= slabs())
		finish_oldest(false);
	const unsigned slab = (oldest_ + count_) % slabs();
	int rc = deps_.cuda.copy_to_host(slab_address(slab), piece.address, piece.size, buffer_->stream());
	if (!rc && wants_events())
		rc = deps_.cuda.record(buffer_->event(slab), buffer_->stream());
	if (rc) {
		job_.finish(piece, copy_failed);
		broken_ = true;
		return;
	}
	in_flight_[slab] = &piece;
	count_++;
}

int WritePipeline::enter(Context context)
{
	if (buffer_ && buffer_->context() == context && !broken_)
		return 0;
	leave();
	int rc = scope_.enter(context);
	if (rc)
		return rc;
	rc = pool_.acquire(context, job_.nr_pieces() > 1, buffer_);
	if (!rc)
		holder_.emplace();
	else
		scope_.leave();
	return rc;
}

void WritePipeline::finish_oldest(bool waited)
{
	Job::Piece &piece = *in_flight_[oldest_];
	const int rc = waited ? 0 : deps_.cuda.wait(buffer_->event(oldest_));
	int64_t result = copy_failed;
	if (rc)
		broken_ = true;
	else
		result = job_.request(piece).file->write(slab_address(oldest_), piece.size, piece.offset);
	oldest_ = (oldest_ + 1) % slabs();
	count_--;
	job_.finish(piece, result);
}

void WritePipeline::leave()
{
	if (!buffer_)
		return;
	if (count_ && !wants_events()) {
		const bool good = !deps_.cuda.wait_stream(buffer_->stream());
		broken_ = broken_ || !good;
		while (count_ && good)
			finish_oldest(true);
	}
	while (count_ && wants_events())
		finish_oldest(false);
	while (count_) {
		Job::Piece &piece = *in_flight_[oldest_];
		oldest_ = (oldest_ + 1) % slabs();
		count_--;
		job_.finish(piece, copy_failed);
	}
	pool_.release(std::move(buffer_), broken_);
	holder_.reset();
	scope_.leave();
	broken_ = false;
	oldest_ = 0;
}

} // namespace cufile
