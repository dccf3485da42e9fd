// SPDX-License-Identifier: MIT
// Packed integers of each width, against packing bit by bit, with and without AVX2.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "view/pack.hpp"

namespace
{

constexpr std::byte guard{0xa5};

std::vector<std::byte> bit_by_bit(const std::vector<uint32_t> &values, unsigned bits)
{
	std::vector<std::byte> packed((values.size() * bits + 7) / 8);
	for (size_t bit = 0; bit < values.size() * bits; bit++)
		if (values[bit / bits] >> bit % bits & 1)
			packed[bit / 8] |= std::byte{1} << bit % 8;
	return packed;
}

std::vector<uint32_t> random_values(size_t count, unsigned bits, unsigned seed)
{
	std::mt19937 random(seed);
	std::vector<uint32_t> values(count);
	for (uint32_t &value : values)
		value = static_cast<uint32_t>(random()) & UINT32_MAX >> (32 - bits);
	return values;
}

class Pack : public ::testing::TestWithParam<unsigned>
{
protected:
	const unsigned bits = GetParam();

	// Calls body with as many values as fill no group, one, some, and a part of one; for few, each value is the highest once.
	template <class Body> void each(Body &&body)
	{
		for (size_t count = 0; count < 100; count++) {
			SCOPED_TRACE(count);
			body(random_values(count, bits, static_cast<unsigned>(count)));
		}
		for (size_t at = 0; at < 16; at++) {
			std::vector<uint32_t> values(16, 0);
			values[at] = UINT32_MAX >> (32 - bits);
			body(values);
		}
		body(random_values(4099, bits, 1));
	}
};

TEST_P(Pack, IsEachElementsBitsInOrder)
{
	each([&](const std::vector<uint32_t> &values) {
		const std::vector<std::byte> expected = bit_by_bit(values, bits);
		ASSERT_EQ(view::packed_bytes(values.size(), bits), expected.size());
		for (const auto pack : {view::pack, view::pack_portable}) {
			std::vector<std::byte> packed(expected.size() + 64, guard);
			pack(values, bits, packed.data());
			ASSERT_TRUE(std::equal(expected.begin(), expected.end(), packed.begin()));
			ASSERT_TRUE(std::all_of(packed.begin() + static_cast<ptrdiff_t>(expected.size()), packed.end(),
						[](std::byte byte) { return byte == guard; }));
		}
	});
}

TEST_P(Pack, UnpacksToWhatItWas)
{
	each([&](const std::vector<uint32_t> &values) {
		// Exactly as long as it must be: AddressSanitizer sees a byte more that is read.
		const std::vector<std::byte> packed = bit_by_bit(values, bits);
		for (const auto unpack : {view::unpack, view::unpack_portable}) {
			std::vector<uint32_t> unpacked(values.size() + 16, 0xa5a5a5a5);
			unpack(packed.data(), bits, std::span(unpacked).first(values.size()));
			ASSERT_TRUE(std::equal(values.begin(), values.end(), unpacked.begin()));
			ASSERT_TRUE(std::all_of(unpacked.begin() + static_cast<ptrdiff_t>(values.size()),
						unpacked.end(), [](uint32_t value) { return value == 0xa5a5a5a5; }));
		}
	});
}

TEST_P(Pack, CanBeDoneGroupByGroup)
{
	const std::vector<uint32_t> values = random_values(200, bits, 2);
	const std::vector<std::byte> packed = bit_by_bit(values, bits);
	for (size_t first = 0; first < values.size(); first += view::group_elements) {
		std::vector<uint32_t> some(std::min<size_t>(values.size() - first, 24));
		view::unpack(packed.data() + view::packed_bytes(first, bits), bits, some);
		ASSERT_TRUE(std::equal(some.begin(), some.end(), values.begin() + static_cast<ptrdiff_t>(first)));
	}
}

TEST_P(Pack, NeedsAsManyBitsAsTheWidestValue)
{
	EXPECT_EQ(view::bits_of(std::vector<uint32_t>{0, UINT32_MAX >> (32 - bits), 0}), bits);
}

INSTANTIATE_TEST_SUITE_P(Bits, Pack, ::testing::Range(1U, view::max_bits + 1),
			 [](const auto &of) { return std::to_string(of.param); });

TEST(PackNothing, NeedsOneBit) { EXPECT_EQ(view::bits_of({}), 1U); }

} // namespace
