// SPDX-License-Identifier: MIT
//
// peerdma selftest on a machine in memory: without a fault, and with a single fault.

#include <cerrno>
#include <cstring>

#include <gtest/gtest.h>

#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/selftest/selftest.hpp"

namespace
{

class Selftest : public ::testing::Test
{
protected:
	Selftest()
	{
		sys.add_provider(0, 0x0100, 2, 0, 64 << 20);
		sys.contents["/my/secret"] = {};
	}
	~Selftest() override
	{
		EXPECT_TRUE(sys.fds.empty());
		EXPECT_TRUE(sys.buffers.empty());
		EXPECT_TRUE(sys.mappings.empty());
		EXPECT_EQ(sys.queues, 0u);
	}

	cli::Report run() { return cli::selftest({.dir = "/my/secret", .provider = ""}); }

	// The names of the failed steps.
	std::vector<std::string> wrong()
	{
		std::vector<std::string> names;
		report = run();
		for (const auto &step : report.json["steps"])
			if (step["state"] != "good")
				names.push_back(step["name"]);
		EXPECT_EQ(report.status, names.empty() ? 0 : 1) << report.text;
		EXPECT_EQ(report.json["works"], names.empty());
		return names;
	}

	// Changes the result of each READ or WRITE of the fake.
	void spoil(std::function<void(unsigned long, peerdma_io &)> how)
	{
		sys.on_ioctl = [this, how](unsigned long request, void *arg) {
			if (request != PEERDMA_READ && request != PEERDMA_WRITE)
				return 1;
			const int rc = sys.perform(request, arg);
			how(request, *static_cast<peerdma_io *>(arg));
			return rc;
		};
	}

	FakeSyscalls sys;
	cli::Report report;
};

} // namespace

TEST_F(Selftest, NoStepBeginsAfterAMinute)
{
	// Each step begins half a minute after the one before; the first call of the clock is before all of them.
	const auto start = std::chrono::steady_clock::now();
	int looks = 0;
	report = cli::selftest({.dir = "/my/secret", .provider = ""},
			       [&] { return start + std::chrono::seconds(30) * looks++; });
	const auto steps = report.json["steps"];
	ASSERT_GT(steps.size(), 10u);
	for (size_t i = 0; i < steps.size(); i++) {
		EXPECT_EQ(steps[i]["state"], i < 1 ? "good" : "bad") << i;
		EXPECT_EQ(steps[i]["found"], i < 1 ? "" : "not run: the time limit was reached") << i;
	}
	EXPECT_EQ(report.status, 1) << "what was not looked at does not work";
	EXPECT_FALSE(report.json["works"].get<bool>());
}

TEST_F(Selftest, AGoodMachine)
{
	EXPECT_EQ(wrong(), std::vector<std::string>{}) << report.text;
	EXPECT_EQ(report.json["steps"].size(), 15u);
	EXPECT_FALSE(has(report.text, "secret")) << "others read it";
	EXPECT_FALSE(has(report.json.dump(), "secret"));
	EXPECT_TRUE(has(report.text, "result   works: 15 of 15 steps are good\n")) << report.text;
}

TEST_F(Selftest, OtherBlocks)
{
	for (uint32_t block : {512u, 4096u})
		for (uint32_t mem : {1u, 512u}) {
			sys.block = block;
			sys.mem_align = mem;
			EXPECT_EQ(wrong(), std::vector<std::string>{}) << report.text;
		}
}

TEST_F(Selftest, OneWrongByteInTheBuffer)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_READ && io.len == 100003)
			sys.buffers.begin()->second.bytes[io.buf_off + 70000] ^= 1;
	});
	EXPECT_EQ(wrong(), std::vector<std::string>{"read, odd offset and length"});
	EXPECT_TRUE(has(report.text, "wrong in the buffer: 1 bytes differ, the first at 74219")) << report.text;
}

