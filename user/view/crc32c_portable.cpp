// SPDX-License-Identifier: MIT
//
// By tables: eight bytes at a time.
#include <array>
#include <bit>
#include <cstring>

#include "view/crc32c.hpp"

namespace view
{
namespace
{

static_assert(std::endian::native == std::endian::little, "words are read as they are");

constexpr uint32_t polynomial = 0x82f63b78; // reflected

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[n][b]: what byte b does to the checksum of itself and n zeros behind it.
constexpr Tables make_tables()
{
	Tables tables = {};
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
		tables[0][byte] = crc;
	}
	for (size_t n = 1; n < tables.size(); n++)
		for (size_t byte = 0; byte < 256; byte++)
			tables[n][byte] = tables[n - 1][byte] >> 8 ^ tables[0][tables[n - 1][byte] & 0xff];
	return tables;
}

constexpr Tables tables = make_tables();

} // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before)
{
	uint32_t crc = ~before;
	while (bytes.size() >= 8) {
		uint64_t word;
		std::memcpy(&word, bytes.data(), 8);
		word ^= crc;
		crc = 0;
		for (size_t i = 0; i < 8; i++)
			crc ^= tables[7 - i][word >> (8 * i) & 0xff];
		bytes = bytes.subspan(8);
	}
	for (const std::byte byte : bytes)
		crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xff];
	return ~crc;
}

} // namespace view
