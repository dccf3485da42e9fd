// SPDX-License-Identifier: MIT
//
// Memory that is not allocated by cuMemAlloc(), and contexts on a part of a device: I/O works, registered or not.
#include <cuda.h>

#include "conformance.hpp"

using namespace conformance;

namespace
{

constexpr size_t size = 300000;

class Memory : public Cufile
{
protected:
	Memory() : bytes_(pattern(size)), fh_(handle("f", bytes_)) { fake_set_current(0); }
	static char *at(CUdeviceptr memory) { return reinterpret_cast<char *>(memory); }
	static std::string seen(char *memory, size_t n) { return std::string(fake_peek(memory), n); }
	// Registered and not, read and written.
	void works(char *memory)
	{
		for (const bool registered : {false, true}) {
			if (registered) {
				ASSERT_EQ(code(lib().cuFileBufRegister, memory, size, 0), 0);
			}
			std::memset(fake_peek(memory), 0x77, size);
			EXPECT_EQ(read(fh_, memory, size - 1000, 100, 50), static_cast<ssize_t>(size - 1000));
			EXPECT_TRUE(seen(memory + 50, size - 1000) == bytes_.substr(100, size - 1000));
			EXPECT_EQ(seen(memory, 50), std::string(50, 0x77));
			EXPECT_EQ(write(fh_, memory, size, static_cast<off_t>(size)), static_cast<ssize_t>(size));
			EXPECT_TRUE(content("f").substr(size) == seen(memory, size));
			if (registered) {
				EXPECT_EQ(code(lib().cuFileBufRegister, memory, size, 0), 5023);
				EXPECT_EQ(code(lib().cuFileBufDeregister, memory), 0);
			}
		}
	}

	const std::string bytes_;
	const CUfileHandle_t fh_;
};

TEST_F(Memory, OfAPool)
{
	CUmemPoolProps props = {};
	props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemoryPool pool = nullptr;
	CUdeviceptr first = 0, second = 0;
	ASSERT_EQ(cuMemPoolCreate(&pool, &props), 0);
	ASSERT_EQ(cuMemAllocAsync(&first, size, nullptr), 0);
	ASSERT_EQ(cuMemAllocFromPoolAsync(&second, size, pool, nullptr), 0);
	works(at(first));
	works(at(second));
	EXPECT_EQ(cuMemFreeAsync(first, nullptr), 0);
	EXPECT_EQ(cuMemFreeAsync(second, nullptr), 0);
	EXPECT_EQ(cuMemPoolDestroy(pool), 0);
}

// Freed and allocated again at the same address: registered anew without an error.
TEST_F(Memory, OfAPoolOnceMore)
{
	CUdeviceptr memory = 0, again = 0;
	ASSERT_EQ(cuMemAllocAsync(&memory, size, nullptr), 0);
	ASSERT_EQ(code(lib().cuFileBufRegister, at(memory), 1000, 0), 0);
	ASSERT_EQ(cuMemFreeAsync(memory, nullptr), 0);
	ASSERT_EQ(cuMemAllocAsync(&again, size, nullptr), 0);
	if (again != memory)
		GTEST_SKIP() << "it is elsewhere";
	works(at(again));
	EXPECT_EQ(cuMemFreeAsync(again, nullptr), 0);
}

TEST_F(Memory, OfAnotherProcess)
{
	CUdeviceptr memory = 0, opened = 0;
	CUipcMemHandle name;
	ASSERT_EQ(cuMemAlloc(&memory, size), 0);
	ASSERT_EQ(cuIpcGetMemHandle(&name, memory), 0);
	ASSERT_EQ(cuIpcOpenMemHandle(&opened, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), 0);
	works(at(opened));
	EXPECT_TRUE(seen(at(opened), size) == seen(at(memory), size));
	EXPECT_EQ(code(lib().cuFileBufRegister, at(memory), size, 0), 0);
	works(at(opened));
	EXPECT_EQ(cuIpcCloseMemHandle(opened), 0);
	EXPECT_EQ(cuMemFree(memory), 0);
}

TEST_F(Memory, Managed)
{
	CUdeviceptr memory = 0;
	ASSERT_EQ(cuMemAllocManaged(&memory, size, CU_MEM_ATTACH_GLOBAL), 0);
	works(at(memory));
	EXPECT_EQ(cuMemFree(memory), 0);
}

TEST_F(Memory, MappedHost)
{
	void *memory = nullptr;
	ASSERT_EQ(cuMemHostAlloc(&memory, size, 2), 0);
	works(static_cast<char *>(memory));
	EXPECT_EQ(cuMemFreeHost(memory), 0);
	std::vector<char> own(size);
	ASSERT_EQ(cuMemHostRegister(own.data(), size, 2), 0);
	works(own.data());
	EXPECT_EQ(cuMemHostUnregister(own.data()), 0);
}

TEST_F(Memory, OfAGreenContext)
{
	CUdevResource all;
	CUdevResourceDesc part = nullptr;
	CUgreenCtx green = nullptr;
	CUcontext context = nullptr, before = nullptr;
	CUstream stream = nullptr;
	CUdeviceptr memory = 0;
	ASSERT_EQ(cuDeviceGetDevResource(1, &all, CU_DEV_RESOURCE_TYPE_SM), 0);
	ASSERT_EQ(cuDevResourceGenerateDesc(&part, &all, 1), 0);
	ASSERT_EQ(cuGreenCtxCreate(&green, part, 1, CU_GREEN_CTX_DEFAULT_STREAM), 0);
	ASSERT_EQ(cuCtxFromGreenCtx(&context, green), 0);
	ASSERT_EQ(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), 0);
	ASSERT_EQ(cuCtxPushCurrent(context), 0);
	ASSERT_EQ(cuMemAlloc(&memory, size), 0);
	works(at(memory));
	ASSERT_EQ(cuCtxPopCurrent(&before), 0);
	works(at(memory));
	size_t n = size;
	off_t zero = 0;
	ssize_t done = 0;
	std::memset(fake_peek(at(memory)), 0x77, size);
	ASSERT_EQ(code(lib().cuFileReadAsync, fh_, at(memory), &n, &zero, &zero, &done, stream), 0);
	EXPECT_EQ(cuStreamSynchronize(stream), 0);
	EXPECT_EQ(done, static_cast<ssize_t>(size));
	EXPECT_TRUE(seen(at(memory), size) == bytes_);
	EXPECT_EQ(cuMemFree(memory), 0);
	lib().cuFileDriverClose_v2();
	ASSERT_EQ(cuCtxPushCurrent(context), 0);
	EXPECT_EQ(cuStreamDestroy(stream), 0);
	ASSERT_EQ(cuCtxPopCurrent(&before), 0);
	EXPECT_EQ(cuGreenCtxDestroy(green), 0);
}

} // namespace
