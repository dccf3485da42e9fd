// SPDX-License-Identifier: MIT
#include "view/decompressors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace view
{

namespace
{

constexpr size_t buffer_bytes = 256 << 10;
constexpr size_t kept_most = 64 << 10; // when the buffer is full
// What another reader is expected to read meanwhile. Beyond that a stream of its own is begun.
constexpr uint64_t near = 64 << 20;

} // namespace

DecodedStream::DecodedStream(std::unique_ptr<Decoder> decoder, std::function<void(const Decoder &)> passes,
			     const std::atomic<bool> &stopped)
	: decoder_(std::move(decoder)), passes_(std::move(passes)), stopped_(stopped), buffer_(buffer_bytes)
{
}

// Returns how many bytes came. 0: a frame has ended, or the file.
size_t DecodedStream::advance()
{
	if (stopped_)
		throw SourceError(fmt::format("{}: is read no more", decoder_->file().name()), ECANCELED);
	if (buffer_.size() - end_ < buffer_bytes / 4) {
		kept_ = std::min(kept_, kept_most);
		std::memmove(buffer_.data(), buffer_.data() + end_ - kept_, kept_);
		end_ = kept_;
	}
	const size_t came = decoder_->step(std::span(buffer_).subspan(end_));
	end_ += came;
	kept_ += came;
	if (decoder_->is_point())
		passes_(*decoder_);
	return came;
}

void DecodedStream::read(uint64_t offset, std::span<std::byte> to)
{
	while (!to.empty()) {
		while (position() <= offset)
			if (!advance() && decoder_->is_at_end())
				throw SourceError(fmt::format("{}: ends at byte {}, decompressed",
							      decoder_->file().name(), position()),
						  EBADMSG);
		const size_t behind = position() - offset, here = std::min(behind, to.size());
		std::memcpy(to.data(), buffer_.data() + end_ - behind, here);
		to = to.subspan(here);
		offset += here;
	}
}

void DecodedStream::finish(uint64_t end)
{
	while (position() <= end && !decoder_->is_at_end())
		advance();
	if (position() > end)
		throw SourceError(
			fmt::format("{}: has more bytes than its frames are said to have", decoder_->file().name()),
			EBADMSG);
}

bool DecodedStream::pass(uint64_t most, uint64_t until)
{
	for (uint64_t came = 0; came < most;) {
		came += advance();
		if (decoder_->is_between_frames() && decoder_->at() >= until)
			return true;
	}
	return false;
}

Decompressors::Decompressors(uint64_t bytes, Clock::duration patience) : limit_(bytes), patience_(patience) {}

void Decompressors::join(uint64_t storage)
{
	const Lock lock(mutex_);
	storages_[storage].files++;
}

void Decompressors::leave(uint64_t storage)
{
	{
		const Lock lock(mutex_);
		if (!--storages_.at(storage).files)
			storages_.erase(storage);
	}
	changed_.notify_all();
}

uint64_t Decompressors::part() const { return most() / std::max<size_t>(storages_.size(), 1); }

bool Decompressors::has_share(uint64_t memory, uint64_t used) const { return !used || used + memory <= part(); }

// Memory of streams that are busy, or kept for their readers.
uint64_t Decompressors::in_use(uint64_t storage) const
{
	const Clock::time_point now = Clock::now();
	uint64_t memory = 0;
	for (const Slot &slot : slots_)
		memory += (slot.busy || slot.kept_until > now) && slot.storage == storage ? slot.memory : 0;
	return memory;
}

Decompressors::Place Decompressors::nearest(const Wanted &wanted)
{
	Place best = slots_.end();
	for (Place at = slots_.begin(); at != slots_.end(); ++at) {
		if (at->owner != wanted.owner || at->begin > wanted.offset || at->position < wanted.point ||
		    wanted.offset > at->position + near)
			continue;
		if (best == slots_.end() || at->position > best->position ||
		    (at->position == best->position && best->busy))
			best = at;
	}
	return best;
}

// Among the readers that wait for a stream at `position`.
bool Decompressors::is_first_in_line(const Wanted &wanted, uint64_t position) const
{
	return std::ranges::none_of(waiting_, [&](const Wanted *other) {
		return other->owner == wanted.owner && other->offset >= position && other->offset < wanted.offset;
	});
}

// Frees idle streams of one storage, or of all (0), until `bytes` are free. asks: the storage that needs the memory, or 0. Each other
// storage keeps the stream that it used last. A stream that is kept for its reader is freed only if asks is 0: memory is beyond the bound
// then.
void Decompressors::forget_idle(uint64_t storage, uint64_t bytes, uint64_t asks)
{
	const Clock::time_point now = Clock::now();
	for (Place at = slots_.begin(); bytes && at != slots_.end();) {
		const Place next = std::next(at);
		const bool is_last = at->storage != asks && std::none_of(next, slots_.end(), [&](const Slot &slot) {
					     return slot.storage == at->storage;
				     });
		if (!at->busy && (!asks || at->kept_until <= now) && !is_last && (!storage || at->storage == storage)) {
			used_ -= at->memory;
			bytes -= std::min(bytes, at->memory);
			slots_.erase(at);
		}
		at = next;
	}
}

// Frees memory for one more stream of the storage, or, if `memory` is 0, what is beyond the bound. If busy streams of other storages leave
// less than the storage's own part, it keeps its part beyond the bound.
void Decompressors::make_room(uint64_t storage, uint64_t memory)
{
	const uint64_t asks = memory ? storage : 0;
	uint64_t of_storage = 0, busy_elsewhere = 0;
	for (const Slot &slot : slots_) {
		of_storage += slot.storage == storage ? slot.memory : 0;
		busy_elsewhere += slot.busy && slot.storage != storage ? slot.memory : 0;
	}
	const auto excess = [&](uint64_t used, uint64_t limit) {
		return used + memory - std::min(used + memory, limit);
	};
	if (busy_elsewhere + part() <= most())
		forget_idle(0, excess(used_, most()), asks);
	else
		forget_idle(storage, excess(of_storage, part()), asks);
}

// Whether an earlier reader of the same storage waits for memory. Later readers wait behind it; otherwise they could keep the storage's
// part in use for ever. kept: the stream that the reader continues, or nullptr.
bool Decompressors::is_behind(const Wanted &wanted, const Slot *kept)
{
	if (kept && kept->kept_until > Clock::now())
		return false;
	for (const Wanted *other : waiting_) {
		if (other == &wanted)
			break;
		if (other->storage == wanted.storage && !other->stopped && nearest(*other) == slots_.end())
			return true;
	}
	return false;
}

// Returns a busy slot; it has no stream yet if none is near enough. With the reader in waiting_.
Decompressors::Place Decompressors::take(Lock &lock, const Wanted &wanted)
{
	const Clock::time_point began = Clock::now();
	Place taken = slots_.end();
	while (taken == slots_.end()) {
		if (wanted.stopped)
			throw SourceError("a compressed file is read no more", ECANCELED);
		const Place found = nearest(wanted);
		if (is_behind(wanted, found == slots_.end() ? nullptr : &*found)) {
			changed_.wait_for(lock, patience_);
		} else if (found == slots_.end()) {
			if (has_share(wanted.memory, in_use(wanted.storage))) {
				make_room(wanted.storage, wanted.memory);
				slots_.push_back({wanted.owner, wanted.storage, wanted.memory});
				used_ += wanted.memory;
				taken = std::prev(slots_.end());
				taken->begin = taken->position = wanted.point;
			} else {
				// The time of a kept stream ends without a notification.
				changed_.wait_for(lock, patience_);
			}
		} else if (found->busy) {
			changed_.wait(lock);
		} else if (wanted.offset <= found->position) {
			taken = found;
		} else {
			// Others may be about to read what lies between.
			const Clock::time_point until = std::max(found->moved, began) + patience_;
			if (Clock::now() < until || !is_first_in_line(wanted, found->position))
				changed_.wait_until(lock, std::max(until, Clock::now() + patience_ / 8));
			else
				taken = found;
		}
	}
	taken->busy = true;
	slots_.splice(slots_.end(), slots_, taken);
	return taken;
}

void Decompressors::with(const Wanted &wanted, const Begin &begin, const std::function<void(DecodedStream &)> &use)
{
	Place slot;
	{
		Lock lock(mutex_);
		waiting_.push_back(&wanted);
		try {
			slot = take(lock, wanted);
		} catch (...) {
			std::erase(waiting_, &wanted);
			changed_.notify_all();
			throw;
		}
		std::erase(waiting_, &wanted);
	}
	changed_.notify_all(); // readers behind it
	const bool is_new = !slot->stream;
	const Clock::time_point began = Clock::now();
	try {
		if (is_new)
			slot->stream = begin();
		use(*slot->stream);
	} catch (...) {
		{
			const Lock lock(mutex_);
			used_ -= slot->memory;
			slots_.erase(slot);
		}
		changed_.notify_all();
		throw;
	}
	{
		const Lock lock(mutex_);
		slot->begin = slot->stream->begin();
		// Not that of the stream, which is further: what lies between may be for another reader.
		slot->position = std::max(slot->position, wanted.end);
		slot->moved = Clock::now();
		slot->busy = false;
		if (is_new && wanted.follows)
			slot->kept_until = slot->moved + kept_times * (slot->moved - began);
		slots_.splice(slots_.end(), slots_, slot);
		make_room(wanted.storage);
	}
	changed_.notify_all();
}

void Decompressors::wake()
{
	{
		const Lock lock(mutex_); // not between a look and the wait
	}
	changed_.notify_all();
}

void Decompressors::forget(const void *owner)
{
	{
		const Lock lock(mutex_);
		std::erase_if(slots_, [&](const Slot &slot) {
			if (slot.owner != owner)
				return false;
			used_ -= slot.memory;
			return true;
		});
	}
	changed_.notify_all();
}

bool Decompressors::reserve(uint64_t storage, uint64_t memory)
{
	Lock lock(mutex_);
	Storage &of = storages_.at(storage);
	const auto is_there = [&] {
		return has_share(memory, of.reserved) && (reserved_ + memory <= most() || !of.reserved);
	};
	if (!changed_.wait_for(lock, 2 * patience_, is_there))
		return false;
	reserved_ += memory;
	of.reserved += memory;
	return true;
}

void Decompressors::release(uint64_t storage, uint64_t memory)
{
	{
		const Lock lock(mutex_);
		reserved_ -= memory;
		storages_.at(storage).reserved -= memory;
	}
	changed_.notify_all();
}

uint64_t Decompressors::used_bytes() const
{
	const Lock lock(mutex_);
	return used_;
}

size_t Decompressors::readers_waiting() const
{
	const Lock lock(mutex_);
	return waiting_.size();
}

} // namespace view
