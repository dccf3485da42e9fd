// SPDX-License-Identifier: MIT
#include "belt.hpp"

#include "inside.hpp"
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

namespace cufile
{

int64_t Belt::begin()
{
	const std::lock_guard guard(lock_);
	if (begun_)
		return error_;
	begun_ = true;
	try {
		error_ = take_lane();
	} catch (const std::bad_alloc &) {
		error_ = -ENOMEM;
	}
	return error_;
}

int64_t Belt::take_lane()
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < job_.nr_pieces(); i++)
		bytes += job_.piece(i).size;
	Inside inside(seams_.cuda);
	int rc = inside.enter(context_);
	if (!rc)
		rc = lanes_.take(context_, bytes > small_slab, lane_);
	inside.leave();
	if (rc)
		return rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed;
	if (by_ring_)
		ring_ = lanes_.ring(*lane_);
	// A small one has no room for more than two of the longest pieces.
	slabs_ = ring_ && lane_->large() ? most_slabs : lane_slabs;
	// In two at least, so that one is filled while the other is copied, if that is not what others do. As large as can be
	// where many fill it: what was read a while ago has left the cores' caches, from which a GPU reads at half the speed.
	const uint64_t part = bytes / (ring_ || use_ == Use::alone ? 4 : use_ == Use::crowded ? 1 : 2);
	slab_bytes_ =
		std::clamp((part + 4095) / 4096 * 4096, small_slab / 2, lane_->large() ? large_slab : small_slab / 2);
	pack();
	// Two calls of the kernel, and a little less for each piece.
	constexpr size_t worth = 16;
	if (ring_ && job_.nr_pieces() >= worth)
		ring_->hold(apart(job_.piece(0)).fd);
	return 0;
}

// What follows on in the file lies so in the slab, and where it lies in its block is the same in both: what is to go past
// the page cache is aligned in both.
void Belt::pack()
{
	slab_bytes_ = std::min(slab_bytes_ + slab_slack, lane_->bytes() / slabs_ / 4096 * 4096);
	std::vector<size_t> ends;
	uint64_t used = 0;
	for (size_t i = 0; i < job_.nr_pieces(); i++) {
		Job::Piece &piece = job_.piece(i);
		uint64_t at = used + (piece.offset - used) % 4096;
		if (i && at + piece.size > slab_bytes_) {
			ends.push_back(i);
			at = piece.offset % 4096;
		}
		piece.unit = ends.size();
		piece.at = at;
		used = at + piece.size;
	}
	ends.push_back(job_.nr_pieces());
	units_ = std::vector<Unit>(ends.size());
	for (size_t u = 0; u < ends.size(); u++) {
		units_[u].first = u ? ends[u - 1] : 0;
		units_[u].end = ends[u];
		units_[u].left = units_[u].end - units_[u].first;
	}
}

char *Belt::place(const Job::Piece &piece) const
{
	return lane_->memory() + piece.unit % slabs_ * slab_bytes_ + piece.at;
}

File::Apart Belt::apart(const Job::Piece &piece) const
{
	const Request &request = job_.request(piece);
	return piece.offset == request.offset ? request.apart : request.file->apart(piece.offset, piece.size);
}

void Belt::take_part()
{
	if (by_ring_ && taken_.exchange(true))
		return;
	inside_++;
	const int64_t error = begin();
	const Lanes::Holding holding; // others wait for what this thread reads, and the lane for them
	// Whatever becomes of it: what it had under way only this thread can end.
	const bool had_ring = ring_;
	const unsigned number = came_++;
	while (Job::Piece *piece = job_.take()) {
		if (error)
			job_.finish(*piece, error);
		else if (had_ring)
			start(*piece);
		else
			move(*piece, number);
	}
	if (had_ring)
		drain();
	if (inside_.fetch_sub(1) == 1 && use_ == Use::batch)
		close();
}

void Belt::move(Job::Piece &piece, unsigned number)
{
	if (piece.unit >= slabs_)
		clear(units_[piece.unit - slabs_], static_cast<unsigned>(piece.unit % slabs_));
	read(piece, number);
}

void Belt::read(Job::Piece &piece, unsigned number)
{
	const Request &request = job_.request(piece);
	// The kernel was asked about its beginning.
	const bool cached = request.apart.cached && piece.offset == request.offset;
	File &file = *request.file;
	Scratch *const scratch = number < std::size(lane_->scratches) ? &lane_->scratches[number] : nullptr;
	char *const to = place(piece);
	arrive(piece, broken_ ? copy_failed :
		      cached  ? file.read_cached(to, piece.size, piece.offset) :
		      scratch ? scratch->read(file, to, piece.size, piece.offset, share_) :
				file.read(to, piece.size, piece.offset));
}

void Belt::arrive(Job::Piece &piece, int64_t result)
{
	Unit &unit = units_[piece.unit];
	piece.result = result;
	if (unit.left.fetch_sub(1) == 1)
		copy(unit);
}

