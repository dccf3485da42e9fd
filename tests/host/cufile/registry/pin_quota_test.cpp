// SPDX-License-Identifier: MIT
// Limit on the memory registered with the kernel.
#include "program.hpp"

namespace
{

constexpr size_t frame = 65536;

class CufilePinQuota : public ::testing::Test, protected Fakes
{
protected:
	CufilePinQuota()
	{
		peerdma.file = bytes;
		peerdma.pin_error = 0;
		cuda.present = true;
		cuda.device.assign(12 * frame, 'd');
		const auto at = reinterpret_cast<uintptr_t>(cuda.device.data());
		memory = cuda.device.data() + (frame - at % frame) + frame;
		EXPECT_EQ(library.driver.set_max_pinned(4 * frame / 1024).err, 0);
		EXPECT_EQ(library.driver.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
		fh = register_file(library, system.program_fd(bytes, O_RDWR));
	}
	~CufilePinQuota() override
	{
		close_all(library);
		EXPECT_TRUE(peerdma.pinned.empty()) << "memory stays registered";
	}
	int register_memory(char *base, size_t size) { return library.register_buffer(base, size, 0).err; }
	// The reason for not going directly; the I/O succeeds in any case.
	uint32_t why(char *base, size_t size)
	{
		peerdma_cufile_route route = {};
		EXPECT_EQ(library.router.explain(fh, base, size, 0, 0, route), 0);
		std::fill(base, base + size, 'x');
		EXPECT_EQ(library.router.transfer(fh, base, size, 0, 0, false), static_cast<int64_t>(size));
		EXPECT_EQ(bytes.compare(0, size, base, size), 0);
		return route.why;
	}

	const std::string bytes = some_bytes(8 * frame);
	CUfileHandle_t fh = nullptr;
	char *memory; // start of a frame
};

TEST_F(CufilePinQuota, BeyondTheLimitItBounces)
{
	EXPECT_EQ(register_memory(memory, 3 * frame), 0);
	EXPECT_EQ(register_memory(memory + 3 * frame, 2 * frame), 0) << "registered all the same";
	EXPECT_EQ(peerdma.pinned.size(), 1u);
	EXPECT_EQ(why(memory, 3 * frame), 0u);
	EXPECT_EQ(why(memory + 3 * frame, 2 * frame), static_cast<uint32_t>(PEERDMA_CUFILE_WHY_PINNED_LIMIT));
	EXPECT_NE(system.to_stderr.find("max_device_pinned_mem_size_kb has no room"), std::string::npos);
	peerdma_cufile_counts counts = {};
	library.router.accounting().counts(counts);
	EXPECT_EQ(counts.ios[PEERDMA_CUFILE_WHY_PINNED_LIMIT], 1u);
	// What fits is registered.
	EXPECT_EQ(register_memory(memory + 5 * frame, frame), 0);
	EXPECT_EQ(why(memory + 5 * frame, frame), 0u);
}

TEST_F(CufilePinQuota, WhatIsDeregisteredMakesRoom)
{
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(register_memory(memory, 4 * frame), 0);
		EXPECT_EQ(why(memory, 4 * frame), 0u) << i;
		// Inside a registered frame, so it takes no more of the quota.
		EXPECT_EQ(register_memory(memory + 100, frame), 0);
		EXPECT_EQ(why(memory + 100, frame), 0u);
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
		EXPECT_EQ(register_memory(memory + 4 * frame, frame), 0);
		EXPECT_NE(why(memory + 4 * frame, frame), 0u) << "the other one still has it";
		EXPECT_EQ(library.deregister_buffer(memory + 100).err, 0);
		EXPECT_EQ(library.deregister_buffer(memory + 4 * frame).err, 0);
	}
	peerdma.pin_error = -EIO;
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	peerdma.pin_error = 0;
	EXPECT_EQ(register_memory(memory + 4 * frame, 4 * frame), 0);
	EXPECT_EQ(why(memory + 4 * frame, 4 * frame), 0u) << "what the kernel refused takes no room";
}

TEST_F(CufilePinQuota, TheLimitCanBeChanged)
{
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	EXPECT_EQ(library.driver.set_max_pinned(0).err, 0);
	EXPECT_EQ(why(memory, 4 * frame), 0u) << "what is there stays";
	EXPECT_EQ(register_memory(memory + 4 * frame, 1), 0);
	EXPECT_NE(why(memory + 4 * frame, 1), 0u);
	EXPECT_EQ(library.driver.set_max_pinned(8 * frame / 1024).err, 0);
	EXPECT_EQ(register_memory(memory + 5 * frame, frame), 0);
	EXPECT_EQ(why(memory + 5 * frame, frame), 0u);
}

TEST(CufilePinnedMemory, IsOfEachGpu)
{
	cufile::PinQuota pinned;
	EXPECT_TRUE(pinned.charge(0, UINT64_MAX)) << "no limit";
	pinned.refund(0, UINT64_MAX);
	pinned.set_limit(100);
	EXPECT_TRUE(pinned.charge(0, 60));
	EXPECT_FALSE(pinned.charge(0, 41));
	EXPECT_TRUE(pinned.charge(1, 100));
	EXPECT_FALSE(pinned.charge(1, 1));
	EXPECT_FALSE(pinned.charge(0, UINT64_MAX)) << "the sum does not wrap around";
	EXPECT_TRUE(pinned.charge(0, 40));
	pinned.refund(1, 50);
	EXPECT_TRUE(pinned.charge(1, 50));
	EXPECT_FALSE(pinned.charge(0, 1));
}

} // namespace
