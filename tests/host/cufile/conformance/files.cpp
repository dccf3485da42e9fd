// SPDX-License-Identifier: MIT
//
// What calls leave unchanged in the driver, in files and in memory, and conditions that make no difference to a result.
#include "conformance.hpp"

using namespace conformance;

namespace
{

TEST_F(Cufile, AnOpenThatNobodyAskedForIsOne)
{
	const CUfileHandle_t fh = handle("f", "hello");
	EXPECT_EQ(lib().cuFileUseCount(), 1);
	handle("g", "hello");
	char host[8];
	EXPECT_EQ(code(lib().cuFileBufRegister, host, 8, 0), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 1) << "only the first one opens it";
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 2);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(read(fh, host, 5, 0), 5) << "who opened it last was not the first";
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(read(fh, host, 5, 0), -5027);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 5001);
}

TEST_F(Cufile, FlagsAndTextsAreFixedWhileTheDriverIsOpen)
{
	constexpr unsigned flags = 12, texts = 3;
	bool before[flags];
	for (unsigned i = 0; i < flags; i++) {
		const auto param = static_cast<CUFileBoolConfigParameter_t>(i);
		EXPECT_EQ(code(lib().cuFileGetParameterBool, param, &before[i]), 0) << i;
		EXPECT_EQ(code(lib().cuFileSetParameterBool, param, before[i]), 0) << i;
	}
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	for (unsigned i = 0; i < flags; i++) {
		const auto param = static_cast<CUFileBoolConfigParameter_t>(i);
		EXPECT_EQ(code(lib().cuFileSetParameterBool, param, before[i]), 5026) << i << ": what it is already";
		EXPECT_EQ(code(lib().cuFileSetParameterBool, param, !before[i]), 5026) << i;
		bool now = !before[i];
		EXPECT_EQ(code(lib().cuFileGetParameterBool, param, &now), 0) << i;
		EXPECT_EQ(now, before[i]) << i;
	}
	for (unsigned i = 0; i < texts; i++)
		EXPECT_EQ(code(lib().cuFileSetParameterString, static_cast<CUFileStringConfigParameter_t>(i), ""), 5026)
			<< i;
	EXPECT_EQ(code(lib().cuFileSetParameterBool, static_cast<CUFileBoolConfigParameter_t>(flags), true), 5022);
	// Implicitly opened as well.
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROFILE_NVTX, false), 0);
	handle("f", "x");
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROFILE_NVTX, false), 5026);
}

// In the original, writing a topology resets the flags, and either call fixes the settings, without opening the driver.
TEST_F(Cufile, FlagsAndTopologyOpenNothing)
{
	const auto p2pdma = static_cast<CUfileP2PFlags_t>(CU_FILE_P2P_FLAG_PCI_P2PDMA);
	EXPECT_EQ(code(lib().cuFileDriverSetP2PFlags, CU_FILE_NVME_SUPPORTED, p2pdma), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROFILE_NVTX, false), 0);
	EXPECT_EQ(code(lib().cuFileExportPCIeTopology, path("topology.json").c_str()), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROFILE_NVTX, false), 0);
	CUfileP2PFlags_t mask = CUFILE_P2PDMA;
	EXPECT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_NVME_SUPPORTED, &mask), 0);
	EXPECT_EQ(mask, p2pdma);
	EXPECT_EQ(code(lib().cuFileDriverSetP2PFlags, CU_FILE_NVME_SUPPORTED, static_cast<CUfileP2PFlags_t>(0)), 0);
}

