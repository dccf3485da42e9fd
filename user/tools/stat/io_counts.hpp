// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"

namespace cli
{

// Bytes by route.
struct Counts {
	uint64_t direct = 0, near = 0, host = 0;
	uint64_t all() const { return direct + near + host; }
	Counts operator-(const Counts &o) const { return {direct - o.direct, near - o.near, host - o.host}; }
	Counts operator+(const Counts &o) const { return {direct + o.direct, near + o.near, host + o.host}; }
};

// The kernel's counters for this open file; nullopt if /proc does not have them.
std::optional<Counts> kernel_counts(peerdma_impl::Syscalls &sys, const Device &device);

} // namespace cli
