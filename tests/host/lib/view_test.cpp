// SPDX-License-Identifier: MIT
//
// Views without a GPU: what is opened as what, and the elements that arrive in host memory and in buffers. What is expected is
// computed here, one bit at a time.
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.hpp"
#include "machine.hpp"
#include "view_image.hpp"
#include "view_range.hpp"
#include "view_values.hpp"

namespace
{

constexpr char guard = 0x5a;

class Views : public Machine
{
protected:
	~Views() override { peerdma_view_close(view); }

	int open(const std::string &bytes, const char *codec = nullptr, uint32_t flags = 0)
	{
		peerdma_view_close(std::exchange(view, nullptr));
		sys.contents["/v"].bytes = bytes;
		args = peerdma::detail::sized<peerdma_view_args>();
		args.codec = codec;
		args.flags = flags;
		return peerdma_view_open(device, "/v", &args, &view);
	}
	void with_buffer(uint32_t flags = 0)
	{
		ASSERT_EQ(peerdma_open(&device, flags), 0);
		ASSERT_EQ(peerdma_buf_create(device, 1, 1 << 16, 0, &buf, nullptr), 0);
	}
	peerdma_view_description info() const
	{
		auto full = peerdma::detail::sized<peerdma_view_description>();
		EXPECT_EQ(peerdma_view_info(view, &full), 0);
		return full;
	}
	int64_t read(const peerdma_view_read_args &what)
	{
		result = peerdma::detail::sized<peerdma_view_result>();
		return peerdma_view_read(view, &what, &result);
	}
	// Into host memory with bytes around it that must not change.
	int64_t read(uint64_t first, uint64_t count, uint32_t as, size_t len)
	{
		constexpr size_t around = 64;
		std::string memory(len + 2 * around, guard);
		const int64_t n = read(range(memory.data() + around, first, count, as));
		got = memory.substr(around, len);
		EXPECT_EQ(memory.substr(0, around), std::string(around, guard));
		EXPECT_EQ(memory.substr(around + len), std::string(around, guard));
		return n;
	}
	int64_t read_u32(uint64_t first, uint64_t count) { return read(first, count, PEERDMA_VIEW_AS_U32, count * 4); }

	struct peerdma_view *view = nullptr;
	peerdma_view_args args = {};
	peerdma_view_result result = {};
	std::string got;
};

// Reads ranges of all kinds in each form that the codec has.
class EachForm : public Views
{
protected:
	void check(const Values &values, unsigned bits, size_t width)
	{
		std::mt19937_64 random(bits);
		const size_t n = values.size();
		for (int i = 0; i < 12; i++) {
			const uint64_t first = i < 2 ? 0 : random() % n, count = i ? 1 + random() % (n - first) : n;
			const Values some = part_of(values, first, count);
			check_as(PEERDMA_VIEW_AS_FILE, first, some, width);
			check_as(PEERDMA_VIEW_AS_I64, first, some, 8);
			if (bits <= 32)
				check_as(PEERDMA_VIEW_AS_U32, first, some, 4);
			if (bits <= 31)
				check_as(PEERDMA_VIEW_AS_I32, first, some, 4);
			else
				EXPECT_EQ(read(first, count, PEERDMA_VIEW_AS_I32, 0), -EINVAL);
			check_packed(first / 8 * 8, part_of(values, first / 8 * 8, first % 8 + count), bits);
			if (first * bits % 8) {
				EXPECT_EQ(read(first, count, PEERDMA_VIEW_AS_PACKED, 0), -EINVAL);
			}
		}
		EXPECT_EQ(read(0, n, PEERDMA_VIEW_AS_F32, 0), -EINVAL);
	}

private:
	void check_as(uint32_t as, uint64_t first, const Values &some, size_t width)
	{
		ASSERT_EQ(read(first, some.size(), as, some.size() * width), static_cast<int64_t>(some.size()));
		EXPECT_EQ(got, bytes_of(some, width)) << "as " << as << " from " << first;
		EXPECT_EQ(result.done, some.size());
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
		EXPECT_EQ(result.host, result.read);
	}
	void check_packed(uint64_t first, const Values &some, unsigned bits)
	{
		std::string expected = packed(some, bits);
		ASSERT_EQ(read(first, some.size(), PEERDMA_VIEW_AS_PACKED, expected.size()),
			  static_cast<int64_t>(some.size()));
		EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_NONE));
		const unsigned used = some.size() * bits % 8;
		if (used) { // the rest of the last byte is not specified
			const auto mask = static_cast<char>((1 << used) - 1);
			got.back() &= mask;
			expected.back() &= mask;
		}
		EXPECT_EQ(got, expected) << "from " << first;
	}
};

std::string codec_of(const std::string &element, unsigned bits) { return element + ":" + std::to_string(bits); }

} // namespace

