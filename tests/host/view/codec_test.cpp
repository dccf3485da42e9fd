// SPDX-License-Identifier: MIT
// Codecs of views: names, exactness, what does not fit, and the rounding of floats.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "view/codec.hpp"

namespace
{

using view::Codec;
using view::Element;
using view::Reduction;

template <class Value> std::vector<std::byte> bytes_of(const std::vector<Value> &values)
{
	std::vector<std::byte> bytes(values.size() * sizeof(Value));
	if (!values.empty())
		std::memcpy(bytes.data(), values.data(), bytes.size());
	return bytes;
}

TEST(Codec, HasOneName)
{
	const std::vector<std::pair<const char *, Codec>> names = {
		{"u32:none", {Element::u32, Reduction::none, 32}}, {"i64:none", {Element::i64, Reduction::none, 64}},
		{"f32:none", {Element::f32, Reduction::none, 32}}, {"byte:none", {Element::byte, Reduction::none, 8}},
		{"u32:1", {Element::u32, Reduction::bits, 1}},     {"u32:17", {Element::u32, Reduction::bits, 17}},
		{"u32:u16", {Element::u32, Reduction::bits, 16}},  {"u32:u24", {Element::u32, Reduction::bits, 24}},
		{"u32:31", {Element::u32, Reduction::bits, 31}},   {"i64:18", {Element::i64, Reduction::bits, 18}},
		{"i64:u32", {Element::i64, Reduction::bits, 32}},  {"f32:bf16", {Element::f32, Reduction::bf16, 16}},
	};
	for (const auto &[name, codec] : names) {
		EXPECT_TRUE(codec.valid()) << name;
		EXPECT_EQ(codec.name(), name);
		EXPECT_EQ(Codec::parse(name), codec) << name;
	}
	EXPECT_EQ(Codec::parse("u32:16"), Codec::parse("u32:u16"));
}

TEST(Codec, RefusesOtherNames)
{
	for (const char *name :
	     {"",        "u32",      ":",       "u32:",     "u32:0",   "u32:32",  "u32:u32",         "u32:33",
	      "u32:u17", "u32:-1",   "u32:+1",  "u32:017",  "u32:17 ", "u32:17x", "u32: 17",         "i64:33",
	      "i64:64",  "f32:16",   "f32:u16", "u32:bf16", "byte:4",  "i32:16",  "u32:99999999999", "U32:16",
	      "u32:u",   "byte:bf16"})
		EXPECT_FALSE(Codec::parse(name)) << name;
}

TEST(Codec, IsInvalidWithNumbersThatNoNameHas)
{
	EXPECT_FALSE((Codec{static_cast<Element>(0), Reduction::none, 32}.valid()));
	EXPECT_FALSE((Codec{static_cast<Element>(9), Reduction::none, 32}.valid()));
	EXPECT_FALSE((Codec{Element::u32, static_cast<Reduction>(3), 16}.valid()));
	EXPECT_FALSE((Codec{Element::u32, Reduction::none, 16}.valid()));
	EXPECT_FALSE((Codec{Element::f32, Reduction::bf16, 17}.valid()));
	EXPECT_FALSE((Codec{Element::i64, Reduction::bits, 0}.valid()));
}

// Every width, amounts beside one chunk's; the reduced bytes end where they should.
template <class Value> void comes_back(Element element, unsigned most)
{
	for (unsigned bits = 1; bits <= most; bits++) {
		const Codec codec = {element, Reduction::bits, bits};
		ASSERT_TRUE(codec.valid());
		for (const size_t count : {0, 1, 7, 8, 9, 1023, 1024, 1025, 2051}) {
			std::vector<Value> values(count);
			for (size_t i = 0; i < count; i++)
				values[i] = static_cast<Value>((i * 2654435761u ^ i >> 3) & ((1ULL << bits) - 1));
			const std::vector<std::byte> file = bytes_of(values);
			std::vector<std::byte> reduced(codec.reduced_bytes(count) + 1, std::byte{0x5a}),
				back(file.size());
			ASSERT_EQ(view::reduce(codec, file, reduced.data()), count);
			EXPECT_EQ(reduced.back(), std::byte{0x5a}) << bits << " bits, " << count;
			view::restore(codec, reduced.data(), count, back.data());
			EXPECT_TRUE(back == file) << bits << " bits, " << count;
		}
	}
}

TEST(Codec, BringsIntegersBack)
{
	comes_back<uint32_t>(Element::u32, 31);
	comes_back<uint64_t>(Element::i64, 32);
}

TEST(Codec, LeavesTheBytesOfNone)
{
	const std::vector<std::byte> file = bytes_of<int64_t>({-1, 5, INT64_MIN});
	const Codec codec = {Element::i64, Reduction::none, 64};
	std::vector<std::byte> reduced(codec.reduced_bytes(3)), back(file.size());
	EXPECT_EQ(view::reduce(codec, file, reduced.data()), 3u);
	EXPECT_TRUE(reduced == file);
	view::restore(codec, reduced.data(), 3, back.data());
	EXPECT_TRUE(back == file);
}

TEST(Codec, NamesTheFirstThatDoesNotFit)
{
	for (const size_t at : {0, 7, 1023, 1024, 3000}) {
		std::vector<uint32_t> narrow(3001, 0x1ffff);
		narrow[at] = 0x20000;
		std::vector<std::byte> to(4096 * 4);
		EXPECT_EQ(view::reduce({Element::u32, Reduction::bits, 17}, bytes_of(narrow), to.data()), at);
		for (const int64_t misfit : {int64_t{-1}, int64_t{1} << 32, INT64_MIN, int64_t{0x20000}}) {
			std::vector<int64_t> wide(3001, 0x1ffff);
			wide[at] = misfit;
			EXPECT_EQ(view::reduce({Element::i64, Reduction::bits, 17}, bytes_of(wide), to.data()), at)
				<< misfit;
		}
	}
}

// Somebody writes to a file that is mapped: what was not packed does not count.
TEST(Codec, CountsNothingThatItHasNotPacked)
{
#ifdef __SANITIZE_THREAD__
	GTEST_SKIP() << "it is a race";
#endif
	const Codec codec = *Codec::parse("u32:16");
	std::vector<uint32_t> values(1024, 7);
	std::atomic<bool> stop = false;
	std::thread writer([&] {
		for (uint32_t i = 0; !stop; i++)
			std::atomic_ref(values[500]).store(i % 2 ? 70000 : 7);
	});
	std::vector<std::byte> packed(2048);
	int not_packed = 0;
	for (int i = 0; i < 30000; i++) {
		packed[0] = std::byte{0xee};
		if (view::reduce(codec, std::as_bytes(std::span(values)), packed.data()) == values.size())
			not_packed += packed[0] != std::byte{7};
	}
	stop = true;
	writer.join();
	EXPECT_EQ(not_packed, 0);
}

TEST(Codec, FindsTheFewestBits)
{
	uint64_t misfit = 0;
	EXPECT_EQ(view::needed_bits(Element::u32, {}, misfit), 1u);
	EXPECT_EQ(view::needed_bits(Element::u32, bytes_of<uint32_t>({0, 0}), misfit), 1u);
	EXPECT_EQ(view::needed_bits(Element::u32, bytes_of<uint32_t>({50256, 3}), misfit), 16u);
	EXPECT_EQ(view::needed_bits(Element::u32, bytes_of<uint32_t>({3, 128255}), misfit), 17u);
	EXPECT_EQ(view::needed_bits(Element::i64, bytes_of<int64_t>({151935}), misfit), 18u);
	EXPECT_EQ(view::needed_bits(Element::u32, bytes_of<uint32_t>({UINT32_MAX}), misfit), 32u);
	EXPECT_EQ(view::needed_bits(Element::i64, bytes_of<int64_t>({UINT32_MAX}), misfit), 32u);
	EXPECT_EQ(view::needed_bits(Element::i64, bytes_of<int64_t>({1, 2, -1}), misfit), 0u);
	EXPECT_EQ(misfit, 2u);
	EXPECT_EQ(view::needed_bits(Element::i64, bytes_of<int64_t>({1, int64_t{1} << 32}), misfit), 0u);
	EXPECT_EQ(misfit, 1u);
}

uint16_t rounded(uint32_t bits)
{
	uint16_t to = 0;
	EXPECT_EQ(view::reduce({Element::f32, Reduction::bf16, 16}, bytes_of<uint32_t>({bits}),
			       reinterpret_cast<std::byte *>(&to)),
		  1u);
	return to;
}

TEST(Codec, RoundsFloatsToTheNearest)
{
	EXPECT_EQ(rounded(0x3f800000), 0x3f80); // 1
	EXPECT_EQ(rounded(0x3f807fff), 0x3f80); // below the middle
	EXPECT_EQ(rounded(0x3f808000), 0x3f80); // the middle: to the even one, down
	EXPECT_EQ(rounded(0x3f818000), 0x3f82); // the middle: up
	EXPECT_EQ(rounded(0x3f808001), 0x3f81); // above the middle
	EXPECT_EQ(rounded(0x7f7fffff), 0x7f80); // the largest becomes infinity
	EXPECT_EQ(rounded(0x7f800000), 0x7f80);
	EXPECT_EQ(rounded(0xff800000), 0xff80);
	EXPECT_EQ(rounded(0x80000000), 0x8000); // -0
	EXPECT_EQ(rounded(0x00000001), 0x0000);
}

TEST(Codec, KeepsNaNs)
{
	for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f80ffffu}) {
		const uint32_t back = static_cast<uint32_t>(rounded(bits)) << 16;
		EXPECT_TRUE(std::isnan(std::bit_cast<float>(back))) << std::hex << bits;
		EXPECT_EQ(back >> 31, bits >> 31);
	}
	float back = 0;
	const uint16_t half = 0x4049;
	view::restore({Element::f32, Reduction::bf16, 16}, reinterpret_cast<const std::byte *>(&half), 1,
		      reinterpret_cast<std::byte *>(&back));
	EXPECT_EQ(back, 3.140625f);
}

TEST(Codec, PrintsValues)
{
	EXPECT_EQ(view::value_text(Element::u32, bytes_of<uint32_t>({1, UINT32_MAX}), 1), "4294967295");
	EXPECT_EQ(view::value_text(Element::i64, bytes_of<int64_t>({-5}), 0), "-5");
	EXPECT_EQ(view::value_text(Element::f32, bytes_of<float>({1.5f}), 0), "1.5");
	EXPECT_EQ(view::value_text(Element::byte, bytes_of<uint8_t>({7, 200}), 1), "200");
}

} // namespace
