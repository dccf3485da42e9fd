// SPDX-License-Identifier: MIT
#include "cufile/path/read_pipeline.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "cufile/platform/cuda_context.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{

int64_t ReadPipeline::prepare()
{
	const std::lock_guard guard(lock_);
	if (prepared_)
		return error_;
	prepared_ = true;
	try {
		error_ = acquire_buffer();
	} catch (const std::bad_alloc &) {
		error_ = -ENOMEM;
	}
	return error_;
}

int64_t ReadPipeline::acquire_buffer()
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < job_.nr_pieces(); i++)
		bytes += job_.piece(i).size;
	ScopedCudaContext scope(deps_.cuda);
	int rc = scope.enter(context_);
	if (!rc)
		rc = pool_.acquire(context_, bytes > small_slab, buffer_);
	scope.leave();
	if (rc)
		return rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed;
	if (by_uring_)
		ring_ = pool_.ring(*buffer_);
	// A small buffer has room for two of the longest pieces.
	nr_slabs_ = ring_ && buffer_->large() ? max_slabs_per_buffer : bounce_slabs;
	// At least two slabs, so that one is filled while the other is copied, unless other threads already overlap. As
	// large as possible if many threads fill it: data read a while ago has left the CPU caches, from which a GPU
	// reads at half speed.
	const uint64_t part = bytes / (ring_ || mode_ == Mode::alone ? 4 : mode_ == Mode::crowded ? 1 : 2);
	slab_bytes_ =
		std::clamp((part + 4095) / 4096 * 4096, small_slab / 2, buffer_->large() ? large_slab : small_slab / 2);
	pack();
	// Registering costs two system calls and saves a little for each piece.
	constexpr size_t worth = 16;
	if (ring_ && job_.nr_pieces() >= worth)
		ring_->register_file(uring_target(job_.piece(0)).fd);
	return 0;
}

// Pieces that are adjacent in the file are adjacent in the slab, at the same offset within a file block. So reads past
// the page cache are aligned in both.
void ReadPipeline::pack()
{
	slab_bytes_ = std::min(slab_bytes_ + slab_slack, buffer_->bytes() / nr_slabs_ / 4096 * 4096);
	std::vector<size_t> ends;
	uint64_t used = 0;
	for (size_t i = 0; i < job_.nr_pieces(); i++) {
		Job::Piece &piece = job_.piece(i);
		uint64_t at = used + (piece.offset - used) % 4096;
		if (i && at + piece.size > slab_bytes_) {
			ends.push_back(i);
			at = piece.offset % 4096;
		}
		piece.slab = ends.size();
		piece.at = at;
		used = at + piece.size;
	}
	ends.push_back(job_.nr_pieces());
	slabs_ = std::vector<Slab>(ends.size());
	for (size_t u = 0; u < ends.size(); u++) {
		slabs_[u].first = u ? ends[u - 1] : 0;
		slabs_[u].end = ends[u];
		slabs_[u].left = slabs_[u].end - slabs_[u].first;
	}
}

char *ReadPipeline::slab_address(const Job::Piece &piece) const
{
	return buffer_->memory() + piece.slab % nr_slabs_ * slab_bytes_ + piece.at;
}

File::UringTarget ReadPipeline::uring_target(const Job::Piece &piece) const
{
	const Request &request = job_.request(piece);
	return piece.offset == request.offset ? request.uring_target :
						request.file->uring_target(piece.offset, piece.size);
}

void ReadPipeline::process_pieces()
{
	if (by_uring_ && claimed_.exchange(true))
		return;
	threads_++;
	const int64_t error = prepare();
	const BounceBufferPool::Holder holding; // others wait for the reads of this thread
	// Even if the ring fails: only this thread can complete its reads.
	const bool had_ring = ring_;
	const unsigned number = readers_++;
	while (Job::Piece *piece = job_.take()) {
		if (error)
			job_.finish(*piece, error);
		else if (had_ring)
			submit_read(*piece);
		else
			read_piece(*piece, number);
	}
	if (had_ring)
		drain();
	if (threads_.fetch_sub(1) == 1 && mode_ == Mode::batch)
		end();
}

void ReadPipeline::read_piece(Job::Piece &piece, unsigned number)
{
	if (piece.slab >= nr_slabs_)
		wait_for_slab(slabs_[piece.slab - nr_slabs_], static_cast<unsigned>(piece.slab % nr_slabs_));
	read(piece, number);
}

void ReadPipeline::read(Job::Piece &piece, unsigned number)
{
	const Request &request = job_.request(piece);
	// The kernel was asked about the beginning of the request.
	const bool cached = request.uring_target.cached && piece.offset == request.offset;
	File &file = *request.file;
	NtReader *const nt_reader = number < std::size(buffer_->nt_readers) ? &buffer_->nt_readers[number] : nullptr;
	char *const to = slab_address(piece);
	complete_read(piece, broken_   ? copy_failed :
			     cached    ? file.read_cached(to, piece.size, piece.offset) :
			     nt_reader ? nt_reader->read(file, to, piece.size, piece.offset, share_) :
					 file.read(to, piece.size, piece.offset));
}

void ReadPipeline::complete_read(Job::Piece &piece, int64_t result)
{
	Slab &slab = slabs_[piece.slab];
	piece.result = result;
	if (slab.left.fetch_sub(1) == 1)
		copy_slab(slab);
}