TEST_F(Selftest, AByteBesideTheRange)
{
	for (int64_t beside : {-1, 100}) {
		spoil([&](unsigned long request, peerdma_io &io) {
			if (request == PEERDMA_READ && io.len == 100)
				sys.buffers.begin()->second.bytes[static_cast<uint64_t>(
					static_cast<int64_t>(io.buf_off) + beside)] ^= 1;
		});
		EXPECT_EQ(wrong(), std::vector<std::string>{"read, inside a block"});
	}
}

TEST_F(Selftest, RightBytesOfAnotherPlace)
{
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request == PEERDMA_READ && static_cast<peerdma_io *>(arg)->len == 512 << 10)
			static_cast<peerdma_io *>(arg)->file_off += 512;
		return 1;
	};
	EXPECT_EQ(wrong(), std::vector<std::string>{"read, whole blocks"});
}

TEST_F(Selftest, AByteOfTheFileThatNobodyWrote)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_WRITE && io.len == 512)
			sys.contents["/my/secret"].bytes[io.file_off + 512] ^= 1;
	});
	// The fault stays for later steps.
	const auto names = wrong();
	ASSERT_FALSE(names.empty());
	EXPECT_EQ(names.front(), "write, one block");
	EXPECT_TRUE(has(report.text, "wrong in the file: 1 bytes differ")) << report.text;
}

TEST_F(Selftest, AFileThatGrew)
{
	spoil([&](unsigned long request, peerdma_io &io) {
		if (request == PEERDMA_WRITE && io.len == 100)
			sys.contents["/my/secret"].bytes += "x";
	});
	EXPECT_EQ(wrong().front(), "write, inside a block");
}

TEST_F(Selftest, BytesThatShouldHaveGoneDirect)
{
	spoil([](unsigned long, peerdma_io &io) {
		if (io.len == 512 << 10) {
			io.out_host = io.out_direct;
			io.out_direct = 0;
		}
	});
	EXPECT_EQ(wrong(), (std::vector<std::string>{"read, whole blocks", "write, whole blocks"}));
	EXPECT_TRUE(has(report.text, "524288 bytes moved, 0 of them direct; expected 524288 and 524288"))
		<< report.text;
}

TEST_F(Selftest, ADriveThatFails)
{
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_READ ? -EIO : 1; };
	const auto names = wrong();
	EXPECT_EQ(names.size(), 6u) << "each read by a call, and the others go on";
	EXPECT_TRUE(has(report.text, "EIO")) << report.text;
}

TEST_F(Selftest, ARingThatLosesOrder)
{
	sys.astray = 4096;
	const auto names = wrong();
	EXPECT_TRUE(std::find(names.begin(), names.end(), "read by ring, whole blocks") != names.end()) << report.text;
}

TEST_F(Selftest, WithoutRings)
{
	sys.queue_error = -EPERM;
	report = run();
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_TRUE(has(report.text, "rings are not available (EPERM)"));
}

TEST_F(Selftest, NoRouteIsAReason)
{
	sys.contents["/my/secret"].refused_errno = EXDEV;
	sys.contents["/my/secret"].refused_reason = PEERDMA_REASON_DISTANCE;
	report = run();
	EXPECT_EQ(report.status, 1);
	EXPECT_EQ(report.json["reason"], "DISTANCE");
	EXPECT_EQ(report.json["steps"].size(), 0u);
	EXPECT_TRUE(has(report.text, peerdma_reason_advice(PEERDMA_REASON_DISTANCE))) << report.text;
	EXPECT_TRUE(sys.ios.empty());
}

TEST_F(Selftest, WhatItCannotBeginWith)
{
	for (const int error : {-EACCES, -ENOSPC, -EROFS, -ENOENT}) {
		sys.contents["/my/secret"].open_error = error;
		EXPECT_THROW(run(), cli::Failure);
	}
	sys.contents["/my/secret"].open_error = 0;
	sys.posix_error = -ENOSPC;
	EXPECT_THROW(run(), cli::Failure);
	sys.providers.begin()->second.len = 4096;
	EXPECT_THROW(run(), cli::Failure) << "there is no room for the buffer";
}

