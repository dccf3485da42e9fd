// SPDX-License-Identifier: MIT
// Which path an I/O takes, with strings as buffers of libpeerdma.
#include "cufile/platform/errors.hpp"
#include "program.hpp"

namespace
{

class CufileRouter : public ::testing::Test, protected Fakes
{
protected:
	CufileRouter()
	{
		peerdma.buffer.assign(65536, 'b');
		peerdma.file = bytes;
		cuda.device.assign(65536, 'd');
		cuda.present = true;
		fd = system.program_fd(bytes, O_RDWR);
	}
	~CufileRouter() override
	{
		close_all(library);
		EXPECT_EQ(peerdma.open_files, 0) << "a file of libpeerdma's leaked";
		EXPECT_EQ(cuda.pinned, 0) << "pinned memory leaked";
		EXPECT_EQ(system.fds.size(), programs) << "a descriptor leaked";
	}
	CUfileHandle_t add() { return register_file(library, fd); }
	int64_t read(CUfileHandle_t fh, void *base, size_t size, off_t from, off_t to = 0)
	{
		return library.router.transfer(fh, base, size, from, to, false);
	}
	peerdma_cufile_route explain(CUfileHandle_t fh, const void *base, size_t size)
	{
		peerdma_cufile_route route = {};
		EXPECT_EQ(library.router.explain(fh, base, size, 0, 0, route), 0);
		return route;
	}
	void expect_refused(CUfileHandle_t fh, enum peerdma_reason reason, enum peerdma_route by)
	{
		const auto route = explain(fh, peerdma.buffer.data(), 64);
		EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_REFUSED));
		EXPECT_EQ(route.reason, static_cast<uint32_t>(reason));
		EXPECT_EQ(route.route, static_cast<uint32_t>(by));
	}
	uint64_t ios(enum peerdma_cufile_why why)
	{
		peerdma_cufile_counts counts = {};
		library.router.accounting().counts(counts);
		return counts.ios[why];
	}

	const std::string bytes = some_bytes(30000);
	int fd;
	size_t programs = 1;
};

TEST_F(CufileRouter, ABufferOfLibpeerdmasIsReadDirectly)
{
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data() + 100, 5000, 300, 40), 5000);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{140, 5000, 300}}));
	EXPECT_EQ(peerdma.buffer.substr(140, 5000), bytes.substr(300, 5000));
	EXPECT_TRUE(system.calls.empty()) << "the system's own read was not used";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
	EXPECT_EQ(explain(fh, peerdma.buffer.data(), 10).route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT_EDGES));
	EXPECT_EQ(explain(fh, peerdma.buffer.data(), 10).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NONE));
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 5000, 29000), 1000) << "the end of the file";
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data() + 140, 100, 20000, 0, true), 100);
	EXPECT_EQ(peerdma.file.substr(20000, 100), bytes.substr(29140, 100));
	EXPECT_EQ(peerdma.opened.size(), 1u) << "one file of libpeerdma's serves all";
	peerdma.device = 4;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 100, 0), 100);
	EXPECT_EQ(peerdma.opened.size(), 2u) << "but not the buffers of another peerdma_open()";
	library.deregister_file(fh);
	EXPECT_EQ(peerdma.open_files, 0);
}

TEST_F(CufileRouter, ARegisteredOneToo)
{
	const CUfileHandle_t fh = add();
	EXPECT_EQ(library.register_buffer(peerdma.buffer.data(), 8192, 0).err, 0);
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0, 4096), 4096);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{4096, 4096, 0}}));
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4097, 0, 4096), cufile::failed(CU_FILE_INVALID_MAPPING_RANGE));
}

TEST_F(CufileRouter, ErrorsOfLibpeerdmasComeThrough)
{
	const CUfileHandle_t fh = add();
	peerdma.error = -ENODEV;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 100, 0), -ENODEV);
	peerdma.error = 0;
	peerdma.open_error = -EMFILE;
	const int other = system.program_fd("x", O_RDWR);
	programs++;
	fd = other;
	EXPECT_EQ(read(add(), peerdma.buffer.data(), 100, 0), -EMFILE) << "the cause";
}

