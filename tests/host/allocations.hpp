// SPDX-License-Identifier: MIT
// Memory that runs short: the allocator of unit tests.
#pragma once

/// Allocations of this thread until each one fails; negative: none fails.
extern thread_local int allocations_left;