// --- A vendor's memory: the calls to its library, and that the compared bytes are those of its memory.

namespace
{

constexpr uint64_t vendor_base = 0x7f0000000000, in_frame = 4096; // the allocation begins inside a frame
FakeSyscalls *machine;
int allocated, retained, vendor_error, waits, drive_asked;
bool spoiled, in_context;

std::string &vendor_bytes() { return machine->buffers.begin()->second.bytes; }

int cu_init(unsigned) { return 0; }
int cu_device(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}
int cu_retain(void **context, int)
{
	retained++;
	*context = &retained;
	return 0;
}
int cu_release(int) { return retained--, 0; }
int cu_current(void *context)
{
	in_context = context == &retained;
	return 0;
}
int cu_alloc(unsigned long long *at, size_t size)
{
	EXPECT_TRUE(in_context);
	EXPECT_EQ(size, cli::selftest_buffer);
	if (vendor_error)
		return vendor_error;
	allocated++;
	*at = vendor_base + in_frame;
	return 0;
}
int cu_free(unsigned long long at)
{
	EXPECT_EQ(at, vendor_base + in_frame);
	EXPECT_TRUE(machine->buffers.empty()) << "freed while it is a buffer";
	return allocated--, 0;
}
int cu_put(unsigned long long at, const void *from, size_t size)
{
	vendor_bytes().replace(at - vendor_base, size, static_cast<const char *>(from), size);
	return 0;
}
int cu_wait() { return waits++, 0; }
int cu_get(void *to, unsigned long long at, size_t size)
{
	std::memcpy(to, &vendor_bytes()[at - vendor_base], size);
	static_cast<char *>(to)[size - 1] ^= spoiled;
	return 0;
}
int cu_attributes(unsigned n, int *which, void **answers, unsigned long long)
{
	for (unsigned i = 0; i < n; i++)
		switch (which[i]) {
		case 2:
			*static_cast<unsigned *>(answers[i]) = 2;
			break;
		case 11:
			*static_cast<unsigned long long *>(answers[i]) = vendor_base + in_frame;
			break;
		case 12:
			*static_cast<size_t *>(answers[i]) = cli::selftest_buffer;
			break;
		default:
			return 1;
		}
	return 0;
}
int cu_handle(void *fd, unsigned long long at, size_t, int, unsigned long long)
{
	EXPECT_EQ(at, vendor_base);
	*static_cast<int *>(fd) = vendor_error ? -1 : 500;
	return vendor_error;
}

class SelftestOfVendor : public Selftest
{
protected:
	SelftestOfVendor()
	{
		machine = &sys;
		allocated = retained = vendor_error = waits = drive_asked = 0;
		spoiled = in_context = false;
		add("cuInit", cu_init);
		add("cuDeviceGet", cu_device);
		add("cuDevicePrimaryCtxRetain", cu_retain);
		add("cuDevicePrimaryCtxRelease_v2", cu_release);
		add("cuCtxSetCurrent", cu_current);
		add("cuCtxSynchronize", cu_wait);
		add("cuMemAlloc_v2", cu_alloc);
		add("cuMemFree_v2", cu_free);
		add("cuMemcpyHtoD_v2", cu_put);
		add("cuMemcpyDtoH_v2", cu_get);
		add("cuPointerGetAttributes", cu_attributes);
		add("cuMemGetHandleForAddressRange", cu_handle);
		sys.on_ioctl = [](unsigned long request, void *arg) {
			if (request == PEERDMA_BUF_IMPORT)
				drive_asked = static_cast<int>(static_cast<peerdma_buf_import *>(arg)->pci_bdf);
			return 1;
		};
	}
	~SelftestOfVendor() override
	{
		EXPECT_EQ(allocated, 0);
		EXPECT_EQ(retained, 0);
	}
	template <class Function> void add(const char *name, Function *function)
	{
		sys.functions[std::string("libcuda.so.1 ") + name] = reinterpret_cast<void *>(function);
	}
	static cli::Report by(const std::string &memory)
	{
		return cli::selftest({.dir = "/my/secret", .provider = "", .memory = memory});
	}
	static std::string refusal(const std::string &memory)
	{
		try {
			by(memory);
		} catch (const cli::Failure &failure) {
			return failure.line();
		}
		return "none";
	}
};

} // namespace

