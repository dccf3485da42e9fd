// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

namespace cufile
{

// Numbers for handles, never reused, so a stale handle is invalid. Not small, because programs take small numbers for
// error codes.
class IdSource
{
public:
	uintptr_t next() { return last_ += 16; }
	uintptr_t last() const { return last_; }

private:
	std::atomic<uintptr_t> last_{0x70000000};
};

} // namespace cufile