// A failed trial mapping may succeed later and is retried; the file system's answer is final.
TEST_F(CufileRouter, ARefusalThatMayPassIsAskedAboutAgain)
{
	constexpr uint64_t second = 1'000'000'000;
	for (const uint32_t reason : {PEERDMA_REASON_MAPPING, PEERDMA_REASON_RDMA_ROUTE, PEERDMA_REASON_FILESYSTEM}) {
		peerdma.refused = reason;
		fd = system.program_fd("x", O_RDWR);
		programs++;
		const CUfileHandle_t fh = add();
		read(fh, peerdma.buffer.data(), 100, 0);
		const size_t asked = peerdma.explained.size();
		peerdma.refused = 0;
		read(fh, peerdma.buffer.data(), 100, 0);
		EXPECT_EQ(peerdma.explained.size(), asked) << "not at each I/O";
		system.now += second;
		const size_t opened = peerdma.opened.size();
		read(fh, peerdma.buffer.data(), 100, 0);
		EXPECT_EQ(peerdma.explained.size(), asked + (reason != PEERDMA_REASON_FILESYSTEM)) << reason;
		EXPECT_EQ(peerdma.opened.size(), opened) << "closing it would end the program's locks";
	}
}

TEST_F(CufileRouter, WhyNot)
{
	const CUfileHandle_t fh = add();
	char host[64];
	const struct {
		const void *base;
		size_t size;
		uint32_t route, why;
	} all[] = {
		{cuda.device.data(), 64, PEERDMA_ROUTE_HOST, PEERDMA_CUFILE_WHY_NOT_A_BUFFER},
		{host, 64, PEERDMA_ROUTE_POSIX, PEERDMA_CUFILE_WHY_HOST_MEMORY},
		{peerdma.buffer.data() + 65000, 1000, PEERDMA_ROUTE_POSIX, PEERDMA_CUFILE_WHY_BUFFER_END},
	};
	for (const auto &one : all) {
		EXPECT_EQ(explain(fh, one.base, one.size).route, one.route) << one.why;
		EXPECT_EQ(explain(fh, one.base, one.size).why, one.why);
	}
	peerdma.present = false;
	EXPECT_EQ(explain(fh, cuda.device.data(), 64).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NO_LIBRARY));
	EXPECT_EQ(explain(fh, host, 64).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_HOST_MEMORY));
}

TEST_F(CufileRouter, ForcedAway)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_FORCE_COMPAT_MODE, true).err, 0);
	const CUfileHandle_t fh = add();
	EXPECT_EQ(explain(fh, peerdma.buffer.data(), 64).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_FORCED));
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 64, 0), 64);
	EXPECT_TRUE(peerdma.reads.empty());
	EXPECT_EQ(peerdma.buffer.substr(0, 64), bytes.substr(0, 64));
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_FORCED), 1u);
}

TEST_F(CufileRouter, WhatTheModuleRefusesIsCountedAsThat)
{
	peerdma.refused = PEERDMA_REASON_QUEUE;
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 64, 0), 64);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 0u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	expect_refused(fh, PEERDMA_REASON_QUEUE, PEERDMA_ROUTE_POSIX);
}

// Otherwise the CPU would copy through uncached memory, while CUDA can copy.
TEST_F(CufileRouter, WhatTheModuleRefusesOfDeviceMemoryBounces)
{
	cuda.also = &peerdma.buffer;
	peerdma.refused = PEERDMA_REASON_QUEUE;
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 6000, 100), 6000);
	EXPECT_EQ(peerdma.buffer.substr(0, 6000), bytes.substr(100, 6000));
	EXPECT_TRUE(peerdma.reads.empty());
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	EXPECT_NE(system.to_stderr.find("far away"), std::string::npos) << system.to_stderr;
	expect_refused(fh, PEERDMA_REASON_QUEUE, PEERDMA_ROUTE_HOST);
}

// libpeerdma moves none of it by any path; its rules do not apply to copies by CUDA.
TEST_F(CufileRouter, WhatARuleDeniesBounces)
{
	cuda.also = &peerdma.buffer;
	peerdma.refused = PEERDMA_REASON_RULE;
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 6000, 100), 6000);
	EXPECT_EQ(peerdma.buffer.substr(0, 6000), bytes.substr(100, 6000));
	EXPECT_TRUE(peerdma.reads.empty());
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	EXPECT_EQ(explain(fh, peerdma.buffer.data(), 64).reason, static_cast<uint32_t>(PEERDMA_REASON_RULE));
}

// The device cannot address the memory, or it contains no whole block: the module would move it through the host.
TEST_F(CufileRouter, WhatNoDeviceCanAddressBounces)
{
	cuda.also = &peerdma.buffer;
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0, 2), 4096);
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 510, 4), 4096);
	EXPECT_TRUE(peerdma.reads.empty());
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 511, 0, 0, true), 511);
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 512, 1, 0, true), 512);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 4u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 0u);
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 510, 2), 4096);
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 100, 510, 7), 100) << "edges of a read do not leave the device";
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 513, 511, 3, true), 513);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
	peerdma_cufile_route route = {};
	EXPECT_EQ(library.router.explain(fh, peerdma.buffer.data(), 4096, 0, 2, route), 0);
	EXPECT_EQ(route.reason, static_cast<uint32_t>(PEERDMA_REASON_BUF_ALIGN));
	EXPECT_EQ(route.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
}

