// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace CLI
{
class App;
}

namespace cli
{

// The bash script that completes the subcommands and the options of each.
std::string bash_completion(const CLI::App &app);

} // namespace cli
