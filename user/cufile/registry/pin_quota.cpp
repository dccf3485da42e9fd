// SPDX-License-Identifier: MIT
#include "cufile/registry/pin_quota.hpp"

namespace cufile
{

void PinQuota::set_limit(uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	limit_ = bytes;
}

bool PinQuota::charge(int device, uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	uint64_t &charged = charged_[device];
	if (charged > limit_ || bytes > limit_ - charged)
		return false;
	charged += bytes;
	return true;
}

void PinQuota::refund(int device, uint64_t bytes)
{
	const std::lock_guard guard(lock_);
	charged_[device] -= bytes;
}

} // namespace cufile
