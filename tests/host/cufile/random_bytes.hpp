// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

/// Bytes of a linear congruential generator.
inline std::string random_bytes(size_t n, uint32_t seed = 1)
{
	std::string bytes(n, '\0');
	for (char &c : bytes) {
		seed = seed * 1664525 + 1013904223;
		c = static_cast<char>(seed >> 24);
	}
	return bytes;
}
