// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace cufile
{

// How much memory of each GPU a program has registered with the kernel, and how much it may.
class Pinned
{
public:
	// What is there already stays.
	void set_most(uint64_t bytes);
	bool take(int device, uint64_t bytes);
	void give(int device, uint64_t bytes);

private:
	std::mutex lock_; // protects both
	uint64_t most_ = UINT64_MAX;
	std::map<int, uint64_t> taken_;
};

} // namespace cufile