TEST_F(CufileRouter, WhatTheModuleTookThroughTheHostIsNotDirect)
{
	peerdma.bounced = PEERDMA_REASON_BUF_ALIGN;
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0, 2), 4096);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 0u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	EXPECT_NE(system.to_stderr.find("far away"), std::string::npos) << system.to_stderr;
	system.to_stderr.clear();
	close_all(library);
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	EXPECT_EQ(read(add(), peerdma.buffer.data(), 4096, 0, 2), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_EQ(peerdma.reads.size(), 1u);
}

TEST_F(CufileRouter, WhoInsistsIsRefusedBeforeAnythingIsMoved)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 64, 0), 64) << "directly is fine";
	EXPECT_EQ(peerdma.explained, (std::vector<uint32_t>{7, 7}))
		<< "it was asked for first, of the file and of the read";
	peerdma.refused = PEERDMA_REASON_QUEUE;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 64, 0), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_EQ(peerdma.reads.size(), 1u);
	EXPECT_EQ(read(fh, cuda.device.data(), 64, 0), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_TRUE(system.calls.empty());
}

TEST_F(CufileRouter, WhoInsistsWritesWholeBlocks)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	const CUfileHandle_t fh = add();
	const auto write = [&](size_t size, off_t to) {
		return library.router.transfer(fh, peerdma.buffer.data(), size, to, 0, true);
	};
	const auto refused = cufile::failed(CU_FILE_IO_NOT_SUPPORTED);
	EXPECT_EQ(write(4097, 0), refused) << "its edge would go through the page cache";
	EXPECT_EQ(write(4096, 1), refused);
	EXPECT_EQ(write(4095, 1), refused);
	EXPECT_EQ(peerdma.file, bytes) << "before anything is moved";
	EXPECT_EQ(write(4096, 512), 4096);
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4097, 1, 1), 4097) << "edges of a read do not leave the device";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 2u);
	fd = system.program_fd(bytes, O_WRONLY);
	programs++;
	const auto route = explain(add(), peerdma.buffer.data(), 4097);
	EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_REFUSED));
	EXPECT_EQ(route.reason, static_cast<uint32_t>(PEERDMA_REASON_FILE_ALIGN));
}

// The module does not remember earlier answers.
TEST_F(CufileRouter, WhoInsistsIsToldWhatWentByWayOfTheHost)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	const CUfileHandle_t fh = add();
	const auto refused = cufile::failed(CU_FILE_IO_NOT_SUPPORTED);
	peerdma.falls_back = PEERDMA_REASON_QUEUE;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0), refused);
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4096, 0, 0, true), refused);
	peerdma.falls_back = 0;
	peerdma.edges = 100;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0), refused) << "a part of it";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 0u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 3u);
	peerdma.edges = 0;
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 4096, 0), 4096);
	peerdma.error = -ENOSPC;
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4096, 0, 0, true), -ENOSPC)
		<< "other errors are what they are";
}

TEST_F(CufileRouter, EdgesByWayOfTheHostAreNoDirectBytes)
{
	const CUfileHandle_t fh = add();
	peerdma.edges = 1;
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 4097, 0, 0, true), 4097);
	CUfileBatchHandle_t batch = nullptr;
	ASSERT_EQ(library.create_batch(&batch, 1).err, 0);
	CUfileIOParams_t io = batch_io(fh, peerdma.buffer.data(), 513, 0, 0, nullptr, CUFILE_WRITE);
	ASSERT_EQ(library.batches.submit(batch, 1, &io).err, 0);
	CUfileIOEvents_t event;
	unsigned n = 1;
	ASSERT_EQ(library.batches.status(batch, 1, &n, &event, nullptr).err, 0);
	library.batches.destroy(batch);
	peerdma_cufile_counts counts = {};
	library.router.accounting().counts(counts);
	EXPECT_EQ(counts.ios[PEERDMA_CUFILE_WHY_NONE], 2u) << "all else of them was direct";
	EXPECT_EQ(counts.ios[PEERDMA_CUFILE_WHY_REFUSED], 0u);
	EXPECT_EQ(counts.bytes[PEERDMA_CUFILE_WHY_NONE], 4096u + 512);
	EXPECT_EQ(counts.bytes[PEERDMA_CUFILE_WHY_REFUSED], 2u);
}