TEST_F(EachForm, OfAViewOfU32)
{
	for (unsigned bits = 1; bits <= 31; bits++) {
		const Values values = random_values(1237, bits);
		ASSERT_EQ(open(image(codec_of("u32", bits), values.size(), packed(values, bits))), 0) << args.out_why;
		ASSERT_EQ(info().where, static_cast<uint32_t>(PEERDMA_VIEW_WHERE_STORAGE));
		ASSERT_EQ(info().bits, bits);
		check(values, bits, 4);
	}
}

TEST_F(EachForm, OfAViewOfI64)
{
	for (unsigned bits = 1; bits <= 32; bits++) {
		const Values values = random_values(1237, bits, 2);
		ASSERT_EQ(open(image(codec_of("i64", bits), values.size(), packed(values, bits))), 0) << args.out_why;
		check(values, bits, 8);
	}
}

TEST_F(EachForm, OfAPlainFileThatTheHostReduces)
{
	for (unsigned bits = 1; bits <= 32; bits++) {
		const Values values = random_values(1237, bits, 3);
		for (const uint32_t flags : {0U, PEERDMA_VIEW_OPEN_MAP}) {
			if (bits < 32) {
				ASSERT_EQ(open(bytes_of(values, 4), codec_of("u32", bits).c_str(), flags), 0);
				ASSERT_EQ(info().where, static_cast<uint32_t>(PEERDMA_VIEW_WHERE_HOST));
				check(values, bits, 4);
			}
			ASSERT_EQ(open(bytes_of(values, 8), codec_of("i64", bits).c_str(), flags), 0);
			check(values, bits, 8);
		}
	}
}

TEST_F(EachForm, OfAPlainFileThatNothingReduces)
{
	const Values narrow = random_values(1237, 32, 4), wide = random_values(1237, 64, 4);
	ASSERT_EQ(open(bytes_of(narrow, 4), "u32:none"), 0);
	ASSERT_EQ(info().where, static_cast<uint32_t>(PEERDMA_VIEW_WHERE_NONE));
	check(narrow, 32, 4);
	ASSERT_EQ(open(bytes_of(wide, 8), "i64:none"), 0);
	check(wide, 64, 8);
	EXPECT_EQ(read(0, 1, PEERDMA_VIEW_AS_U32, 0), -EINVAL);
	// Without a codec: bytes.
	ASSERT_EQ(open("some text"), 0);
	EXPECT_EQ(info().element, static_cast<uint32_t>(PEERDMA_VIEW_ELEMENT_BYTE));
	EXPECT_EQ(read(5, 100, PEERDMA_VIEW_AS_FILE, 4), 4);
	EXPECT_EQ(got, "text");
	EXPECT_EQ(read(0, 1, PEERDMA_VIEW_AS_U32, 0), -EINVAL);
}

TEST_F(EachForm, OfManyElements)
{
	// More than are widened at once, and than are read at once for the host to reduce.
	const Values values = random_values(150001, 17, 5);
	ASSERT_EQ(open(image("u32:17", values.size(), packed(values, 17))), 0);
	check(values, 17, 4);
	ASSERT_EQ(open(bytes_of(values, 4), "u32:17"), 0);
	check(values, 17, 4);
	EXPECT_EQ(read_u32(0, values.size()), 150001);
	EXPECT_EQ(result.read, 150001u * 4);
	EXPECT_EQ(result.moved, (150001u * 17 + 7) / 8);
	EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_CPU));
}

TEST_F(Views, Floats)
{
	// Ties go to the even one; a NaN stays one.
	const std::vector<uint32_t> exact = {0x3f800000, 0x3f808000, 0x3f818000, 0x7f7fffff, 0xff800000, 0x7f800001};
	const std::vector<uint32_t> rounded = {0x3f800000, 0x3f800000, 0x3f820000, 0x7f800000, 0xff800000, 0x7fc00000};
	const std::string floats(reinterpret_cast<const char *>(exact.data()), exact.size() * 4);
	const std::string expected(reinterpret_cast<const char *>(rounded.data()), rounded.size() * 4);
	std::string halves;
	for (const uint32_t value : rounded)
		halves.append(reinterpret_cast<const char *>(&value) + 2, 2);
	ASSERT_EQ(open(floats, "f32:bf16"), 0);
	for (const uint32_t as : {PEERDMA_VIEW_AS_FILE, PEERDMA_VIEW_AS_F32}) {
		ASSERT_EQ(read(0, 6, as, 24), 6);
		EXPECT_EQ(got, expected);
	}
	ASSERT_EQ(read(0, 6, PEERDMA_VIEW_AS_PACKED, 12), 6);
	EXPECT_EQ(got, halves);
	EXPECT_EQ(read(0, 6, PEERDMA_VIEW_AS_U32, 0), -EINVAL);
	ASSERT_EQ(open(image("f32:bf16", 6, halves)), 0);
	ASSERT_EQ(read(1, 9, PEERDMA_VIEW_AS_F32, 20), 5);
	EXPECT_EQ(got, expected.substr(4));
	ASSERT_EQ(open(floats, "f32:none"), 0);
	ASSERT_EQ(read(0, 6, PEERDMA_VIEW_AS_F32, 24), 6);
	EXPECT_EQ(got, floats);
}

