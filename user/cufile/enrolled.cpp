// SPDX-License-Identifier: MIT
#include "enrolled.hpp"

#include <algorithm>
#include <cerrno>

namespace cufile
{
namespace
{

constexpr uint64_t frame = 65536;
// What is mapped in pieces is so in multiples of this (580, on an H200).
constexpr uint64_t piece = uint64_t{2} << 20;
constexpr int not_supported = 801; // CUresult

uint64_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

} // namespace

int Enrolled::make(Cuda &cuda, Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out,
		   uint32_t &reason, Pinned *pinned, int device)
{
	reason = PEERDMA_REASON_NONE;
	Allocation all;
	if (cuda.allocation(base, all) || !all.id)
		return -EINVAL;
	const uint64_t before = number(base) - all.start;
	if (number(base) < all.start || before > all.size || size > all.size - before)
		return -EINVAL;
	// Before the registration, which would be left behind if there was no memory for it.
	auto made = std::make_shared<Enrolled>(peer, all);
	made->first_ = number(base) / frame * frame;
	const uint64_t last = (number(base) + size - 1) / frame * frame;
	made->start_ = std::max(made->first_, all.start);
	made->end_ = std::min(last + frame, all.start + all.size);
	made->bytes_ = last + frame - made->first_;
	if (!made->find_pieces(cuda))
		return -EINVAL;
	if (pinned && !pinned->take(device, made->bytes_))
		return 1;
	made->pinned_ = pinned;
	made->device_ = device;
	int rc = peer.enroll(reinterpret_cast<const void *>(made->first_), made->bytes_, made->place_, reason);
	if (rc == -EOPNOTSUPP)
		rc = made->import(cuda, base, size, reason);
	if (rc < 0)
		return rc;
	// From now on the driver's own copies do not overlap with the drive's. For what is mapped in pieces it does not do that:
	// there the program waits for its copies itself. And what was freed meanwhile is not what the kernel has, or not what
	// the program has.
	const int synchronous = cuda.sync_copies(base);
	if (synchronous && synchronous != not_supported)
		return -EOPNOTSUPP;
	if (!made->is_there(cuda))
		return -ENODEV;
	out = std::move(made);
	return 0;
}

// Nobody says which GPU's it is: all of it counts as one's. The buffer is of whole frames of the allocation.
int Enrolled::adopt(Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out, uint32_t &reason,
		    Pinned &pinned)
{
	auto made = std::make_shared<Enrolled>(peer, Allocation{});
	const int rc = peer.adopt(base, size, made->place_, reason);
	if (rc < 0)
		return rc;
	made->first_ = made->start_ = number(base) - made->place_.offset;
	made->end_ = number(base) + made->place_.size;
	made->bytes_ = made->end_ - made->start_;
	if (!pinned.take(made->device_, made->bytes_))
		return 1;
	made->pinned_ = &pinned;
	out = std::move(made);
	return 0;
}

Enrolled::~Enrolled()
{
	if (place_.buffer)
		peer_.release(place_.buffer);
	if (pinned_)
		pinned_->give(device_, bytes_);
}

bool Enrolled::has(const void *address, uint64_t size) const
{
	const uint64_t at = number(address);
	return at >= start_ && at <= end_ && size <= end_ - at;
}

// Where neither way is, the reason is that of the one that got further.
int Enrolled::import(Cuda &cuda, const void *base, uint64_t size, uint32_t &reason)
{
	Memory memory;
	std::string gpu;
	if (cuda.look_up(base, memory) || cuda.pci_address(memory.device, gpu))
		return -EOPNOTSUPP;
	uint32_t why = PEERDMA_REASON_NONE;
	const int rc = peer_.import(base, size, gpu, place_, why);
	if (rc < 0) {
		if (why && why != PEERDMA_REASON_IMPORT_UNKNOWN && why != PEERDMA_REASON_IMPORT_HANDLE)
			reason = why;
		return rc;
	}
	reason = PEERDMA_REASON_NONE;
	first_ = number(base) - place_.offset;
	start_ = std::max(start_, first_);
	end_ = std::min(end_, number(base) + place_.size);
	return 0;
}

// False: some of it is not there.
bool Enrolled::find_pieces(Cuda &cuda)
{
	uint64_t last = 0;
	for (uint64_t at = start_; at < end_; at = (at / piece + 1) * piece) {
		Allocation now;
		if (cuda.allocation(reinterpret_cast<const void *>(at), now) || !now.id)
			return false;
		if (now.id != last)
			pieces_[at] = last = now.id;
	}
	return true;
}

bool Enrolled::is_there(Cuda &cuda) const
{
	return is_there(cuda, reinterpret_cast<const void *>(start_), end_ - start_);
}

bool Enrolled::is_there(Cuda &cuda, const void *address, uint64_t size) const
{
	auto next = pieces_.upper_bound(number(address));
	if (next != pieces_.begin())
		--next;
	for (; next != pieces_.end() && (next->first < number(address) + size); ++next) {
		Allocation now;
		if (cuda.allocation(reinterpret_cast<const void *>(next->first), now) || now.id != next->second)
			return false;
	}
	return true;
}

Place Enrolled::place(const void *address) const
{
	Place at = place_;
	at.enrolled = true;
	at.offset = number(address) - first_;
	at.size = end_ - number(address);
	return at;
}

} // namespace cufile
