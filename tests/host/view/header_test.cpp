// SPDX-License-Identifier: MIT
// The header of a view: what is written is read again; anything else is refused.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "view/header.hpp"

namespace
{

using view::Header;

using Bytes = std::vector<std::byte>;

Header some_header(uint64_t elements)
{
	Header header;
	header.codec = *view::Codec::parse("u32:17");
	header.elements = elements;
	header.files = {{"/data/a", elements / 3}, {"", 0}, {"/data/b", elements - elements / 3}};
	header.sums.resize((header.data_bytes() + view::sum_bytes - 1) / view::sum_bytes);
	for (size_t i = 0; i < header.sums.size(); i++)
		header.sums[i] = static_cast<uint32_t>(i * 2654435761u);
	return header;
}

// With the CRC made right again: what only it would have noticed.
void seal(Bytes &bytes)
{
	std::memset(bytes.data() + 12, 0, 4);
	const uint32_t crc = view::crc32c(bytes);
	std::memcpy(bytes.data() + 12, &crc, 4);
}

std::string refusal(const Bytes &bytes)
{
	try {
		view::parse(bytes);
	} catch (const view::BadHeader &bad) {
		return bad.what();
	}
	return "";
}

template <class Number> Bytes with(size_t offset, Number value, bool sealed = true)
{
	Bytes bytes = view::serialize(some_header(1000000));
	std::memcpy(bytes.data() + offset, &value, sizeof(value));
	if (sealed)
		seal(bytes);
	return bytes;
}

TEST(ViewHeader, CrcIsCastagnolis)
{
	const char *const digits = "123456789";
	const std::span<const std::byte> bytes = std::as_bytes(std::span(digits, 9));
	EXPECT_EQ(view::crc32c(bytes), 0xe3069283u);
	EXPECT_EQ(view::crc32c(bytes.subspan(4), view::crc32c(bytes.first(4))), 0xe3069283u);
	// Without libisal.
	std::vector<std::byte> many(1000);
	for (size_t i = 0; i < many.size(); i++)
		many[i] = static_cast<std::byte>(i * i + i / 3);
	for (size_t from = 0; from < 9; from++)
		for (size_t len = 0; len < 70; len++) {
			const auto some = std::span<const std::byte>(many).subspan(from, len ? len * 14 : 0);
			EXPECT_EQ(view::crc32c_portable(some), view::crc32c(some));
			EXPECT_EQ(view::crc32c_portable(some, 0x12345678), view::crc32c(some, 0x12345678));
		}
}

TEST(ViewHeader, ComesBack)
{
	for (const uint64_t elements : {0ull, 1ull, 1000000ull, 987654321ull}) {
		const Header header = some_header(elements);
		const Bytes bytes = view::serialize(header);
		EXPECT_EQ(bytes.size(), header.bytes());
		EXPECT_EQ(bytes.size() % view::header_unit, 0u);
		const view::HeaderStart start = view::parse_start(std::span(bytes).first(view::header_unit));
		EXPECT_EQ(start.header_bytes, bytes.size());
		EXPECT_EQ(start.data_bytes, header.data_bytes());
		EXPECT_EQ(view::parse(bytes), header);
	}
}

TEST(ViewHeader, MayBeFollowedByData)
{
	Bytes bytes = view::serialize(some_header(100));
	bytes.resize(bytes.size() + 5000, std::byte{1});
	EXPECT_EQ(view::parse(bytes), some_header(100));
}

TEST(ViewHeader, IsRefusedIfABitIsWrong)
{
	const Bytes right = view::serialize(some_header(1000000));
	for (size_t bit = 0; bit < right.size() * 8; bit += bit < 1024 ? 1 : 97) {
		Bytes bytes = right;
		bytes[bit / 8] ^= std::byte{1} << bit % 8;
		EXPECT_NE(refusal(bytes), "") << "bit " << bit;
	}
}

TEST(ViewHeader, SaysWhatIsWrong)
{
	EXPECT_EQ(refusal(Bytes(4095)), "too short for a header: 4095 bytes");
	EXPECT_EQ(refusal(Bytes(4096)), "not a view");
	EXPECT_EQ(refusal(with<uint32_t>(8, 2)), "version 2 of the header; this program reads version 1");
	for (const uint64_t size : {0ull, 1ull, 4097ull, (1ull << 30) + 4096, ~0ull, ~0ull << 12})
		EXPECT_EQ(refusal(with(16, size)), "the header's size is invalid: " + std::to_string(size) + " bytes");
	EXPECT_EQ(refusal(with<uint64_t>(16, 1 << 20)), "the header is invalid: it is cut off");
	EXPECT_EQ(refusal(with<uint64_t>(40, 1, false)), "the header is invalid: its checksum is wrong");
	EXPECT_EQ(refusal(with<uint8_t>(24, 7)), "the header is invalid: its codec is unknown");
	EXPECT_EQ(refusal(with<uint8_t>(25, 2)), "the header is invalid: its codec is unknown");
	EXPECT_EQ(refusal(with<uint8_t>(26, 32)), "the header is invalid: its codec is unknown");
	EXPECT_EQ(refusal(with<uint8_t>(27, 1)), "the header is invalid: what is reserved is not 0");
	EXPECT_EQ(refusal(with<uint8_t>(127, 1)), "the header is invalid: what is reserved is not 0");
	EXPECT_EQ(refusal(with<uint64_t>(32, ~0ull)), "the header is invalid: too many elements");
	EXPECT_EQ(refusal(with<uint64_t>(32, 999999)),
		  "the header is invalid: its elements do not take the data's bytes");
	EXPECT_EQ(refusal(with<uint64_t>(48, ~0ull)), "the header is invalid: too many files");
	EXPECT_EQ(refusal(with<uint64_t>(48, view::max_files + 1)), "the header is invalid: too many files");
	EXPECT_EQ(refusal(with<uint64_t>(48, view::max_files)), "the header is invalid: its tables are too long");
	EXPECT_EQ(refusal(with<uint64_t>(72, ~0ull)), "the header is invalid: its tables are too long");
	EXPECT_EQ(refusal(with<uint64_t>(48, 2)), "the header is invalid: its tables are not where they belong");
	EXPECT_EQ(refusal(with<uint64_t>(56, 136)), "the header is invalid: its tables are not where they belong");
	EXPECT_EQ(refusal(with<uint64_t>(80, 0)), "the header is invalid: its tables are not where they belong");
	// the table: entries of 16 bytes from 128 on
	EXPECT_EQ(refusal(with<uint64_t>(128, 1000001)),
		  "the header is invalid: its files have more elements than it has");
	EXPECT_EQ(refusal(with<uint64_t>(128, 1)), "the header is invalid: its files do not add up");
	EXPECT_EQ(refusal(with<uint32_t>(136, 1)), "the header is invalid: a file's name is outside of the names");
	EXPECT_EQ(refusal(with<uint32_t>(140, ~0u)), "the header is invalid: a file's name is outside of the names");
}

TEST(ViewHeader, SurvivesNoise)
{
	std::mt19937_64 random(1);
	const Bytes right = view::serialize(some_header(1000000));
	for (int round = 0; round < 3000; round++) {
		Bytes bytes = right;
		for (int i = 0; i <= round % 4; i++) {
			const uint64_t value = random() >> random() % 64;
			std::memcpy(bytes.data() + (8 + random() % 22 * 8), &value, 8);
		}
		seal(bytes);
		refusal(bytes);
	}
}

} // namespace