void Belt::start(Job::Piece &piece)
{
	if (piece.unit >= slabs_) {
		Unit &before = units_[piece.unit - slabs_];
		// All of it was taken by this thread, and only this thread can end it.
		while (before.state == reading)
			land(true);
		if (before.state == copying) {
			// What has come is on its way to the GPU, and what is queued to the disk, before this thread sleeps.
			land(false);
			clear(before, static_cast<unsigned>(piece.unit % slabs_));
		}
	}
	if (broken_) {
		arrive(piece, copy_failed);
		return;
	}
	if (queue(piece))
		return;
	while (aside_)
		land(true);
	aside_ = &piece;
}

// False: it is not for the ring.
bool Belt::queue(Job::Piece &piece)
{
	if (!ring_)
		return false;
	const File::Apart by = apart(piece);
	char *const to = place(piece);
	if (by.fd < 0 || piece.size < by.offset || piece.offset % by.offset ||
	    reinterpret_cast<uintptr_t>(to) % by.memory)
		return false;
	while (!ring_->read(by.fd, to, piece.size - piece.size % by.offset, piece.offset,
			    reinterpret_cast<uintptr_t>(&piece))) {
		if (!under_way_) {
			ring_ = nullptr;
			lane_->ring.reset();
			return false;
		}
		land(true);
	}
	under_way_++;
	return true;
}

// Hands over what is queued, and takes what has come. wait: there is nothing else to do.
void Belt::land(bool wait)
{
	Ring::Landed landed[64];
	const size_t n = under_way_ ? ring_->reap(landed, std::size(landed), wait && !aside_) : 0;
	under_way_ -= n;
	for (size_t i = 0; i < n; i++) {
		Job::Piece &piece = *reinterpret_cast<Job::Piece *>(landed[i].tag);
		arrive(piece,
		       job_.request(piece).file->go_on(place(piece), piece.size, piece.offset, landed[i].result));
	}
	if (!n && wait && aside_)
		read(*std::exchange(aside_, nullptr), 0);
}

void Belt::drain()
{
	while (under_way_ || aside_)
		land(true);
	if (ring_)
		ring_->hold(-1);
}

void Belt::clear(Unit &unit, unsigned slab)
{
	unit.state.wait(reading);
	if (unit.state == ended)
		return;
	Inside inside(seams_.cuda);
	int rc = inside.enter(context_);
	if (!rc)
		rc = seams_.cuda.wait(lane_->event(slab));
	inside.leave();
	finish(unit, rc ? copy_failed : 0);
}

// By whoever read the last of it.
void Belt::copy(Unit &unit)
{
	Inside inside(seams_.cuda);
	int rc = broken_ ? CUDA_ERROR_UNKNOWN : inside.enter(context_);
	if (!rc) {
		rc = send(unit);
		// Without an event the end of the stream is waited for, once.
		if (!rc && units_.size() > slabs_)
			rc = seams_.cuda.record(lane_->event((&unit - units_.data()) % slabs_), lane_->stream());
	}
	inside.leave();
	if (rc) {
		unit.error = copy_failed;
		broken_ = true;
	}
	unit.state = copying;
	unit.state.notify_all();
}

// What lies side by side at both ends goes as one.
int Belt::send(const Unit &unit)
{
	Copy copies[64];
	size_t n = 0;
	size_t stopped = SIZE_MAX; // the request of which nothing more is to come
	int rc = 0;
	const size_t end = std::min(unit.end, job_.end());
	for (size_t i = unit.first; i < end && !rc; i++) {
		const Job::Piece &piece = job_.piece(i);
		if (piece.request == stopped || piece.result <= 0) {
			stopped = piece.request;
			continue;
		}
		const auto size = static_cast<uint64_t>(piece.result);
		if (size < piece.size)
			stopped = piece.request;
		const char *const from = place(piece);
		if (n && copies[n - 1].device + copies[n - 1].size == piece.address &&
		    copies[n - 1].host + copies[n - 1].size == from) {
			copies[n - 1].size += size;
			continue;
		}
		if (n == std::size(copies)) {
			rc = seams_.cuda.copy_in(copies, n, lane_->stream());
			n = 0;
		}
		copies[n++] = {piece.address, from, size};
	}
	return rc || !n ? rc : seams_.cuda.copy_in(copies, n, lane_->stream());
}

void Belt::finish(Unit &unit, int64_t error)
{
	// Several may have waited for it.
	if (unit.state.exchange(ended) == ended)
		return;
	if (error)
		broken_ = true;
	if (!error)
		error = unit.error;
	// What was taken back has no end here.
	const size_t end = std::min(unit.end, job_.end());
	for (size_t i = unit.first; i < end; i++) {
		Job::Piece &piece = job_.piece(i);
		job_.finish(piece, error ? error : piece.result);
	}
}

void Belt::wait()
{
	for (Unit &unit : units_)
		unit.state.wait(reading);
	close();
}

// Nobody reads any more, and nobody will.
void Belt::close()
{
	if (closed_.exchange(true) || !lane_)
		return;
	for (Unit &unit : units_)
		if (unit.state == reading)
			copy(unit);
	Inside inside(seams_.cuda);
	int rc = inside.enter(context_);
	if (!rc)
		rc = seams_.cuda.wait_stream(lane_->stream());
	inside.leave();
	for (Unit &unit : units_)
		finish(unit, rc ? copy_failed : 0);
	lanes_.give(std::move(lane_), broken_);
}

} // namespace cufile
