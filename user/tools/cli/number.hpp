// SPDX-License-Identifier: MIT
//
// Numbers as people write them: on a command line, and in a file of jobs. All of the text has to be the number: no blanks,
// no sign, nothing behind it; what is too large is none.
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

// "3", "0.5": digits, and no more than one point between them. Not infinite, and always a number.
std::optional<double> parse_real(std::string_view text);

} // namespace cli
