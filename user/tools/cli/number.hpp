// SPDX-License-Identifier: MIT
//
// Numbers on a command line and in a job file. The whole text must be the number: no blanks, no sign, no trailing text.
// A number that is too large is not valid.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cli
{

// "42", "0x2a".
std::optional<uint64_t> parse_integer(std::string_view text);

// "4096", "0x1000", "64K", "2MiB"; units are powers of 1024.
std::optional<uint64_t> parse_bytes(std::string_view text);

// "3", "0.5": digits with at most one point between them. Never infinite.
std::optional<double> parse_real(std::string_view text);

} // namespace cli
