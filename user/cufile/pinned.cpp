// SPDX-License-Identifier: MIT
#include "pinned.hpp"

namespace cufile
{

void Pinned::set_most(uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	most_ = bytes;
}

bool Pinned::take(int device, uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	uint64_t &taken = taken_[device];
	if (taken > most_ || bytes > most_ - taken)
		return false;
	taken += bytes;
	return true;
}

void Pinned::give(int device, uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	taken_[device] -= bytes;
}

} // namespace cufile