void ReadPipeline::submit_read(Job::Piece &piece)
{
	if (piece.slab >= nr_slabs_) {
		Slab &before = slabs_[piece.slab - nr_slabs_];
		// This thread took all pieces of the slab, and only this thread can complete them.
		while (before.state == reading)
			reap(true);
		if (before.state == copying) {
			// Before this thread sleeps, complete pieces go to the GPU and queued reads to the disk.
			reap(false);
			wait_for_slab(before, static_cast<unsigned>(piece.slab % nr_slabs_));
		}
	}
	if (broken_) {
		complete_read(piece, copy_failed);
		return;
	}
	if (queue_read(piece))
		return;
	while (deferred_)
		reap(true);
	deferred_ = &piece;
}

// False if the piece is not for the ring.
bool ReadPipeline::queue_read(Job::Piece &piece)
{
	if (!ring_)
		return false;
	const File::UringTarget by = uring_target(piece);
	char *const to = slab_address(piece);
	if (by.fd < 0 || piece.size < by.offset || piece.offset % by.offset ||
	    reinterpret_cast<uintptr_t>(to) % by.memory)
		return false;
	while (!ring_->read(by.fd, to, piece.size - piece.size % by.offset, piece.offset,
			    reinterpret_cast<uintptr_t>(&piece))) {
		if (!in_flight_) {
			ring_ = nullptr;
			buffer_->ring.reset();
			return false;
		}
		reap(true);
	}
	in_flight_++;
	return true;
}

// Submits queued reads and takes completions. wait: there is nothing else to do.
void ReadPipeline::reap(bool wait)
{
	Ring::Completion completions[64];
	const size_t n = in_flight_ ? ring_->reap(completions, std::size(completions), wait && !deferred_) : 0;
	in_flight_ -= n;
	for (size_t i = 0; i < n; i++) {
		Job::Piece &piece = *reinterpret_cast<Job::Piece *>(completions[i].tag);
		complete_read(piece, job_.request(piece).file->finish_short_read(slab_address(piece), piece.size,
										 piece.offset, completions[i].result));
	}
	if (!n && wait && deferred_)
		read(*std::exchange(deferred_, nullptr), 0);
}

void ReadPipeline::drain()
{
	while (in_flight_ || deferred_)
		reap(true);
	if (ring_)
		ring_->register_file(-1);
}

void ReadPipeline::wait_for_slab(Slab &slab, unsigned index)
{
	slab.state.wait(reading);
	if (slab.state == ended)
		return;
	ScopedCudaContext scope(deps_.cuda);
	int rc = scope.enter(context_);
	if (!rc)
		rc = deps_.cuda.wait(buffer_->event(index));
	scope.leave();
	complete_slab(slab, rc ? copy_failed : 0);
}

// Called by the thread that read the last piece.
void ReadPipeline::copy_slab(Slab &slab)
{
	ScopedCudaContext scope(deps_.cuda);
	int rc = broken_ ? CUDA_ERROR_UNKNOWN : scope.enter(context_);
	if (!rc) {
		rc = submit_copies(slab);
		// Without an event, the end of the stream is waited for, once.
		if (!rc && slabs_.size() > nr_slabs_)
			rc = deps_.cuda.record(buffer_->event((&slab - slabs_.data()) % nr_slabs_), buffer_->stream());
	}
	scope.leave();
	if (rc) {
		slab.error = copy_failed;
		broken_ = true;
	}
	slab.state = copying;
	slab.state.notify_all();
}

// Copies that are adjacent at both ends are merged.
int ReadPipeline::submit_copies(const Slab &slab)
{
	Copy copies[64];
	size_t n = 0;
	size_t stopped = SIZE_MAX; // the request that has reached end of file or an error
	int rc = 0;
	const size_t end = std::min(slab.end, job_.end_index());
	for (size_t i = slab.first; i < end && !rc; i++) {
		const Job::Piece &piece = job_.piece(i);
		if (piece.request == stopped || piece.result <= 0) {
			stopped = piece.request;
			continue;
		}
		const auto size = static_cast<uint64_t>(piece.result);
		if (size < piece.size)
			stopped = piece.request;
		const char *const from = slab_address(piece);
		if (n && copies[n - 1].device + copies[n - 1].size == piece.address &&
		    copies[n - 1].host + copies[n - 1].size == from) {
			copies[n - 1].size += size;
			continue;
		}
		if (n == std::size(copies)) {
			rc = deps_.cuda.copy_to_device(copies, n, buffer_->stream());
			n = 0;
		}
		copies[n++] = {piece.address, from, size};
	}
	return rc || !n ? rc : deps_.cuda.copy_to_device(copies, n, buffer_->stream());
}

void ReadPipeline::complete_slab(Slab &slab, int64_t error)
{
	// Several threads may have waited for it.
	if (slab.state.exchange(ended) == ended)
		return;
	if (error)
		broken_ = true;
	if (!error)
		error = slab.error;
	// Canceled pieces do not complete here.
	const size_t end = std::min(slab.end, job_.end_index());
	for (size_t i = slab.first; i < end; i++) {
		Job::Piece &piece = job_.piece(i);
		job_.finish(piece, error ? error : piece.result);
	}
}

void ReadPipeline::wait()
{
	for (Slab &slab : slabs_)
		slab.state.wait(reading);
	end();
}

// Called when no thread reads any more.
void ReadPipeline::end()
{
	if (ended_.exchange(true) || !buffer_)
		return;
	for (Slab &slab : slabs_)
		if (slab.state == reading)
			copy_slab(slab);
	ScopedCudaContext scope(deps_.cuda);
	int rc = scope.enter(context_);
	if (!rc)
		rc = deps_.cuda.wait_stream(buffer_->stream());
	scope.leave();
	for (Slab &slab : slabs_)
		complete_slab(slab, rc ? copy_failed : 0);
	pool_.release(std::move(buffer_), broken_);
}

} // namespace cufile
