// SPDX-License-Identifier: MIT
#include "enrolled.hpp"

#include <algorithm>
#include <cerrno>

namespace cufile
{
namespace
{

constexpr uint64_t frame = 65536;

uint64_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }

} // namespace

int Enrolled::make(Cuda &cuda, Peer &peer, const void *base, uint64_t size, std::shared_ptr<Enrolled> &out,
		   uint32_t &reason)
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
	const int rc = peer.enroll(reinterpret_cast<const void *>(made->first_), last + frame - made->first_,
				   made->place_, reason);
	if (rc < 0)
		return rc;
	// From now on the driver's own copies do not overlap with the drive's. And what was freed meanwhile is not what the
	// kernel has, or not what the program has.
	if (cuda.sync_copies(base))
		return -EOPNOTSUPP;
	if (!made->is_there(cuda))
		return -ENODEV;
	out = std::move(made);
	return 0;
}

Enrolled::~Enrolled()
{
	if (place_.buffer)
		peer_.release(place_.buffer);
}

bool Enrolled::has(const void *address, uint64_t size) const
{
	const uint64_t at = number(address);
	return at >= start_ && at <= end_ && size <= end_ - at;
}

bool Enrolled::is_there(Cuda &cuda) const
{
	Allocation now;
	return !cuda.allocation(reinterpret_cast<const void *>(allocation_.start), now) && now.id == allocation_.id;
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