TEST_F(Views, InfoSaysWhatReducesItAndWhy)
{
	sys.contents["/v"].mode = S_IFBLK | 0600;
	ASSERT_EQ(open(image("u32:17", 3, packed({1, 2, 3}, 17)) + std::string(505, '\0')), 0);
	EXPECT_STREQ(info().text,
		     "a view: u32 in 17 bits, 3 elements, reduced by the storage, because it has a view's header");
	EXPECT_STREQ(info().codec, "u32:17");
	EXPECT_EQ(info().data_offset, 4096u);
	EXPECT_EQ(info().data_bytes, 7u);
	EXPECT_EQ(info().files, 1u);
	EXPECT_EQ(info().element_bytes, 4u);
	sys.contents["/v"].mode = S_IFREG | 0600;
	ASSERT_EQ(open(std::string(8, '\0'), "i64:u24"), 0);
	EXPECT_STREQ(info().text,
		     "a plain file: i64 in 24 bits, 1 element, reduced by this host's CPU, because a codec was given");
	EXPECT_EQ(info().data_bytes, 8u);
	ASSERT_EQ(open("x"), 0);
	EXPECT_STREQ(info().text, "a plain file: byte, 1 element, not reduced, because no codec was given");
	for (const auto &[codec, element] : {std::pair("u32:none", "u32"), std::pair("byte:none", "byte")}) {
		ASSERT_EQ(open(std::string(element[0] == 'u' ? 4 : 1, 'x'), codec), 0);
		EXPECT_EQ(info().text, std::string("a plain file: ") + element +
					       ", 1 element, not reduced, because the codec does not reduce");
		EXPECT_EQ(info().where, static_cast<uint32_t>(PEERDMA_VIEW_WHERE_NONE));
	}
	ASSERT_EQ(open(image("u32:none", 1, "abcd")), 0);
	EXPECT_STREQ(
		info().text,
		"a view: u32 in 32 bits, 1 element, served by the storage as they are, because it has a view's header");
}

TEST_F(Views, Empty)
{
	ASSERT_EQ(open(""), 0);
	EXPECT_EQ(read(0, 1, PEERDMA_VIEW_AS_FILE, 0), 0);
	ASSERT_EQ(open("", "u32:17", PEERDMA_VIEW_OPEN_MAP), 0);
	EXPECT_EQ(read_u32(0, 0), -EINVAL);
	EXPECT_EQ(read(0, 1, PEERDMA_VIEW_AS_U32, 0), 0);
	ASSERT_EQ(open(image("u32:17", 0, "")), 0);
	EXPECT_EQ(read(0, 1, PEERDMA_VIEW_AS_U32, 0), 0);
}

TEST_F(Views, WhatCannotBeOpened)
{
	EXPECT_EQ(open("abc", "u32:33"), -EINVAL);
	EXPECT_STREQ(args.out_why, "there is no such codec");
	EXPECT_EQ(open("abc", "u32:17"), -EINVAL);
	EXPECT_STREQ(args.out_why, "the file does not consist of whole elements of 4 bytes");
	EXPECT_EQ(open(image("i64:17", 1, "abc"), "u32:17"), -EMEDIUMTYPE);
	EXPECT_STREQ(args.out_why, "the view has elements of type i64, not u32");
	EXPECT_EQ(open("abc", nullptr, 4), -EOPNOTSUPP);
	EXPECT_STREQ(args.out_why, "");
	for (const char *path : {static_cast<const char *>(nullptr), "/v"}) {
		std::strcpy(args.out_why, "of the call before");
		EXPECT_EQ(peerdma_view_open(nullptr, path, &args, path ? nullptr : &view), -EINVAL);
		EXPECT_STREQ(args.out_why, "");
	}
	EXPECT_EQ(peerdma_view_open(nullptr, "/none", nullptr, &view), -ENOENT);
	EXPECT_EQ(peerdma_view_open(nullptr, nullptr, nullptr, &view), -EINVAL);
	EXPECT_EQ(peerdma_view_open(nullptr, "/v", nullptr, nullptr), -EINVAL);
	args.size = 4;
	EXPECT_EQ(peerdma_view_open(nullptr, "/v", &args, &view), -EINVAL);
	struct {
		peerdma_view_args known;
		uint64_t unknown;
	} longer = {};
	longer.known.size = sizeof(longer);
	EXPECT_EQ(peerdma_view_open(nullptr, "/v", &longer.known, &view), 0);
	peerdma_view_close(std::exchange(view, nullptr));
	longer.unknown = 1;
	EXPECT_EQ(peerdma_view_open(nullptr, "/v", &longer.known, &view), -E2BIG);
	for (const auto &[mode, rc] : {std::pair{S_IFDIR, -EISDIR}, std::pair{S_IFIFO, -ESPIPE}}) {
		sys.contents["/v"].mode = static_cast<uint32_t>(mode);
		EXPECT_EQ(open("abc"), rc);
	}
	EXPECT_EQ(view, nullptr);
}

