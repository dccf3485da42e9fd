// SPDX-License-Identifier: MIT
#pragma once

#include "tools/cli/cli.hpp"

namespace cli
{

// Reads at most size bytes of a file into a provider's memory and compares them with read(2).
Report verify(const std::string &path, const std::string &provider, const std::string &size);

} // namespace cli
