// SPDX-License-Identifier: MIT
//
// The elements of a view in tests, and their reduced form, computed one bit at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using Values = std::vector<uint64_t>;

// As a file has them, with `width` bytes each.
inline std::string bytes_of(const Values &values, size_t width)
{
	std::string bytes;
	bytes.reserve(values.size() * width);
	for (const uint64_t value : values)
		bytes.append(reinterpret_cast<const char *>(&value), width);
	return bytes;
}

// As user/view/layout.hpp describes them.
inline std::string packed(const Values &values, unsigned bits)
{
	std::string bytes((values.size() * bits + 7) / 8, '\0');
	for (size_t i = 0; i < values.size(); i++)
		for (unsigned bit = 0; bit < bits; bit++)
			if (values[i] >> bit & 1)
				bytes[(i * bits + bit) / 8] |= static_cast<char>(1 << (i * bits + bit) % 8);
	return bytes;
}

inline Values random_values(size_t count, unsigned bits, unsigned seed = 1)
{
	std::mt19937_64 random(seed * 64 + bits);
	Values values(count);
	for (uint64_t &value : values)
		value = random() & (~uint64_t{0} >> (64 - bits));
	return values;
}

// `count` of them from `first` on.
inline Values part_of(const Values &values, size_t first, size_t count)
{
	const auto from = values.begin() + static_cast<long>(first);
	return {from, from + static_cast<long>(count)};
}