TEST_F(Views, HeadersThatLie)
{
	const std::string good = image("u32:17", 1000, packed(random_values(1000, 17), 17));
	const auto refused = [&](std::string bytes, const std::string &why, bool with_crc = true) {
		if (with_crc) {
			bytes.replace(12, 4, 4, '\0');
			const auto *const start = reinterpret_cast<const std::byte *>(bytes.data());
			const uint32_t crc = view::crc32c({start, std::min<size_t>(bytes.size(), 4096)});
			std::memcpy(&bytes[12], &crc, 4);
		}
		EXPECT_EQ(open(bytes), -EBADMSG);
		EXPECT_NE(std::string(args.out_why).find(why), std::string::npos) << args.out_why;
		EXPECT_EQ(view, nullptr);
	};
	const auto changed = [&](size_t at, uint64_t value, size_t size = 8) {
		std::string bytes = good;
		std::memcpy(&bytes[at], &value, size);
		return bytes;
	};
	ASSERT_EQ(open(good), 0);
	refused(good.substr(0, 100), "too short", false);
	refused(good.substr(0, 4095), "too short", false);
	refused(good.substr(0, good.size() - 1), "smaller than header and data");
	refused(changed(8, 2, 4), "version 2");
	refused(changed(16, 8192), "smaller than header and data"); // the data would begin later
	refused(changed(16, uint64_t{1} << 40), "size is invalid");
	refused(changed(16, 4097), "size is invalid");
	refused(changed(16, 0), "size is invalid");
	refused(changed(24, 9, 1), "codec");
	refused(changed(26, 32, 1), "codec");
	refused(changed(27, 1, 1), "reserved");
	refused(changed(32, 999), "do not take");
	refused(changed(32, ~uint64_t{0}), "too many");
	refused(changed(40, ~uint64_t{0}), "smaller than header and data");
	refused(changed(48, ~uint64_t{0}), "too many files");
	refused(changed(64, 64), "not where they belong");
	refused(changed(128, 1001), "more elements");
	// Whatever bit has turned over.
	for (size_t bit = 64; bit < 256 * 8; bit++) {
		std::string bytes = good;
		bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
		EXPECT_EQ(open(bytes), -EBADMSG) << bit;
	}
	// Too much to read for what it is.
	std::string large = changed(16, 512 << 20);
	sys.contents["/v"].size = uint64_t{1} << 40;
	EXPECT_EQ(open(large), -EFBIG);
	sys.contents["/v"].size.reset();
	// Without the magic it is a plain file.
	std::string plain = good;
	plain[0] = 'p';
	ASSERT_EQ(open(plain), 0);
	EXPECT_EQ(info().where, static_cast<uint32_t>(PEERDMA_VIEW_WHERE_NONE));
}

