// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace cufile
{

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Equal but for case.
constexpr bool same_letters(std::string_view a, std::string_view b)
{
	return std::ranges::equal(a, b, {}, lower, lower);
}

} // namespace cufile