TEST_F(SelftestOfVendor, MovesAndComparesWhatTheVendorHas)
{
	report = by("cuda");
	EXPECT_EQ(report.status, 0) << report.text;
	EXPECT_EQ(report.json["memory"], "cuda");
	EXPECT_TRUE(has(report.text, "memory   cuda\n")) << report.text;
	EXPECT_TRUE(has(report.text, "result   works: 15 of 15 steps are good\n")) << report.text;
	EXPECT_EQ(drive_asked, 0x300) << "the drive that the file lies on";
	EXPECT_EQ(waits, 15) << "else the drive and the copy may overlap";
	ASSERT_FALSE(sys.ios.empty());
	EXPECT_EQ(sys.ios[0].buf_off, in_frame) << "the buffer begins a little earlier";
	spoiled = true;
	report = by("cuda");
	EXPECT_EQ(report.status, 1);
	EXPECT_TRUE(has(report.text, "wrong in the buffer: 1 bytes differ, the first at 1048575")) << report.text;
}

TEST_F(SelftestOfVendor, NamesTheReasonWhyItCannot)
{
	sys.on_ioctl = [](unsigned long request, void *arg) {
		if (request != PEERDMA_BUF_IMPORT)
			return 1;
		static_cast<peerdma_buf_import *>(arg)->out_reason = PEERDMA_REASON_VENDOR_UNPUBLISHED;
		return -EOPNOTSUPP;
	};
	EXPECT_TRUE(has(refusal("cuda"), peerdma_reason_text(PEERDMA_REASON_VENDOR_UNPUBLISHED))) << refusal("cuda");
	vendor_error = 2;
	EXPECT_TRUE(has(refusal("cuda"), "cuMemAlloc_v2 of libcuda.so.1 failed: 0x2")) << refusal("cuda");
	vendor_error = 0;
	sys.functions.erase("libcuda.so.1 cuMemAlloc_v2");
	EXPECT_TRUE(has(refusal("cuda"), "libcuda.so.1 has no cuMemAlloc_v2()")) << refusal("cuda");
	sys.functions.erase("libcuda.so.1 cuMemcpyDtoH_v2");
	EXPECT_TRUE(has(refusal("cuda"), "libcuda.so.1 has no cuMemcpyDtoH_v2()")) << refusal("cuda");
	// If this machine has the libraries, they load, but the fake finds none of their functions.
	const std::string hip = refusal("hip"), ze = refusal("ze");
	EXPECT_TRUE(has(hip, "cannot load libamdhip64.so.7 (") || has(hip, "has no hipFree()")) << hip;
	EXPECT_TRUE(has(ze, "cannot load libze_loader.so.1 (") || has(ze, "has no zeMemFree()")) << ze;
	EXPECT_THROW(by("opencl"), cli::Usage);
	EXPECT_THROW(cli::selftest({.dir = "/my/secret", .provider = "1", .memory = "cuda"}), cli::Usage);
	EXPECT_TRUE(sys.ios.empty());
}

TEST(SelftestPattern, SaysWhereABytesPlaceIs)
{
	const std::string all = cli::pattern(1, 0, 100000);
	EXPECT_EQ(cli::pattern(1, 777, 5000), all.substr(777, 5000));
	EXPECT_NE(cli::pattern(2, 0, 64), all.substr(0, 64));
	for (size_t shift : {1, 8, 512, 4096})
		EXPECT_NE(all.substr(shift, 64), all.substr(0, 64));
	EXPECT_EQ(cli::difference("abc", "abc"), "");
	EXPECT_EQ(cli::difference("abc", "ab"), "2 bytes, not 3");
}