// The program may load CUDA and libpeerdma after its first call of this library.
TEST_F(CufileRouter, WhatWasLoadedSinceIsFound)
{
	const auto gone = [&] {
		cuda.present = peerdma.present = false;
		cuda.loaded_since = peerdma.loaded_since = true;
	};
	const auto found = [&] { return cuda.present && peerdma.present; };
	gone();
	EXPECT_EQ(library.driver.open().err, 0);
	EXPECT_TRUE(found());
	gone();
	const CUfileHandle_t fh = add();
	EXPECT_TRUE(found());
	gone();
	EXPECT_EQ(library.register_buffer(cuda.device.data(), 4096, 0).err, 0);
	EXPECT_TRUE(found());
	EXPECT_EQ(explain(fh, cuda.device.data(), 64).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
}

TEST_F(CufileRouter, WithoutCompatModeItIsTheSame)
{
	system.node = true; // otherwise the driver does not open
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, false).err, 0);
	const CUfileHandle_t fh = add();
	EXPECT_EQ(read(fh, peerdma.buffer.data(), 64, 0), 64);
	EXPECT_EQ(read(fh, cuda.device.data(), 64, 0), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	CUfileDrvProps_t props;
	EXPECT_EQ(library.driver.properties(&props).err, 0);
	EXPECT_EQ(props.nvfs.dcontrolflags, 0u);
	EXPECT_EQ(props.nvfs.dstatusflags, 1u << CU_FILE_NVME_SUPPORTED) << "the module is there";
}

TEST_F(CufileRouter, ItIsSaidOnceForEachFileAndReason)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
	const CUfileHandle_t fh = add();
	char host[64];
	for (int i = 0; i < 3; i++) {
		read(fh, cuda.device.data(), 64, 0);
		read(fh, host, 64, 0);
		read(fh, peerdma.buffer.data() + 65535, 2, 0);
	}
	const auto lines = std::count(system.to_stderr.begin(), system.to_stderr.end(), '\n');
	EXPECT_EQ(lines, 2) << "host memory is nothing to speak of: " << system.to_stderr;
}

TEST_F(CufileRouter, BatchesGoDirectlyToo)
{
	const CUfileHandle_t fh = add();
	CUfileBatchHandle_t batch = nullptr;
	ASSERT_EQ(library.create_batch(&batch, 4).err, 0);
	CUfileIOParams_t ios[4];
	for (unsigned i = 0; i < 4; i++)
		ios[i] = batch_io(fh, peerdma.buffer.data(), 900, i * 1000, i * 10000);
	ASSERT_EQ(library.batches.submit(batch, 4, ios).err, 0);
	CUfileIOEvents_t events[4];
	unsigned n = 4;
	ASSERT_EQ(library.batches.status(batch, 4, &n, events, nullptr).err, 0);
	EXPECT_EQ(n, 4u);
	EXPECT_EQ(peerdma.reads.size(), 4u);
	for (unsigned i = 0; i < 4; i++)
		EXPECT_EQ(peerdma.buffer.substr(i * 10000, 900), bytes.substr(i * 1000, 900)) << i;
	library.batches.destroy(batch);
}

TEST_F(CufileRouter, TheSizeOfTheBar)
{
	EXPECT_EQ(library.driver.open().err, 0);
	size_t kb = 0;
	EXPECT_EQ(library.driver.bar_size(0, &kb).err, CU_FILE_DEVICE_NOT_FOUND) << "sysfs says nothing";
	const std::string path = "/sys/bus/pci/devices/0000:0a:00.0/resource";
	system.texts[path] = "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n"
			     "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
			     "0x0000380000000000 0x00003807ffffffff 0x000000000014220c\n";
	EXPECT_EQ(library.driver.bar_size(0, &kb).err, 0);
	EXPECT_EQ(kb, size_t{32} << 20);
	EXPECT_EQ(library.driver.set_max_cache((size_t{32} << 20) + 1).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.driver.set_max_cache(size_t{32} << 20).err, 0);
	for (const char *text :
	     {"", "\n\n\n\n\n\n\n", "0x", "garbage here\n", "0x5 0x1 0x0\n", "0xfffffffffffffffff 0x1\n"}) {
		system.texts[path] = text;
		EXPECT_EQ(library.driver.bar_size(0, &kb).err, CU_FILE_DEVICE_NOT_FOUND) << text;
	}
}

TEST_F(CufileRouter, ADriverThatCannotSayWhatAnAddressIs)
{
	const CUfileHandle_t fh = add();
	cuda.look_up_error = 700;
	EXPECT_EQ(read(fh, cuda.device.data(), 64, 0), cufile::failed(CU_FILE_CUDA_DRIVER_ERROR));
	const CUfileError_t error = library.register_buffer(cuda.device.data(), 64, 0);
	EXPECT_EQ(error.err, CU_FILE_CUDA_DRIVER_ERROR);
	EXPECT_EQ(error.cu_err, 700);
}

} // namespace
