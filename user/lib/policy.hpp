// SPDX-License-Identifier: MIT
//
// Applies the rules to this process and its handles.
#pragma once

#include "lib/device.hpp"

namespace peerdma_impl
{

// The rule that decides about memory of a provider before a file is known; nullptr if no rule does.
const Rule *decide(const Device &device, const struct peerdma_provider_info &provider);

// 0 or -EACCES. Also 0 if the provider does not exist, which the kernel then refuses.
int permit(const Device &device, uint32_t provider_id);

// Whether bytes may move between the file and the provider: 0, -EACCES, or the error that prevented the decision. A
// decision holds as long as the file is open.
int permit(struct peerdma_file &file, uint32_t provider_id, const Rule **by = nullptr);

} // namespace peerdma_impl