// Neither the program's file offset nor that of the library's descriptor changes, by any call.
TEST_F(Cufile, TheProgramsPlaceInTheFileStays)
{
	const std::string bytes = pattern(3 << 20);
	std::vector<int> flags = {O_RDWR};
	if (has_direct())
		flags.push_back(O_RDWR | O_DIRECT);
	for (const int how : flags) {
		const int fd = open_file("f" + std::to_string(how), bytes, how);
		CUfileHandle_t fh = nullptr;
		ASSERT_EQ(add(fd, fh), 0);
		ASSERT_EQ(lseek(fd, 4096, SEEK_SET), 4096);
		Device memory(3 << 20);
		const auto location = [&] { return lseek(fd, 0, SEEK_CUR); };
		EXPECT_EQ(read(fh, memory.get(), 100, 7), 100);
		EXPECT_EQ(memory.bytes(0, 100), bytes.substr(7, 100)) << "from where it was asked for";
		EXPECT_EQ(location(), 4096);
		EXPECT_EQ(read(fh, memory.get(), 3 << 20, 0), 3 << 20);
		EXPECT_EQ(location(), 4096);
		EXPECT_EQ(write(fh, memory.get(), 3 << 20, 0), 3 << 20);
		EXPECT_EQ(write(fh, memory.get(), 3, 5), 3);
		EXPECT_EQ(location(), 4096);
		const CUfileIOVec_t vector = {memory.get(), 5000};
		EXPECT_EQ(told(lib().cuFileReadv(fh, &vector, 1, 11, 0)), 5000);
		EXPECT_EQ(told(lib().cuFileWritev(fh, &vector, 1, 11, 0)), 5000);
		EXPECT_EQ(location(), 4096);
		CUfileBatchHandle_t id = nullptr;
		CUfileIOParams_t io = {};
		io.mode = CUFILE_BATCH;
		io.fh = fh;
		io.u.batch = {memory.get(), 0, 0, 1 << 20};
		CUfileIOEvents_t event;
		unsigned n = 1;
		EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, 1), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOSubmit, id, 1, &io, 0), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 1, &n, &event, nullptr), 0);
		EXPECT_EQ(event.ret, 1u << 20);
		lib().cuFileBatchIODestroy(id);
		EXPECT_EQ(location(), 4096);
		void *const stream = fake_stream(0);
		size_t size = 5000;
		off_t from = 0, to = 0;
		ssize_t got = -1;
		EXPECT_EQ(code(lib().cuFileReadAsync, fh, memory.get(), &size, &from, &to, &got,
			       static_cast<CUstream>(stream)),
			  0);
		fake_sync(stream);
		EXPECT_EQ(got, 5000);
		EXPECT_EQ(location(), 4096);
		lib().cuFileDriverClose_v2(); // with its resources for the stream
		fake_stream_destroy(stream);
		EXPECT_EQ(location(), 4096);
	}
}

// Holes read as zeros, by every path.
TEST_F(Cufile, HolesAreZeros)
{
	constexpr size_t size = 5 << 20;
	std::string expected(size, '\0');
	const std::string bytes = pattern(5000);
	std::vector<int> flags = {O_RDWR};
	if (has_direct())
		flags.push_back(O_RDWR | O_DIRECT);
	for (const int how : flags) {
		const int fd = open_file("f" + std::to_string(how), "", how);
		std::ofstream islands(path("f" + std::to_string(how)), std::ios::binary | std::ios::in);
		for (const size_t at : {size_t{100000}, size_t{2} << 20, size - 9000}) {
			islands.seekp(static_cast<off_t>(at));
			islands << bytes;
			expected.replace(at, bytes.size(), bytes);
		}
		islands.close();
		ASSERT_EQ(ftruncate(fd, size), 0);
		CUfileHandle_t fh = nullptr;
		ASSERT_EQ(add(fd, fh), 0);
		Device memory(size);
		EXPECT_EQ(read(fh, memory.get(), size, 0), static_cast<ssize_t>(size));
		EXPECT_TRUE(memory.bytes(0, size) == expected);
		memory.fill(0x77);
		EXPECT_EQ(read(fh, memory.get(), 100, 7), 100);
		EXPECT_EQ(memory.bytes(0, 100), std::string(100, '\0'));
		memory.fill(0x77);
		constexpr unsigned count = 20;
		constexpr off_t part = size / count;
		std::vector<CUfileIOParams_t> ios(count);
		for (unsigned i = 0; i < count; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].fh = fh;
			ios[i].u.batch = {memory.get(), i * part, i * part, part};
		}
		CUfileBatchHandle_t id = nullptr;
		CUfileIOEvents_t events[count];
		unsigned n = count;
		EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, count), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOSubmit, id, count, ios.data(), 0), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, count, &n, events, nullptr), 0);
		lib().cuFileBatchIODestroy(id);
		EXPECT_TRUE(memory.bytes(0, size) == expected);
		// The gap left by a write beyond the end becomes a hole.
		EXPECT_EQ(write(fh, memory.get(), 4096, size + 8192, 100000), 4096);
		memory.fill(0x77);
		EXPECT_EQ(read(fh, memory.get(), 20000, size), 8192 + 4096);
		EXPECT_EQ(memory.bytes(0, 8192), std::string(8192, '\0'));
		EXPECT_EQ(memory.bytes(8192, 4096), bytes.substr(0, 4096));
	}
}

