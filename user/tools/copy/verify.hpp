// SPDX-License-Identifier: MIT
#pragma once

#include "tools/cli/cli.hpp"

namespace cli
{

// Read no more than size bytes of a file into the memory of a provider, and compare them with what read(2) says.
Report verify(const std::string &path, const std::string &provider, const std::string &size);

} // namespace cli
