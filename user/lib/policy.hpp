// SPDX-License-Identifier: MIT
//
// What the rules say to this process, of the handles that it has.
#pragma once

#include "lib/device.hpp"

namespace peerdma_impl
{

// The rule that decides whether it may have memory of a provider, before there is a file; nullptr: none.
const Rule *decide(const Device &device, const struct peerdma_provider_info &provider);

// Whether it may; 0 or -EACCES. A provider that is not there is the kernel's to refuse.
int permit(const Device &device, uint32_t provider_id);

// Whether bytes of the file may go to or from memory of the provider: 0, -EACCES, or why it could not be found out. What
// was decided once stays as long as the file is open.
int permit(struct peerdma_file &file, uint32_t provider_id, const Rule **by = nullptr);

} // namespace peerdma_impl