TEST_F(Cufile, WhatIsWrongWithAWrite)
{
	const std::string bytes = pattern(10000);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(8192);
	EXPECT_EQ(write(fh, memory.get(), 10, -1), -5022);
	EXPECT_EQ(write(fh, memory.get(), 10, 0, -1), -5022);
	EXPECT_EQ(write(fh, reinterpret_cast<void *>(uintptr_t{0x1000}), 10, 0), -1) << "CUDA's invalid value";
	EXPECT_EQ(write(fh, nullptr, 10, 0), -EINVAL);
	EXPECT_EQ(write(fh, memory.get(), 100, 0, 8100), -EIO) << "beyond the allocation";
	EXPECT_EQ(write(fh, memory.get(), 0, 5), 0);
	EXPECT_EQ(write(nullptr, memory.get(), 10, 0), -5027);
	EXPECT_TRUE(content("f") == bytes) << "and nothing is written";
	EXPECT_EQ(write(fh, memory.get(), 10, 0), 10) << "and all goes on";
}

// Any kind of memory, with every flag.
TEST_F(Cufile, AnyKindOfMemoryMayBeRegistered)
{
	constexpr size_t size = 300000;
	const std::string bytes = pattern(size);
	const CUfileHandle_t fh = handle("f", bytes);
	for (const int kind : {0, 1, 2})
		for (const int flags : {0, CU_FILE_RDMA_REGISTER, CU_FILE_RDMA_RELAXED_ORDERING,
					CU_FILE_RDMA_REGISTER | CU_FILE_RDMA_RELAXED_ORDERING}) {
			Device memory(size, kind % 2, kind);
			ASSERT_EQ(code(lib().cuFileBufRegister, memory.get(), size, flags), 0) << kind << ' ' << flags;
			EXPECT_EQ(read(fh, memory.get(), size - 3, 1, 3), static_cast<ssize_t>(size - 3));
			EXPECT_TRUE(memory.bytes(3, size - 3) == bytes.substr(1, size - 3)) << kind << ' ' << flags;
			EXPECT_TRUE(memory.untouched(0, 3));
			EXPECT_EQ(read(fh, memory.get(), size, 0, 1), -5017) << kind;
			EXPECT_EQ(read(fh, memory.get() + 4096, 1000, 7), 1000) << "a pointer into it";
			EXPECT_EQ(memory.bytes(4096, 1000), bytes.substr(7, 1000));
			EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get()), 0);
			EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get()), 5024);
		}
}

// If the log cannot be opened, the library works without one.
TEST_F(Cufile, ALogThatCannotBeWritten)
{
	for (const std::string &name : {std::string("/nowhere/cufile.log"), dir_.string(), std::string("/dev/full")}) {
		setenv("CUFILE_LOGFILE_PATH", name.c_str(), 1);
		setenv("CUFILE_LOGGING_LEVEL", "TRACE", 1);
		capture_stderr();
		const CUfileHandle_t fh = handle("f", "hello");
		Device memory(4096);
		EXPECT_EQ(read(fh, memory.get(), 5, 0), 5) << name;
		lib().cuFileDriverClose_v2();
		testing::internal::GetCapturedStderr();
	}
	unsetenv("CUFILE_LOGGING_LEVEL");
	unsetenv("CUFILE_LOGFILE_PATH");
}

} // namespace
