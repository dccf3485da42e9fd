// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace cufile
{

// Memory of each GPU that the program has pinned through the kernel, and its limit.
class PinQuota
{
public:
	// Does not affect existing charges.
	void set_limit(uint64_t bytes);
	bool charge(int device, uint64_t bytes);
	void refund(int device, uint64_t bytes);

private:
	std::mutex lock_; // protects both
	uint64_t limit_ = UINT64_MAX;
	std::map<int, uint64_t> charged_;
};

} // namespace cufile