TEST_F(Views, WrongArguments)
{
	ASSERT_EQ(open(image("u32:17", 10, packed(random_values(10, 17), 17))), 0);
	uint32_t memory[10] = {};
	auto what = range(memory, 0, 10);
	EXPECT_EQ(read(what), 10);
	EXPECT_EQ(peerdma_view_read(view, &what, nullptr), 10);
	EXPECT_EQ(peerdma_view_read(nullptr, &what, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_view_read(view, nullptr, nullptr), -EINVAL);
	const auto refused = [&](int error, auto &&change) {
		auto wrong = what;
		change(wrong);
		std::memset(memory, guard, sizeof(memory));
		EXPECT_EQ(read(wrong), -error);
		EXPECT_EQ(result.error, static_cast<uint32_t>(error));
		EXPECT_EQ(std::string(reinterpret_cast<char *>(memory), sizeof(memory)), std::string(40, guard));
	};
	refused(EINVAL, [](auto &wrong) { wrong.count = 0; });
	refused(EINVAL, [](auto &wrong) { wrong.first = 11; });
	refused(EINVAL, [](auto &wrong) { wrong.first = ~uint64_t{0}; });
	refused(EINVAL, [](auto &wrong) { wrong.as = 6; });
	refused(EINVAL, [](auto &wrong) { wrong.reserved = 1; });
	refused(EINVAL, [](auto &wrong) { wrong.to = nullptr; });
	refused(EINVAL, [](auto &wrong) { wrong.buf_off = 4; });
	refused(EINVAL, [](auto &wrong) { wrong.to = static_cast<char *>(wrong.to) + 2; });
	// The end of the address space is behind 16 bytes. Packed the 10 elements have 22.
	for (const uint32_t as : {PEERDMA_VIEW_AS_FILE, PEERDMA_VIEW_AS_PACKED})
		refused(EINVAL, [&](auto &wrong) {
			wrong.as = as;
			wrong.to = reinterpret_cast<void *>(UINTPTR_MAX - 15);
		});
	refused(EOPNOTSUPP, [](auto &wrong) { wrong.flags = PEERDMA_VIEW_READ_IN_PLACE; });
	refused(EOPNOTSUPP, [](auto &wrong) { wrong.stream = &wrong; });
	refused(EOPNOTSUPP, [](auto &wrong) { wrong.flags = 2; });
	struct {
		peerdma_view_read_args known;
		uint64_t unknown = 1;
	} longer = {what};
	longer.known.size = sizeof(longer);
	EXPECT_EQ(read(longer.known), -E2BIG);
	EXPECT_EQ(result.error, static_cast<uint32_t>(E2BIG));
	what.size = 8;
	EXPECT_EQ(read(what), -EINVAL);
	what.size = sizeof(what);
	result.size = 8;
	EXPECT_EQ(peerdma_view_read(view, &what, &result), -EINVAL);
	// At the end.
	EXPECT_EQ(read(10, 1, PEERDMA_VIEW_AS_FILE, 0), 0);
	EXPECT_EQ(read(8, ~uint64_t{0}, PEERDMA_VIEW_AS_FILE, 8), 2);
	peerdma_view_description small = {};
	small.size = 8;
	EXPECT_EQ(peerdma_view_info(view, &small), -EINVAL);
	EXPECT_EQ(peerdma_view_info(nullptr, &small), -EINVAL);
	peerdma_view_close(nullptr);
}

TEST_F(Views, AnElementThatDoesNotFit)
{
	Values values = random_values(100000, 17, 6);
	values[70001] = 1 << 17;
	for (const uint32_t flags : {0U, PEERDMA_VIEW_OPEN_MAP}) {
		ASSERT_EQ(open(bytes_of(values, 4), "u32:17", flags), 0);
		EXPECT_EQ(read_u32(0, 70001), 70001);
		EXPECT_EQ(got, bytes_of(part_of(values, 0, 70001), 4));
		EXPECT_EQ(read_u32(3, 99990), -ERANGE);
		EXPECT_EQ(result.misfit, 70001u);
		EXPECT_EQ(result.error, static_cast<uint32_t>(ERANGE));
		// What counts as delivered is right.
		ASSERT_LE(result.done, 70001u - 3);
		EXPECT_EQ(got.substr(0, result.done * 4), bytes_of(part_of(values, 3, result.done), 4));
		EXPECT_EQ(read_u32(70002, 99999), 100000 - 70002);
	}
	values[70001] = uint64_t{1} << 63;
	ASSERT_EQ(open(bytes_of(values, 8), "i64:u32"), 0);
	EXPECT_EQ(read_u32(70001, 1), -ERANGE);
	EXPECT_EQ(result.misfit, 70001u);
}

TEST_F(Views, WithoutMemoryTheResultSaysSo)
{
	const Values values = random_values(40000, 17);
	ASSERT_EQ(open(image("u32:17", values.size(), packed(values, 17))), 0);
	std::string memory(values.size() * 4, guard);
	auto what = range(memory.data(), 0, values.size());
	int failed = 0;
	for (int enough = 0; !enough; failed++) {
		ASSERT_LT(failed, 100);
		allocations_left = failed;
		const int64_t n = read(what);
		allocations_left = -1;
		enough = n == static_cast<int64_t>(values.size());
		if (!enough) {
			EXPECT_EQ(n, -ENOMEM);
			EXPECT_EQ(result.error, static_cast<uint32_t>(ENOMEM));
		}
	}
	EXPECT_GT(failed, 1);
	EXPECT_EQ(memory, bytes_of(values, 4));
}

TEST_F(Views, AFileThatChanges)
{
	const Values values = random_values(30000, 16, 7);
	for (const char *const codec : {"u32:16", "u32:none"}) {
		ASSERT_EQ(open(bytes_of(values, 4), codec), 0);
		sys.contents["/v"].bytes.resize(100000);
		EXPECT_EQ(read_u32(0, 25000), 25000);
		EXPECT_EQ(read_u32(0, 25001), -ENODATA);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_END_OF_FILE));
		sys.posix_error = -EIO;
		EXPECT_EQ(read_u32(0, 10), -EIO);
		sys.posix_error = -EINTR;
		EXPECT_EQ(read_u32(0, 10), 10);
		// Elements that came later are not seen.
		sys.contents["/v"].bytes.resize(200000);
		EXPECT_EQ(read_u32(29999, 10), 1);
	}
	ASSERT_EQ(open(bytes_of(values, 4), "u32:16", PEERDMA_VIEW_OPEN_MAP), 0);
	// The kernel's answer for a page behind the end and for one that cannot be read.
	sys.populate_error = -EFAULT;
	const std::string whole = sys.contents["/v"].bytes;
	sys.contents["/v"].bytes.resize(39);
	EXPECT_EQ(read_u32(0, 10), -ENODATA);
	sys.contents["/v"].bytes = whole;
	sys.posix_error = -EIO;
	EXPECT_EQ(read_u32(0, 10), -EIO);
	sys.posix_error = 0;
	sys.populate_error = 0;
	EXPECT_EQ(read_u32(0, 10), 10);
	// A part of the mapping is read once.
	sys.populate_error = -EIO;
	EXPECT_EQ(read_u32(29000, 1000), 1000);
	sys.mmap_error = -ENODEV;
	EXPECT_EQ(open(bytes_of(values, 4), "u32:16", PEERDMA_VIEW_OPEN_MAP), -ENODEV);
}

