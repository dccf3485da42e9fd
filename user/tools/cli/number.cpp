// SPDX-License-Identifier: MIT
#include "tools/cli/number.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace cli
{
namespace
{

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the number at the beginning of text and returns it.
std::optional<uint64_t> take_integer(std::string_view &text)
{
	int base = 10;
	if (text.starts_with("0x") || text.starts_with("0X")) {
		base = 16;
		text.remove_prefix(2);
	}
	uint64_t value = 0;
	const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
	if (error != std::errc())
		return std::nullopt;
	text.remove_prefix(static_cast<size_t>(end - text.data()));
	return value;
}

// 10 for "K", "KB" and "KiB"; 0 for nothing and for "B".
std::optional<unsigned> shift_of(std::string_view unit)
{
	constexpr std::string_view letters = "KMGTkmgt";
	if (unit.empty() || unit == "B" || unit == "b")
		return 0;
	const size_t at = letters.find(unit.front());
	const std::string_view tail = unit.substr(1);
	for (const std::string_view known : std::array<std::string_view, 5>{"", "B", "b", "iB", "ib"})
		if (at != letters.npos && tail == known)
			return 10 * static_cast<unsigned>(at % 4 + 1);
	return std::nullopt;
}

} // namespace

std::optional<uint64_t> parse_integer(std::string_view text)
{
	const auto value = take_integer(text);
	return text.empty() ? value : std::nullopt;
}

std::optional<uint64_t> parse_bytes(std::string_view text)
{
	const auto value = take_integer(text);
	const auto shift = shift_of(text);
	if (!value || !shift || *value > UINT64_MAX >> *shift)
		return std::nullopt;
	return *value << *shift;
}

std::optional<double> parse_real(std::string_view text)
{
	// Otherwise from_chars() would accept "nan", "inf" and signs.
	if (text.empty() || !is_digit(text.front()) || !is_digit(text.back()))
		return std::nullopt;
	double value = 0;
	const auto [end, error] =
		std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
	if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
		return std::nullopt;
	return value;
}

} // namespace cli
