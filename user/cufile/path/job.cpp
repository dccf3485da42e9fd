// SPDX-License-Identifier: MIT
#include "cufile/path/job.hpp"

#include <algorithm>

namespace cufile
{

size_t Job::end_index()
{
	std::lock_guard guard(lock_);
	return end_;
}

void Job::add(Request request, uint64_t piece_bytes)
{
	const size_t first = pieces_.size();
	uint64_t done = 0;
	while (done < request.size) {
		const uint64_t at = request.offset + done;
		// Whole blocks except for the first and last piece: only whole blocks bypass the page cache.
		const uint64_t part = request.size <= piece_bytes ?
					      request.size :
					      std::min(request.size - done, piece_bytes - at % piece_bytes);
		pieces_.push_back({parts_.size(), request.address + done, part, at, 0, {}, 0, 0});
		done += part;
	}
	parts_.push_back({std::move(request), first, pieces_.size(), pieces_.size() - first});
	end_ = pieces_.size();
	left_ = static_cast<int>(end_);
}

Job::Piece *Job::take()
{
	std::lock_guard guard(lock_);
	return next_ < end_ ? &pieces_[next_++] : nullptr;
}

void Job::finish(Piece &piece, int64_t result)
{
	piece.result = result;
	bool last;
	{
		std::lock_guard guard(lock_);
		last = --parts_[piece.request].left == 0;
	}
	if (last)
		request_done(piece.request);
	if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1)
		left_.notify_all();
}

size_t Job::cancel()
{
	std::lock_guard guard(lock_);
	size_t index = 0;
	while (index < parts_.size() && parts_[index].first < next_)
		index++;
	if (index == parts_.size() || parts_[index].first >= end_)
		return parts_.size();
	left_.fetch_sub(static_cast<int>(end_ - parts_[index].first));
	end_ = parts_[index].first;
	left_.notify_all();
	return index;
}

int64_t Job::result(size_t index) const
{
	const Part &part = parts_[index];
	int64_t total = 0;
	for (size_t i = part.first; i < part.end; i++) {
		const Piece &piece = pieces_[i];
		if (piece.result < 0)
			return result_after_error(part.request.write, static_cast<uint64_t>(total), piece.result);
		total += piece.result;
		if (static_cast<uint64_t>(piece.result) < piece.size)
			break;
	}
	return total;
}

void Job::wait()
{
	int left;
	while ((left = left_.load(std::memory_order_acquire)) != 0)
		left_.wait(left, std::memory_order_acquire);
}

} // namespace cufile