TEST_F(Views, ADeviceThatFailsInTheMiddle)
{
	const Values values = random_values(60000, 17, 11);
	const std::string view_image = image("u32:17", values.size(), packed(values, 17));
	const auto delivered = [&](uint32_t as, const std::string &all) {
		const uint64_t len = as == PEERDMA_VIEW_AS_PACKED ? result.done / 8 * 17 : result.done * 4;
		EXPECT_EQ(got.substr(0, len), all.substr(0, len)) << "what counts as delivered";
	};
	for (const bool plain : {false, true})
		for (const uint32_t as : {PEERDMA_VIEW_AS_U32, PEERDMA_VIEW_AS_PACKED}) {
			const std::string all = as == PEERDMA_VIEW_AS_PACKED ? packed(values, 17) : bytes_of(values, 4);
			ASSERT_EQ(open(plain ? bytes_of(values, 4) : view_image, "u32:17"), 0);
			sys.contents["/v"].mode = S_IFBLK | 0600;
			for (unsigned good = 0; good < 13; good++) {
				sys.posix_good = good;
				sys.posix_error = -EIO;
				EXPECT_EQ(read(0, values.size(), as, all.size()), -EIO) << good;
				delivered(as, all);
				sys.posix_good = 0;
				sys.posix_error = 0;
				ASSERT_EQ(read(0, values.size(), as, all.size()), 60000);
				delivered(as, all);
			}
			// Its elements are gone, down to the header.
			for (const size_t left : {100000, 4096, 10, 0}) {
				sys.contents["/v"].bytes.resize(left);
				EXPECT_EQ(read(0, values.size(), as, all.size()), -ENODATA) << left;
				delivered(as, all);
			}
		}
}

TEST_F(Views, ADescriptorThatTheProgramCloses)
{
	ASSERT_EQ(open(bytes_of(random_values(10, 16), 4), "u32:16"), 0);
	const int fd = sys.fds.begin()->first;
	sys.contents["/other"].bytes = std::string(4000, 'x');
	sys.reuse(fd, "/other");
	EXPECT_EQ(read_u32(0, 1), -EBADF);
	sys.fds.erase(fd);
	EXPECT_EQ(read_u32(0, 1), -EBADF);
}

TEST_F(Views, IntoABufferPackedElementsGoDirectly)
{
	with_buffer();
	const Values values = random_values(20000, 16, 8);
	ASSERT_EQ(open(image("u32:16", values.size(), packed(values, 16))), 0);
	auto what = range(nullptr, 0, 20000, PEERDMA_VIEW_AS_PACKED);
	what.buf = buf;
	what.buf_off = 512;
	EXPECT_EQ(read(what), 20000);
	EXPECT_EQ(sys.buffers.begin()->second.bytes.substr(512, 40000), packed(values, 16));
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT_EDGES));
	EXPECT_EQ(result.read, 40000u);
	EXPECT_EQ(result.direct, 40000u) << "the edges too, through other memory of the provider";
	EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_NONE));
	// So do elements that need not be widened.
	ASSERT_EQ(open(bytes_of(values, 4), "u32:none"), 0);
	what = range(nullptr, 128, 1280, PEERDMA_VIEW_AS_U32);
	what.buf = buf;
	EXPECT_EQ(read(what), 1280);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
	sys.io_error = -EIO;
	EXPECT_EQ(read(what), -EIO);
	EXPECT_EQ(result.done, 0u);
}

TEST_F(Views, IntoABufferTheCpuWidensOthers)
{
	with_buffer();
	const Values values = random_values(10000, 17, 9);
	for (const bool plain : {false, true}) {
		ASSERT_EQ(open(plain ? bytes_of(values, 4) : image("u32:17", values.size(), packed(values, 17)),
			       "u32:17"),
			  0);
		auto what = range(nullptr, 3, 9000);
		what.buf = buf;
		what.buf_off = 8;
		sys.buffers.begin()->second.bytes.assign(1 << 16, guard);
		EXPECT_EQ(read(what), 9000);
		const std::string &bytes = sys.buffers.begin()->second.bytes;
		EXPECT_EQ(bytes.substr(8, 36000), bytes_of(part_of(values, 3, 9000), 4));
		EXPECT_EQ(bytes.substr(0, 8), std::string(8, guard));
		EXPECT_EQ(bytes.substr(36008), std::string(bytes.size() - 36008, guard));
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
		EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_CPU));
		EXPECT_EQ(result.read, plain ? 36000u : (9003u * 17 + 7) / 8);
		what.buf_off = (1 << 16) - 35996;
		EXPECT_EQ(read(what), -EINVAL);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_BUF_RANGE));
		what.buf_off = 2;
		EXPECT_EQ(read(what), -EINVAL);
		what.buf_off = 0;
		sys.store_error = -EFAULT;
		EXPECT_EQ(read(what), -ENODEV);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_REVOKED));
		sys.store_error = 0;
		what.to = &what;
		EXPECT_EQ(read(what), -EINVAL);
		what.to = nullptr;
		what.stream = &what;
		EXPECT_EQ(read(what), -EOPNOTSUPP);
	}
}

