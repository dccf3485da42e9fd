// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace CLI
{
class App;
}

namespace cli
{

// What bash reads to complete this command's words: its subcommands, and the options of each.
std::string bash_completion(const CLI::App &app);

} // namespace cli
