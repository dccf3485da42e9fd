// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace cufile
{

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string lower(std::string text)
{
	std::ranges::transform(text, text.begin(), [](char c) { return lower(c); });
	return text;
}

// Equal but for case.
constexpr bool same_letters(std::string_view a, std::string_view b)
{
	return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

} // namespace cufile