TEST_F(Views, ABufferOfAnotherHandle)
{
	ASSERT_EQ(open(std::string(4096, 'x')), 0);
	with_buffer();
	auto what = range(nullptr, 0, 100);
	what.buf = buf;
	EXPECT_EQ(read(what), -ENOENT) << "the view has none";
	struct peerdma_device *other = nullptr;
	ASSERT_EQ(peerdma_open(&other, 0), 0);
	std::swap(device, other);
	ASSERT_EQ(open(std::string(4096, 'x')), 0);
	EXPECT_EQ(read(what), -ENOENT);
	std::swap(device, other);
	peerdma_close(other);
}

TEST_F(Views, AHandleThatOnlyMovesBytesDirectly)
{
	with_buffer(PEERDMA_OPEN_REQUIRE_DIRECT);
	const Values values = random_values(1000, 17, 9);
	ASSERT_EQ(open(image("u32:17", values.size(), packed(values, 17))), 0);
	auto what = range(nullptr, 0, 1000, PEERDMA_VIEW_AS_PACKED);
	what.buf = buf;
	EXPECT_EQ(read(what), 1000);
	what.as = PEERDMA_VIEW_AS_U32;
	EXPECT_EQ(read(what), -EXDEV);
}

TEST_F(Views, InAChildTheParentsViewIsRefused)
{
	with_buffer();
	ASSERT_EQ(open(std::string(4096, 'x')), 0);
	const pid_t child = fork();
	if (!child) {
		uint64_t memory = 0;
		auto what = range(&memory, 0, 8);
		auto full = peerdma::detail::sized<peerdma_view_description>();
		const bool right = read(what) == -ECHILD && peerdma_view_info(view, &full) == -ECHILD && !memory;
		peerdma_view_close(view);
		_exit(right ? 0 : 1);
	}
	int status = 0;
	ASSERT_EQ(waitpid(child, &status, 0), child);
	EXPECT_EQ(status, 0);
	EXPECT_EQ(read(0, 8, PEERDMA_VIEW_AS_FILE, 8), 8);
}

// Three chunks, the last of which is shorter, of two files.
class VerifiedViews : public Views
{
protected:
	static constexpr uint64_t elements = 1200000, of_first_file = 500000;
	static constexpr size_t mib = 1 << 20, data_at = 4096;

	// Made once: at -O0 it takes a while.
	static const Values &all_values()
	{
		static const Values made = random_values(elements, 17, 12);
		return made;
	}
	static const std::string &all_packed()
	{
		static const std::string made = packed(all_values(), 17);
		return made;
	}

	const Values &values = all_values();
	const std::string &data = all_packed();
	const std::string bytes =
		image("u32:17", elements, data, {{"a\nb", of_first_file}, {"c", elements - of_first_file}});

	// first: of a group.
	int64_t check(uint64_t first, uint64_t count, uint32_t as)
	{
		const bool is_packed = as == PEERDMA_VIEW_AS_PACKED;
		const std::string all = is_packed ? data.substr(first / 8 * 17, (count * 17 + 7) / 8) :
						    bytes_of(part_of(values, first, count), 4);
		const int64_t n = read(first, count, as, all.size());
		const uint64_t right = is_packed ? result.done * 17 / 8 : result.done * 4;
		EXPECT_EQ(got.substr(0, right), all.substr(0, right)) << first << ", " << count;
		return n;
	}
};

TEST_F(VerifiedViews, EachByteIsReadOnceInOrder)
{
	ASSERT_EQ(open(bytes, nullptr, PEERDMA_VIEW_OPEN_VERIFY), 0);
	for (const uint32_t as : {PEERDMA_VIEW_AS_U32, PEERDMA_VIEW_AS_PACKED}) {
		EXPECT_EQ(check(0, elements, as), static_cast<int64_t>(elements));
		EXPECT_EQ(result.read, data.size());
		EXPECT_EQ(result.host, data.size());
		EXPECT_EQ(result.moved, data.size());
		// Of a chunk a part: all of it is read.
		EXPECT_EQ(check(800, 1, as), 1);
		EXPECT_EQ(result.read, mib);
		EXPECT_EQ(check(elements - 8, 8, as), 8);
		EXPECT_EQ(result.read, data.size() % mib);
		EXPECT_EQ(check(8, elements - 16, as), static_cast<int64_t>(elements - 16));
		EXPECT_EQ(result.read, data.size());
		EXPECT_EQ(check(493440, 16, as), 16) << "of two chunks";
		EXPECT_EQ(result.read, 2 * mib);
		EXPECT_STREQ(result.out_why, "");
	}
	sys.contents["/v"].bytes.resize(data_at + mib + 1);
	EXPECT_EQ(check(0, 400000, PEERDMA_VIEW_AS_U32), 400000);
	EXPECT_EQ(check(600000, 8, PEERDMA_VIEW_AS_U32), -ENODATA) << "the rest of its chunk is gone";
}

TEST_F(VerifiedViews, AWrongByteIsNamedAndNeverDelivered)
{
	std::string wrong = bytes;
	wrong[data_at + mib + 5] ^= 1;
	ASSERT_EQ(open(wrong), 0);
	EXPECT_EQ(read_u32(0, elements), static_cast<int64_t>(elements))
		<< "nothing is compared unless it is asked for";
	ASSERT_EQ(open(wrong, nullptr, PEERDMA_VIEW_OPEN_VERIFY), 0);
	const auto refused = [&](uint64_t first, uint64_t count, uint32_t as) {
		EXPECT_EQ(check(first, count, as), -EBADMSG) << first;
		EXPECT_EQ(result.error, static_cast<uint32_t>(EBADMSG));
		EXPECT_EQ(result.misfit, 493447u);
		EXPECT_STREQ(result.out_why,
			     "chunk 1 does not have its checksum: elements 493447 to 986895, file 'a?b' "
			     "from its element 493447");
	};
	for (const uint32_t as : {PEERDMA_VIEW_AS_U32, PEERDMA_VIEW_AS_PACKED}) {
		refused(0, elements, as);
		refused(493440, 8, as);
		refused(900000, 1, as);
		EXPECT_EQ(check(0, 493440, as), 493440) << "the chunk before";
		EXPECT_EQ(check(986896, 1000, as), 1000) << "the chunk behind";
	}
	wrong = bytes;
	wrong.back() ^= 1;
	ASSERT_EQ(open(wrong, nullptr, PEERDMA_VIEW_OPEN_VERIFY), 0);
	EXPECT_EQ(check(1100000, 1, PEERDMA_VIEW_AS_U32), -EBADMSG);
	EXPECT_STREQ(result.out_why,
		     "chunk 2 does not have its checksum: elements 986895 to 1199999, file 'c' from its "
		     "element 486895");
	// Who knows of no text gets none.
	struct {
		char known[offsetof(peerdma_view_result, out_why)];
		char behind[8];
	} small = {{}, "behind"};
	auto *const as_result = reinterpret_cast<peerdma_view_result *>(&small);
	as_result->size = sizeof(small.known);
	auto what = range(nullptr, 1100000, 1);
	what.to = &what.first;
	EXPECT_EQ(peerdma_view_read(view, &what, as_result), -EBADMSG);
	EXPECT_EQ(as_result->error, static_cast<uint32_t>(EBADMSG));
	EXPECT_STREQ(small.behind, "behind");
}

TEST_F(VerifiedViews, NothingMovesDirectly)
{
	for (const uint32_t flags : {0U, PEERDMA_OPEN_REQUIRE_DIRECT}) {
		with_buffer(flags);
		ASSERT_EQ(open(bytes, nullptr, PEERDMA_VIEW_OPEN_VERIFY), 0);
		auto what = range(nullptr, 8, 24000, PEERDMA_VIEW_AS_PACKED);
		what.buf = buf;
		what.buf_off = 512;
		if (flags) {
			EXPECT_EQ(read(what), -EXDEV);
			break;
		}
		EXPECT_EQ(read(what), 24000);
		EXPECT_EQ(sys.buffers.begin()->second.bytes.substr(512, 51000), data.substr(17, 51000));
		EXPECT_EQ(result.direct, 0u);
		EXPECT_EQ(result.read, mib);
		EXPECT_EQ(result.host, mib);
		EXPECT_EQ(result.moved, 51000u);
		peerdma_view_close(std::exchange(view, nullptr));
		peerdma_buf_destroy(std::exchange(buf, nullptr));
		peerdma_close(std::exchange(device, nullptr));
	}
}

TEST_F(VerifiedViews, APlainFileHasNoChecksums)
{
	for (const char *const codec : {"u32:17", "u32:none", static_cast<const char *>(nullptr)}) {
		EXPECT_EQ(open(bytes_of(values, 4), codec, PEERDMA_VIEW_OPEN_VERIFY), -EOPNOTSUPP);
		EXPECT_STREQ(args.out_why, "a plain file has no checksums to verify");
	}
}

TEST_F(Views, ByTheCppClasses)
{
	const Values values = random_values(100, 17, 10);
	sys.contents["/v"].bytes = image("u32:17", values.size(), packed(values, 17));
	auto opened = peerdma::View::open(nullptr, "/v", "u32:17");
	ASSERT_TRUE(opened);
	EXPECT_EQ(opened->info().elements, 100u);
	std::vector<uint32_t> memory(100);
	peerdma::ViewRange what = {};
	what.count = 100;
	what.to = memory.data();
	EXPECT_EQ(opened->read(what, result).value(), 100u);
	EXPECT_TRUE(std::equal(memory.begin(), memory.end(), values.begin()));
	what.count = 0;
	EXPECT_EQ(opened->read(what, result).error().code(), EINVAL);
	std::string why;
	EXPECT_EQ(peerdma::View::open(nullptr, "/v", "f32:none", 0, &why).error().code(), EMEDIUMTYPE);
	EXPECT_EQ(why, "the view has elements of type u32, not f32");
}
