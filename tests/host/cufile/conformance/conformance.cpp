// SPDX-License-Identifier: MIT
//
// libcufile.so.0 as programs use it. The expected results were observed with the original library:
// Documentation/cufile.md.
#include <climits>
#include <future>
#include <set>

#include <sys/file.h>

#include "conformance.hpp"
#include "ring_descriptors.hpp"

using namespace conformance;

namespace
{

// The driver

TEST_F(Cufile, WhoSaysIt)
{
	json("// a comment\n{ \"properties\": { \"force_compat_mode\": true, \"max_direct_io_size_kb\": 2048 },\n"
	     "\"execution\": { \"max_io_threads\": 7, \"max_io_queue_depth\": 33 } }");
	setenv("CUFILE_FORCE_COMPAT_MODE", "false", 1);
	EXPECT_EQ(code(lib().cuFileSetParameterSizeT, CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 44), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	unsetenv("CUFILE_FORCE_COMPAT_MODE");
	size_t value = 0;
	bool flag = true;
	lib().cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, &value);
	EXPECT_EQ(value, 2048u) << "the file";
	lib().cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &value);
	EXPECT_EQ(value, 7u) << "the file";
	lib().cuFileGetParameterBool(CUFILE_PARAM_FORCE_COMPAT_MODE, &flag);
	EXPECT_FALSE(flag) << "a variable before the file";
	lib().cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, &value);
	EXPECT_EQ(value, 44u) << "the program before both";
	lib().cuFileDriverClose_v2();
}

TEST_F(Cufile, OpeningIsCounted)
{
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 2);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 1);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 5001);
}

// Takes the best of several runs, because other programs share the machine.
TEST_F(Cufile, OpeningCostsLessThanTenMilliseconds)
{
	using std::chrono::steady_clock;
	auto best = steady_clock::duration::max();
	for (int i = 0; i < 10; i++) {
		const auto begin = steady_clock::now();
		EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
		best = std::min(best, steady_clock::now() - begin);
		EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	}
	EXPECT_LT(best, std::chrono::milliseconds(10));
}

TEST_F(Cufile, TheOldNameOfCloseIsThereToo)
{
	using Close = CUfileError_t (*)();
	const auto old = reinterpret_cast<Close>(dlsym(lib().self, "cuFileDriverClose"));
	ASSERT_NE(old, nullptr);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(old().err, 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
}

TEST_F(Cufile, TheFirstFileOpensTheDriver)
{
	handle("f", "x");
	EXPECT_EQ(lib().cuFileUseCount(), 1);
}

TEST_F(Cufile, TheFirstBufferOpensTheDriver)
{
	Device memory(4096);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 4096, 0), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 1);
}

TEST_F(Cufile, ADriverThatMayNotFallBackDoesNotOpenWithoutTheModule)
{
	if (fs::exists("/dev/peerdma"))
		GTEST_SKIP() << "the module is loaded";
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, false), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 5001);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, true), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
}

TEST_F(Cufile, Properties)
{
	CUfileDrvProps_t props;
	EXPECT_EQ(code(lib().cuFileDriverGetProperties, nullptr), 5022);
	CUfileDrvProps_t closed;
	std::memset(&closed, 0x55, sizeof(closed));
	std::memset(&props, 0x55, sizeof(props));
	ASSERT_EQ(code(lib().cuFileDriverGetProperties, &closed), 0) << "of a driver that is closed, too";
	EXPECT_EQ(lib().cuFileUseCount(), 0) << "and it stays so";
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 5001);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverGetProperties, nullptr), 5022);
	ASSERT_EQ(code(lib().cuFileDriverGetProperties, &props), 0);
	EXPECT_EQ(std::memcmp(&props, &closed, sizeof(props)), 0);
	EXPECT_EQ(props.nvfs.major_version, 0u);
	EXPECT_EQ(props.nvfs.minor_version, 0u);
	EXPECT_EQ(props.nvfs.dcontrolflags, 2u);
	EXPECT_EQ(props.fflags, 0xfu);
	EXPECT_EQ(props.nvfs.poll_thresh_size, 4u);
	EXPECT_EQ(props.nvfs.max_direct_io_size, 16384u);
	EXPECT_EQ(props.max_device_cache_size, 131072u);
	EXPECT_EQ(props.per_buffer_cache_size, 0u);
	EXPECT_EQ(props.max_device_pinned_mem_size, 33554432u);
	EXPECT_EQ(props.max_batch_io_size, 128u);
	EXPECT_EQ(props.max_batch_io_timeout_msecs, 5u);
}

TEST_F(Cufile, LimitsCanBeSet)
{
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxDirectIOSize, 1000), 5003) << "no multiple of 64";
	EXPECT_EQ(code(lib().cuFileDriverSetMaxDirectIOSize, 0), 5003);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxDirectIOSize, 1024), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxCacheSize, size_t{1} << 40), 5022);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxCacheSize, 65536), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxPinnedMemSize, 1 << 20), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetPollMode, true, 8), 0);
	CUfileDrvProps_t props;
	ASSERT_EQ(code(lib().cuFileDriverGetProperties, &props), 0);
	EXPECT_EQ(props.nvfs.max_direct_io_size, 1024u);
	EXPECT_EQ(props.max_device_cache_size, 65536u);
	EXPECT_EQ(props.max_device_pinned_mem_size, 1u << 20);
	EXPECT_EQ(props.nvfs.poll_thresh_size, 8u);
	EXPECT_EQ(props.nvfs.dcontrolflags, 3u);
}

TEST_F(Cufile, Version)
{
	int version = 0;
	EXPECT_EQ(code(lib().cuFileGetVersion, &version), 0);
	EXPECT_EQ(version, 1150);
	EXPECT_EQ(code(lib().cuFileGetVersion, nullptr), 5022);
}

TEST_F(Cufile, BarSize)
{
	size_t kb = 0;
	EXPECT_EQ(code(lib().cuFileGetBARSizeInKB, 0, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileGetBARSizeInKB, -1, &kb), 5022);
	EXPECT_EQ(code(lib().cuFileGetBARSizeInKB, 2, &kb), 5022) << "there are two";
	EXPECT_EQ(code(lib().cuFileGetBARSizeInKB, 0, &kb), 5029) << "no such function on this machine";
}

// Files

TEST_F(Cufile, AFileIsRegisteredOnce)
{
	const int fd = open_file("f", "x");
	CUfileHandle_t fh, again;
	EXPECT_EQ(add(fd, fh), 0);
	EXPECT_EQ(add(fd, again), 5028);
	lib().cuFileHandleDeregister(fh);
	EXPECT_EQ(add(fd, again), 0);
	EXPECT_NE(fh, again) << "an old handle must not name a new file";
}

TEST_F(Cufile, ADescriptorThatIsAnotherFilesNow)
{
	CUfileHandle_t fh, other;
	const int fd = open_file("f", "first");
	ASSERT_EQ(add(fd, fh), 0);
	const int second = open_file("g", "second");
	ASSERT_EQ(dup2(second, fd), fd);
	EXPECT_EQ(add(fd, other), 0);
	char bytes[8] = {};
	EXPECT_EQ(read(fh, bytes, 8, 0), 5) << "the first keeps its file";
	EXPECT_EQ(std::string(bytes, 5), "first");
	EXPECT_EQ(read(other, bytes, 8, 0), 6);
}

// The library has its own open file description, so flags that the program sets later do not affect it.
TEST_F(Cufile, FlagsThatAProgramSetsLater)
{
	const int fd = open_file("f", std::string(8192, 'a'));
	CUfileHandle_t fh;
	ASSERT_EQ(add(fd, fh), 0);
	ASSERT_EQ(fcntl(fd, F_SETFL, O_APPEND), 0);
	std::string text = "not at the end";
	EXPECT_EQ(write(fh, text.data(), text.size(), 100), static_cast<ssize_t>(text.size()));
	EXPECT_EQ(content("f"), std::string(100, 'a') + text + std::string(8192 - 100 - text.size(), 'a'));
	if (!fcntl(fd, F_SETFL, O_DIRECT)) {
		char bytes[20] = {};
		EXPECT_EQ(read(fh, bytes, 14, 100), 14);
		EXPECT_EQ(bytes, text);
	}
	// A lock of the program is released when the program closes the file.
	ASSERT_EQ(flock(fd, LOCK_EX), 0);
	close(fd);
	const int other = open(path("f").c_str(), O_RDWR | O_CLOEXEC);
	EXPECT_EQ(flock(other, LOCK_EX | LOCK_NB), 0) << "the library has kept it";
	close(other);
}

TEST_F(Cufile, FilesThatCannotBeRegistered)
{
	CUfileHandle_t fh = nullptr;
	CUfileDescr_t d = descr(0);
	EXPECT_EQ(code(lib().cuFileHandleRegister, nullptr, &d), 5022);
	EXPECT_EQ(code(lib().cuFileHandleRegister, &fh, nullptr), 5022);
	EXPECT_EQ(add(-1, fh), 5022);
	EXPECT_EQ(add(9999, fh), 5022);
	EXPECT_EQ(add(open_file("append", "x", O_WRONLY | O_APPEND), fh), 5019);
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC), dir = open("/tmp", O_RDONLY | O_CLOEXEC);
	EXPECT_EQ(add(null, fh), 5018);
	EXPECT_EQ(add(dir, fh), 5018);
	int ends[2];
	ASSERT_EQ(pipe(ends), 0);
	EXPECT_EQ(add(ends[0], fh), 5018);
	for (const int fd : {null, dir, ends[0], ends[1]})
		close(fd);
	const int fd = open_file("f", "x");
	for (const int type : {2, 3, 7, 0, -1})
		EXPECT_EQ(add(fd, fh, type), 5008) << type;
	const int path_only = open(path("f").c_str(), O_PATH | O_CLOEXEC);
	EXPECT_EQ(add(path_only, fh), 5019);
	close(path_only);
	EXPECT_EQ(fh, nullptr) << "nothing is written on failure";
}

TEST_F(Cufile, AFileOfAMemoryFileSystemWithoutUdev)
{
	const int fd = memfd_create("f", MFD_CLOEXEC);
	ASSERT_EQ(pwrite(fd, "hello", 5, 0), 5);
	CUfileHandle_t fh;
	ASSERT_EQ(add(fd, fh), 0) << "the original refuses it, 5027";
	Device memory(4096);
	EXPECT_EQ(read(fh, memory.get(), 4096, 0), 5);
	EXPECT_EQ(memory.bytes(0, 5), "hello");
	close(fd);
}

TEST_F(Cufile, TheProgramMayCloseItsDescriptor)
{
	const CUfileHandle_t fh = handle("f", "hello");
	close(fds_.back());
	fds_.pop_back();
	Device memory(4096);
	EXPECT_EQ(read(fh, memory.get(), 5, 0), 5);
}

#ifndef __SANITIZE_THREAD__ // in the child it takes the stand-in's lock for held
TEST_F(Cufile, StandardInputIsLeftAlone)
{
	// A child without standard streams: the library's descriptors must not take the numbers 0 to 2.
	const int fd = open_file("f", "hello");
	const pid_t child = fork();
	if (!child) {
		close(0);
		close(1);
		CUfileHandle_t fh;
		Device memory(4096);
		int bad = add(fd, fh) != 0;
		bad |= read(fh, memory.get(), 5, 0) != 5;
		bad |= fcntl(0, F_GETFD) != -1 || fcntl(1, F_GETFD) != -1;
		lib().cuFileDriverClose_v2();
		bad |= fcntl(fd, F_GETFD) == -1;
		_exit(bad);
	}
	int status;
	waitpid(child, &status, 0);
	EXPECT_EQ(status, 0);
}
#endif

TEST_F(Cufile, NothingIsWrittenToTheWorkingDirectory)
{
	const fs::path before = fs::current_path();
	fs::create_directories(path("cwd"));
	fs::current_path(path("cwd"));
	setenv("CUFILE_LOGGING_LEVEL", "TRACE", 1);
	{
		capture_stderr();
		const CUfileHandle_t fh = handle("f", "hello");
		Device memory(4096);
		EXPECT_EQ(read(fh, memory.get(), 5, 0), 5);
		lib().cuFileDriverClose_v2();
		EXPECT_NE(testing::internal::GetCapturedStderr().find("not direct"), std::string::npos);
	}
	unsetenv("CUFILE_LOGGING_LEVEL");
	EXPECT_TRUE(fs::is_empty(path("cwd")));
	fs::current_path(before);
}

TEST_F(Cufile, TheLogGoesWhereItIsAskedTo)
{
	setenv("CUFILE_LOGGING_LEVEL", "WARN", 1);
	setenv("CUFILE_LOGFILE_PATH", path("my.log").c_str(), 1);
	const CUfileHandle_t fh = handle("f", "hello");
	Device memory(4096);
	for (int i = 0; i < 5; i++)
		EXPECT_EQ(read(fh, memory.get(), 5, 0), 5);
	lib().cuFileDriverClose_v2();
	unsetenv("CUFILE_LOGGING_LEVEL");
	unsetenv("CUFILE_LOGFILE_PATH");
	const std::string log = content("my.log");
	EXPECT_NE(log.find(" WARN   peerdma-accounting:"), std::string::npos) << log;
	EXPECT_NE(log.find("not direct"), std::string::npos) << log;
	EXPECT_EQ(log.find("not direct"), log.rfind("not direct")) << "said once: " << log;
	EXPECT_NE(log.find("[pid=" + std::to_string(getpid()) + " tid="), std::string::npos) << log;
}

TEST_F(Cufile, AHandleThatIsNotRegistered)
{
	Device memory(4096);
	const CUfileHandle_t fh = handle("f", "hello");
	EXPECT_EQ(read(nullptr, memory.get(), 1, 0), -5027);
	EXPECT_EQ(read(&memory, memory.get(), 1, 0), -5027);
	lib().cuFileHandleDeregister(fh);
	EXPECT_EQ(read(fh, memory.get(), 1, 0), -5027);
	EXPECT_EQ(write(fh, memory.get(), 1, 0), -5027);
	lib().cuFileHandleDeregister(fh);
	lib().cuFileHandleDeregister(nullptr);
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(read(fh, memory.get(), 1, 0), -5027) << "the driver is closed";
	EXPECT_EQ(lib().cuFileUseCount(), 0);
}

// Buffers

TEST_F(Cufile, Buffers)
{
	Device memory(8192);
	char host[64];
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 8192, 0), 0);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 8192, 0), 5023);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get() + 1, 100, 0), 0);
	EXPECT_EQ(code(lib().cuFileBufRegister, nullptr, 100, 0), 5022);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get() + 2, 0, 0), 5022);
	EXPECT_EQ(code(lib().cuFileBufRegister, host, sizeof(host), 0), 0);
	EXPECT_EQ(code(lib().cuFileBufDeregister, host), 0);
	EXPECT_EQ(code(lib().cuFileBufDeregister, host), 5024);
	EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get() + 5), 5024);
	EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get()), 0);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 8192, CU_FILE_RDMA_REGISTER), 0);
}

TEST_F(Cufile, WhatLeavesItsAllocationIsNotRegistered)
{
	Device memory(65536);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 65537, 0), 5014);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get() + 1, 65536, 0), 5014);
	// hipFile's tests register such lengths; the original accepts them.
	for (const size_t beyond : {size_t{1} << 40, size_t{1} << 63, SIZE_MAX - 4095, SIZE_MAX})
		EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), beyond, 0), 5014) << beyond;
	EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get()), 5024);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get() + 1, 65535, 0), 0);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 65536, 0), 0);
}

TEST_F(Cufile, ARegisteredBufferHasAnEnd)
{
	Device memory(65536);
	const CUfileHandle_t fh = handle("f", pattern(65536));
	ASSERT_EQ(code(lib().cuFileBufRegister, memory.get(), 8192, 0), 0);
	EXPECT_EQ(read(fh, memory.get(), 8192, 0), 8192);
	EXPECT_EQ(read(fh, memory.get(), 8193, 0), -5017);
	EXPECT_EQ(read(fh, memory.get(), 4096, 0, 4097), -5017);
	EXPECT_EQ(read(fh, memory.get(), 4096, 0, 4096), 4096);
	EXPECT_EQ(write(fh, memory.get(), 8193, 0), -5017);
	EXPECT_EQ(read(fh, memory.get() + 4096, 8192, 0), 8192)
		<< "an address inside is as good as one that is not registered";
	EXPECT_TRUE(memory.untouched(12288, 65536));
}

// Reading

TEST_F(Cufile, ReadsAtTheEndOfAFile)
{
	const std::string bytes = pattern(10000);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(32768);
	EXPECT_EQ(read(fh, memory.get(), 20000, 0), 10000);
	EXPECT_EQ(memory.bytes(0, 10000), bytes);
	EXPECT_TRUE(memory.untouched(10000, 32768));
	EXPECT_EQ(read(fh, memory.get(), 4096, 8192), 1808);
	EXPECT_EQ(read(fh, memory.get(), 100, 9999), 1);
	EXPECT_EQ(read(fh, memory.get(), 100, 10000), 0);
	EXPECT_EQ(read(fh, memory.get(), 100, off_t{1} << 40), 0);
	EXPECT_EQ(read(fh, memory.get(), 0, 0), 0);
}

TEST_F(Cufile, WhatIsWrongWithARead)
{
	const CUfileHandle_t fh = handle("f", pattern(10000));
	const CUfileHandle_t only_write = handle("w", pattern(10), O_WRONLY);
	const CUfileHandle_t only_read = handle("r", pattern(10), O_RDONLY);
	Device memory(8192);
	EXPECT_EQ(read(fh, memory.get(), 10, -1), -5022);
	EXPECT_EQ(read(fh, memory.get(), 10, 0, -1), -5022);
	EXPECT_EQ(read(fh, memory.get(), 10, INT64_MAX), -5022);
	EXPECT_EQ(read(only_write, memory.get(), 10, 0), -5019);
	EXPECT_EQ(write(only_read, memory.get(), 10, 0), -EIO);
	EXPECT_EQ(read(fh, reinterpret_cast<void *>(uintptr_t{0x1000}), 10, 0), -1) << "CUDA's invalid value";
	EXPECT_EQ(read(fh, nullptr, 10, 0), -EINVAL);
	EXPECT_EQ(read(fh, memory.get(), 100, 0, 8100), -EIO) << "beyond the allocation";
	EXPECT_EQ(read(fh, memory.get(), 10, 0), 10) << "and all goes on";
}

TEST_F(Cufile, ErrnoIsOnlyTouchedByFailures)
{
	const CUfileHandle_t fh = handle("f", pattern(100));
	Device memory(4096);
	errno = 4711;
	EXPECT_EQ(lib().cuFileRead(fh, memory.get(), 100, 0, 0), 100);
	EXPECT_EQ(errno, 4711);
	lib().cuFileBufDeregister(memory.get());
	EXPECT_EQ(errno, 4711);
}

#ifndef __SANITIZE_THREAD__ // each takes half a minute with it
struct Shape {
	size_t size;
	off_t file, buffer;
};

class Shapes : public Cufile
{
protected:
	// Sizes around each boundary: blocks, slabs, the pieces of threads, bounce buffers.
	static std::vector<Shape> all()
	{
		std::vector<Shape> shapes;
		for (const size_t size :
		     {1ul, 3ul, 511ul, 512ul, 4095ul, 4096ul, 4097ul, 65536ul, 262143ul, 262144ul, 524287ul, 524288ul,
		      524289ul, 1048576ul, 1048577ul, 4194304ul, 5000000ul, 8400000ul})
			for (const off_t file : {0l, 1l, 4095l, 4096l, 500000l, 1572864l})
				for (const off_t buffer : {0l, 3l, 4096l})
					shapes.push_back({size, file, buffer});
		return shapes;
	}
};

TEST_F(Shapes, EveryReadIsRight)
{
	const std::string bytes = pattern(9000000);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(9000000);
	for (const auto &[size, file, buffer] : all()) {
		memory.fill(0x77);
		const size_t there = std::min(size, bytes.size() - static_cast<size_t>(file));
		const auto at = static_cast<size_t>(buffer);
		ASSERT_EQ(read(fh, memory.get(), size, file, buffer), static_cast<ssize_t>(there))
			<< size << ' ' << file;
		ASSERT_TRUE(memory.bytes(at, there) == bytes.substr(static_cast<size_t>(file), there))
			<< size << ' ' << file;
		ASSERT_TRUE(memory.untouched(0, at)) << size << ' ' << file;
		ASSERT_TRUE(memory.untouched(at + there, std::min<size_t>(9000000, at + there + 8192)))
			<< size << ' ' << file;
	}
}

TEST_F(Shapes, EveryWriteIsRight)
{
	const std::string bytes = pattern(9000000, 2);
	Device memory(9000000);
	memory.put(bytes);
	const CUfileHandle_t fh = handle("f", "");
	for (const auto &[size, file, buffer] : all()) {
		fs::resize_file(path("f"), 0);
		fs::resize_file(path("f"), 20000);
		ASSERT_EQ(write(fh, memory.get(), size, file, buffer), static_cast<ssize_t>(size))
			<< size << ' ' << file;
		std::string expected(std::max<size_t>(20000, static_cast<size_t>(file) + size), '\0');
		expected.replace(static_cast<size_t>(file), size, bytes, static_cast<size_t>(buffer), size);
		ASSERT_TRUE(content("f") == expected) << size << ' ' << file << ' ' << buffer;
	}
}

TEST_F(Shapes, PastThePageCache)
{
	if (!has_direct())
		GTEST_SKIP() << "no O_DIRECT here";
	const std::string bytes = pattern(6000001), others = pattern(6000001, 3);
	const CUfileHandle_t fh = handle("f", bytes, O_RDWR | O_DIRECT);
	Device memory(6000001), source(6000001);
	source.put(others);
	std::string expected = bytes;
	for (const auto &[size, file, buffer] : all()) {
		if (size > 5000000 || static_cast<size_t>(file) + size > bytes.size() + 5000)
			continue;
		const size_t there = std::min(size, bytes.size() - static_cast<size_t>(file));
		ASSERT_EQ(read(fh, memory.get(), size, file, buffer), static_cast<ssize_t>(there))
			<< size << ' ' << file;
		ASSERT_TRUE(memory.bytes(static_cast<size_t>(buffer), there) ==
			    expected.substr(static_cast<size_t>(file), there))
			<< size << ' ' << file;
		ASSERT_EQ(write(fh, source.get(), there, file, buffer), static_cast<ssize_t>(there))
			<< size << ' ' << file;
		expected.replace(static_cast<size_t>(file), there, others, static_cast<size_t>(buffer), there);
	}
	EXPECT_TRUE(content("f") == expected);
}
#endif

TEST_F(Cufile, PastThePageCacheOneThreadIsEnough)
{
	if (!has_direct())
		GTEST_SKIP() << "no O_DIRECT here";
	const std::string bytes = pattern(40000001);
	const CUfileHandle_t fh = handle("f", bytes, O_RDONLY | O_DIRECT);
	Device memory(40000001);
	EXPECT_EQ(read(fh, memory.get(), 1 << 20, 0), 1 << 20);
	const std::vector<int> descriptors = ring_descriptors();
	if (descriptors.empty())
		GTEST_SKIP() << "no io_uring here";
	EXPECT_EQ(descriptors.size(), 1u);
	EXPECT_GT(descriptors[0], 2);
	EXPECT_EQ(fcntl(descriptors[0], F_GETFD), FD_CLOEXEC);
	for (const off_t from : {0, 1, 4095, 1 << 20}) {
		const size_t there = bytes.size() - static_cast<size_t>(from);
		memory.fill(0x77);
		EXPECT_EQ(read(fh, memory.get(), 40000001, from), static_cast<ssize_t>(there));
		EXPECT_TRUE(memory.bytes(0, there) == bytes.substr(static_cast<size_t>(from))) << from;
		EXPECT_TRUE(memory.untouched(there, bytes.size())) << from;
	}
	EXPECT_EQ(count_threads("peerdma-io"), 0);
	EXPECT_LE(ring_descriptors().size(), 2u) << "one a buffer";
	lib().cuFileDriverClose_v2();
	EXPECT_TRUE(ring_descriptors().empty());
}

TEST_F(Cufile, PastThePageCacheFromManyThreads)
{
	if (!has_direct())
		GTEST_SKIP() << "no O_DIRECT here";
	const std::string bytes = pattern(8000000);
	const CUfileHandle_t fh = handle("f", bytes, O_RDONLY | O_DIRECT);
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (int t = 0; t < 10; t++)
		threads.emplace_back([&, t] {
			Device memory(4000000, t % 2);
			for (int i = 0; i < 5; i++) {
				const off_t from = t * 50000 + i * 512;
				memory.fill(0x77);
				good += read(fh, memory.get(), 4000000, from) == 4000000 &&
					memory.bytes(0, 4000000) == bytes.substr(static_cast<size_t>(from), 4000000);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 50);
}

TEST_F(Cufile, AWriteBeyondTheEndExtendsTheFile)
{
	const CUfileHandle_t fh = handle("f", pattern(10000));
	Device memory(4096);
	EXPECT_EQ(write(fh, memory.get(), 4096, 12288), 4096);
	EXPECT_EQ(fs::file_size(path("f")), 16384u);
}

TEST_F(Cufile, AnyKindOfMemory)
{
	const std::string bytes = pattern(300000);
	const CUfileHandle_t fh = handle("f", bytes);
	for (const int kind : {0, 1, 2}) {
		for (const int device : {0, 1}) {
			Device memory(300000, device, kind);
			EXPECT_EQ(read(fh, memory.get(), 300000, 0), 300000) << kind << ' ' << device;
			EXPECT_TRUE(memory.bytes(0, 300000) == bytes) << kind << ' ' << device;
		}
	}
	std::string host(300000, '\0');
	EXPECT_EQ(read(fh, host.data(), host.size(), 0), 300000);
	EXPECT_TRUE(host == bytes);
	EXPECT_EQ(write(fh, host.data(), 1000, 300000), 1000);
	EXPECT_TRUE(content("f") == bytes + bytes.substr(0, 1000));
}

TEST_F(Cufile, SystemMemoryMayBeForbidden)
{
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, false), 0);
	const CUfileHandle_t fh = handle("f", "hello");
	char host[8];
	EXPECT_EQ(read(fh, host, 5, 0), -5013);
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, true), 0);
}

TEST_F(Cufile, FromThreadsWithoutAContext)
{
	const std::string bytes = pattern(2000000);
	const CUfileHandle_t fh = handle("f", bytes);
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (int i = 0; i < 12; i++) {
		threads.emplace_back([&, i] {
			fake_set_current(i % 3 - 1);
			Device memory(2000000, i % 2);
			for (int n = 0; n < 8; n++) {
				memory.fill(0x77);
				good += read(fh, memory.get(), 2000000 - 1000, 1000) == 2000000 - 1000 &&
					memory.bytes(0, 1999000) == bytes.substr(1000);
			}
		});
	}
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 96);
}

TEST_F(Cufile, TheThreadsContextStaysWhatItWas)
{
	const auto current = reinterpret_cast<int (*)(void **)>(dlsym(lib().cuda, "cuCtxGetCurrent"));
	const CUfileHandle_t fh = handle("f", pattern(3000000));
	Device memory(3000000), other(3000000, 1);
	for (const int device : {-1, 0, 1}) {
		fake_set_current(device);
		void *before = nullptr, *after = nullptr;
		current(&before);
		for (const size_t size : {100u, 3000000u}) {
			EXPECT_EQ(read(fh, memory.get(), size, 0), static_cast<ssize_t>(size));
			EXPECT_EQ(write(fh, other.get(), size, 0), static_cast<ssize_t>(size));
			current(&after);
			EXPECT_EQ(before, after) << device << ' ' << size;
		}
		fake_fail("cuMemcpyHtoDAsync_v2", 0, 700);
		EXPECT_EQ(read(fh, memory.get(), 100, 0), -EIO);
		current(&after);
		EXPECT_EQ(before, after) << "after a failure";
	}
}

TEST_F(Cufile, WhereCudaWasNotInitializedAllIsHostMemory)
{
	fake_initialized(0);
	const CUfileHandle_t fh = handle("f", "hello");
	char host[8] = {};
	EXPECT_EQ(read(fh, host, 5, 0), 5);
	EXPECT_STREQ(host, "hello");
	fake_initialized(1);
}

TEST_F(Cufile, AFailureOfTheDriversIsAnError)
{
	const std::string bytes = pattern(5000000);
	const CUfileHandle_t fh = handle("f", bytes);
	// O_DIRECT reads through a ring as well.
	std::vector<int> files = {fds_[0]};
	if (has_direct())
		files.push_back(open(path("f").c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
	fds_ = files;
	Device memory(5000000);
	for (const char *name :
	     {"cuMemcpyHtoDAsync_v2", "cuStreamSynchronize", "cuStreamCreateWithPriority", "cuEventCreate"}) {
		lib().cuFileDriverClose_v2();
		CUfileHandle_t again;
		ASSERT_EQ(add(fds_[0], again), 0);
		fake_fail(name, 0, 700);
		EXPECT_EQ(read(again, memory.get(), 1000, 0), -EIO) << name;
		EXPECT_EQ(read(again, memory.get(), 1000, 0), 1000) << name;
	}
	for (const int fd : files) {
		for (const char *name : {"cuMemcpyHtoDAsync_v2", "cuEventSynchronize", "cuEventRecord"}) {
			CUfileHandle_t again;
			lib().cuFileDriverClose_v2();
			ASSERT_EQ(add(fd, again), 0);
			for (int after = 0; after < 12; after++) {
				fake_fail(name, after, 700);
				const ssize_t n = read(again, memory.get(), 5000000, 0);
				EXPECT_TRUE(n == -EIO || n == 5000000) << name << ' ' << n;
				EXPECT_TRUE(n < 0 || memory.bytes(0, 5000000) == bytes);
			}
			fake_fail(name, 1 << 30, 0);
		}
	}
	(void)fh;
}

TEST_F(Cufile, WithoutPinnedMemoryItIsSlowerAndRight)
{
	const std::string bytes = pattern(3000000);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(3000000);
	fake_fail("cuMemHostAlloc", 0, 2);
	EXPECT_EQ(read(fh, memory.get(), 1000, 0), 1000);
	EXPECT_TRUE(memory.bytes(0, 1000) == bytes.substr(0, 1000));
}

TEST_F(Cufile, ALittlePoolIsEnough)
{
	const size_t sizes[] = {4}, counts[] = {1};
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 1), 0);
	const std::string bytes = pattern(3000000);
	const CUfileHandle_t fh = handle("f", bytes);
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&, i] {
			Device memory(3000000, i % 2);
			good += read(fh, memory.get(), 3000000, 0) == 3000000 && memory.bytes(0, 3000000) == bytes;
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 8);
	EXPECT_LE(fake_live(), 10) << "one buffer: a stream, eight events, one allocation";
	lib().cuFileDriverClose_v2();
	const size_t old_sizes[] = {4, 1024, 16384}, old_counts[] = {128, 64, 64};
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, old_sizes, old_counts, 3), 0);
}

TEST_F(Cufile, NoThreadIsLeftWhenIdle)
{
	const CUfileHandle_t fh = handle("f", pattern(4000000));
	Device memory(4000000);
	EXPECT_EQ(read(fh, memory.get(), 4000000, 0), 4000000);
	for (int i = 0; i < 100 && count_threads("peerdma-io"); i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
	EXPECT_EQ(count_threads("peerdma-io"), 0);
}

#ifndef __SANITIZE_THREAD__ // it has a thread of its own, which is counted
// Counts all threads of the process. The library starts at most the configured number; io_uring has no more workers
// than it creates for each reading thread. Idle, the library has no threads.
TEST_F(Cufile, ThreadsUnderLoadAndWhenIdle)
{
	constexpr int helpers = 4; // default of max_io_threads
	const std::string bytes = pattern(16 << 20);
	const CUfileHandle_t cached = handle("f", bytes);
	const CUfileHandle_t past = has_direct() ? handle("g", bytes, O_RDONLY | O_DIRECT) : cached;
	Device memory(bytes.size());
	ASSERT_EQ(read(past, memory.get(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
	// A new thread appears before its name is set, so use the last name seen.
	std::vector<std::map<int, std::string>> seen;
	std::atomic<bool> over{false};
	std::thread watcher([&] {
		while (!over)
			seen.push_back(all_threads());
	});
	for (int round = 0; round < 8; round++) {
		EXPECT_EQ(read(round % 2 ? past : cached, memory.get(), bytes.size(), 0),
			  static_cast<ssize_t>(bytes.size()));
		CUfileBatchHandle_t batch = nullptr;
		std::vector<CUfileIOParams_t> ios(64);
		std::vector<CUfileIOEvents_t> events(64);
		unsigned nr = 64;
		for (unsigned i = 0; i < nr; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].fh = i % 3 ? past : cached;
			ios[i].u.batch = {memory.get(), i * 65536, i * 65536, 65536};
		}
		EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &batch, nr), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOSubmit, batch, nr, ios.data(), 0u), 0);
		EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, batch, nr, &nr, events.data(), nullptr), 0);
		lib().cuFileBatchIODestroy(batch);
	}
	over = true;
	watcher.join();
	std::map<int, std::string> names;
	for (const auto &now : seen)
		for (const auto &[thread, name] : now)
			names[thread] = name;
	std::map<std::string, int> most;
	for (const auto &now : seen) {
		std::map<std::string, int> count;
		for (const auto &[thread, name] : now)
			count[names[thread]]++;
		for (const auto &[name, n] : count)
			most[name] = std::max(most[name], n);
	}
	const auto cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
	EXPECT_GT(most["peerdma-io"], 0) << "there was no load";
	EXPECT_LE(most["peerdma-io"], helpers);
	EXPECT_LE(most["iou-wrk"], (helpers + 1) * 4 * cpus);
	for (const char *known : {"peerdma-io", "iou-wrk", "fake-stream"}) // fake-stream is the stand-in driver's
		most.erase(known);
	ASSERT_EQ(most.size(), 1u) << most.rbegin()->first;
	EXPECT_EQ(most.begin()->second, 2) << "this one and the watcher";

	// With the driver open and its rings idle. The kernel keeps one worker for each thread that has read (before
	// Linux 7.0 for that thread's lifetime); the others exit after 5 s.
	std::map<std::string, int> left;
	for (int i = 0; i < 120; i++) {
		left.clear();
		for (const auto &[thread, name] : all_threads())
			left[name]++;
		if (!left.contains("peerdma-io") && left["iou-wrk"] <= 1)
			break;
		std::this_thread::sleep_for(std::chrono::milliseconds(100));
	}
	EXPECT_FALSE(left.contains("peerdma-io"));
	EXPECT_LE(left["iou-wrk"], 1);
	left.erase("iou-wrk");
	left.erase("fake-stream");
	EXPECT_EQ(left.size(), 1u) << left.rbegin()->first;
	EXPECT_EQ(left.begin()->second, 1) << "this thread alone";
}
#endif

TEST_F(Cufile, Vectors)
{
	const std::string bytes = pattern(100000);
	const CUfileHandle_t fh = handle("f", bytes);
	Device memory(50000), other(50000);
	std::string host(1000, '\0');
	const CUfileIOVec_t vector[] = {{memory.get(), 10},
					{other.get() + 5, 40000},
					{nullptr, 0},
					{host.data(), 1000},
					{memory.get() + 20000, 5000}};
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 5, 100, 0)), 46010);
	EXPECT_EQ(memory.bytes(0, 10), bytes.substr(100, 10));
	EXPECT_TRUE(other.bytes(5, 40000) == bytes.substr(110, 40000));
	EXPECT_EQ(host, bytes.substr(40110, 1000));
	EXPECT_TRUE(memory.bytes(20000, 5000) == bytes.substr(41110, 5000));
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 5, 99990, 0)), 10) << "the end of the file";
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 0, 0, 0)), 0);
	EXPECT_EQ(told(lib().cuFileReadv(fh, nullptr, 1, 0, 0)), -5022);
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 5, -1, 0)), -5022);
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 5, 0, 1)), -5022) << "an unknown flag";
	EXPECT_EQ(told(lib().cuFileWritev(fh, vector, 5, 200000, 0)), 46010);
	EXPECT_TRUE(content("f").substr(200000) ==
		    memory.bytes(0, 10) + other.bytes(5, 40000) + host + memory.bytes(20000, 5000));
	EXPECT_EQ(told(lib().cuFileWritev(nullptr, vector, 5, 0, 0)), -5027);
}

// Userspace file systems

TEST_F(Cufile, AFileSystemOfTheProgramsOwn)
{
	Shelf shelf{pattern(2000000)};
	shelf.most = 70000;
	CUfileFSOps_t ops = {};
	ops.read = shelf_read;
	ops.write = shelf_write;
	CUfileDescr_t d = descr(ops, &shelf);
	d.fs_ops = nullptr;
	CUfileHandle_t fh;
	EXPECT_EQ(code(lib().cuFileHandleRegister, &fh, &d), 5008) << "without functions";
	d.fs_ops = &ops;
	ASSERT_EQ(code(lib().cuFileHandleRegister, &fh, &d), 0);
	Device memory(2000000);
	EXPECT_EQ(read(fh, memory.get(), 2000000, 1000), 1999000);
	EXPECT_TRUE(memory.bytes(0, 1999000) == shelf.bytes.substr(1000));
	EXPECT_EQ(write(fh, memory.get(), 5000, 1999000), 5000);
	EXPECT_TRUE(shelf.bytes.substr(1999000) == memory.bytes(0, 5000));
	shelf.fail = -EROFS;
	EXPECT_EQ(read(fh, memory.get(), 10, 0), -EROFS) << "-errno";
	EXPECT_EQ(write(fh, memory.get(), 10, 0), -ENOSPC) << "-1 and errno";
	ops.write = nullptr;
	CUfileHandle_t reader;
	ASSERT_EQ(code(lib().cuFileHandleRegister, &reader, &d), 0);
	EXPECT_EQ(write(reader, memory.get(), 10, 0), -EIO);
}

ssize_t gap_read(const void *, char *to, size_t size, off_t from, const cufileRDMAInfo_t *)
{
	// The file ends at 1 MiB and has data again from 1.5 MiB on, like a file that grows during the read.
	constexpr off_t end = 1 << 20, again = 3 << 19;
	if (from >= end && from < again)
		return 0;
	const size_t n = from < end ? std::min(size, static_cast<size_t>(end - from)) : size;
	std::memset(to, 'x', n);
	return static_cast<ssize_t>(n);
}

TEST_F(Cufile, WhatFollowsTheEndIsNotCounted)
{
	CUfileFSOps_t ops = {};
	ops.read = gap_read;
	CUfileDescr_t d = descr(ops);
	CUfileHandle_t fh;
	ASSERT_EQ(code(lib().cuFileHandleRegister, &fh, &d), 0);
	Device memory(4 << 20);
	EXPECT_EQ(read(fh, memory.get(), 4 << 20, 0), 1 << 20);
	EXPECT_EQ(read(fh, memory.get(), (4 << 20) - 5, 5), (1 << 20) - 5);
}

// Batches

TEST_F(Batches, EachIsToldOnceAndRight)
{
	const auto id = set_up(128);
	for (int round = 0; round < 5; round++) {
		memory_.fill(0x77);
		std::vector<CUfileIOParams_t> ios;
		for (unsigned i = 0; i < 64; i++)
			ios.push_back(io(32000 + i, i * 64000, i * 65536, 100 + i));
		ASSERT_EQ(submit(id, ios), 0);
		const auto all = fetch(id, 64);
		ASSERT_EQ(all.size(), 64u);
		for (unsigned i = 0; i < 64; i++) {
			EXPECT_EQ(all.at(100 + i).status, CUFILE_COMPLETE);
			EXPECT_EQ(all.at(100 + i).ret, 32000u + i);
			EXPECT_TRUE(memory_.bytes(i * 65536, 32000 + i) == bytes_.substr(i * 64000, 32000 + i)) << i;
		}
	}
	CUfileIOEvents_t event;
	unsigned n = 1;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, &event, nullptr), 0);
	EXPECT_EQ(n, 0u) << "nothing is left";
}

// The GPU starts copies with a delay.
TEST_F(Batches, WhatLiesTogetherIsOneCopy)
{
	const auto id = set_up(64);
	const auto ask = [&](unsigned n, size_t size, off_t apart) {
		std::vector<CUfileIOParams_t> ios;
		for (unsigned i = 0; i < n; i++)
			ios.push_back(io(size, i * size, i * (size + apart), i));
		EXPECT_EQ(submit(id, ios), 0);
		const auto all = fetch(id, n);
		unsigned good = 0;
		for (const auto &[cookie, event] : all)
			good += event.status == CUFILE_COMPLETE && event.ret == size;
		return good;
	};
	// A second copy would fail.
	fake_fail("cuMemcpyHtoDAsync_v2", 1, 700);
	EXPECT_EQ(ask(8, 65536, 0), 8u);
	EXPECT_TRUE(memory_.bytes(0, 8 * 65536) == bytes_.substr(0, 8 * 65536));
	EXPECT_EQ(ask(1, 65536, 0), 0u) << "that one";
	// Separate ranges are copied in one call.
	EXPECT_EQ(ask(8, 65536, 4096), 8u);
	for (unsigned i = 0; i < 8; i++)
		EXPECT_TRUE(memory_.bytes(i * (65536 + 4096), 65536) == bytes_.substr(i * 65536, 65536)) << i;
	fake_fail("cuMemcpyBatchAsync_v2", 0, 700);
	EXPECT_EQ(ask(8, 65536, 4096), 0u);
	EXPECT_EQ(ask(8, 65536, 4096), 8u) << "and goes on";
}

TEST_F(Batches, WritesAndReadsAndLongOnes)
{
	const auto id = set_up(8);
	const std::string others = pattern(4 << 20, 9);
	memory_.put(others);
	std::vector<CUfileIOParams_t> ios = {io(2000000, 0, 0, 1, CUFILE_WRITE),
					     io(7, 3000000, 2000000, 2, CUFILE_WRITE),
					     io(1000000, 4 << 20, 2000007, 3, CUFILE_WRITE)};
	ASSERT_EQ(submit(id, ios), 0);
	const auto all = fetch(id, 3);
	EXPECT_EQ(all.at(1).ret, 2000000u);
	EXPECT_EQ(all.at(3).ret, 1000000u);
	std::string expected = bytes_ + others.substr(2000007, 1000000);
	expected.replace(0, 2000000, others, 0, 2000000);
	expected.replace(3000000, 7, others, 2000000, 7);
	EXPECT_TRUE(content("f") == expected);
}

TEST_F(Batches, ReadsAndWritesOfOneThread)
{
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(code(lib().cuFileSetParameterSizeT, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 1), 0);
	const std::string others = pattern(1 << 20, 7);
	fh_ = handle("g", bytes_);
	const auto id = set_up(64);
	memory_.put(others);
	std::vector<CUfileIOParams_t> ios;
	// More reads than a buffer has slabs, then writes between reads.
	for (unsigned i = 0; i < 48; i++)
		ios.push_back(i < 20 || i % 3 ? io(20000, i * 20000, (1 << 20) + i * 20000, i) :
						io(20000, (2 << 20) + i * 20000, i * 20000, i, CUFILE_WRITE));
	ASSERT_EQ(submit(id, ios), 0);
	EXPECT_EQ(fetch(id, 48).size(), 48u);
	const std::string now = content("g");
	for (unsigned i = 0; i < 48; i++) {
		if (ios[i].opcode == CUFILE_READ)
			EXPECT_TRUE(memory_.bytes((1 << 20) + i * 20000, 20000) == bytes_.substr(i * 20000, 20000))
				<< i;
		else
			EXPECT_TRUE(now.substr((2 << 20) + i * 20000, 20000) == others.substr(i * 20000, 20000)) << i;
	}
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(code(lib().cuFileSetParameterSizeT, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 4), 0);
}

TEST_F(Batches, PastThePageCacheAndThroughIt)
{
	if (!has_direct())
		GTEST_SKIP() << "no O_DIRECT here";
	const CUfileHandle_t direct = handle("g", bytes_, O_RDWR | O_DIRECT), cached = fh_;
	const auto id = set_up(128);
	for (int round = 0; round < 20; round++) {
		memory_.fill(0x77);
		std::vector<CUfileIOParams_t> ios;
		size_t to = 0;
		for (unsigned i = 0; i < 100; i++) {
			fh_ = i % 4 == 3 ? cached : direct;
			const size_t size = i % 20 == 10 ? 600000 + i : i % 3 ? 8192 : 5000 + i;
			ios.push_back(io(size, i % 5 ? i * 32768 : i * 32767, static_cast<off_t>(to), i));
			to += size;
		}
		ASSERT_LE(to, bytes_.size());
		ASSERT_EQ(submit(id, ios), 0);
		const auto all = fetch(id, 100, round % 4 ? 100 : 1); // a thread that waits for all events helps
		ASSERT_EQ(all.size(), 100u);
		for (unsigned i = 0; i < 100; i++) {
			const auto &one = ios[i].u.batch;
			const auto from = static_cast<size_t>(one.file_offset);
			EXPECT_EQ(all.at(i).status, CUFILE_COMPLETE);
			EXPECT_EQ(all.at(i).ret, one.size);
			EXPECT_TRUE(memory_.bytes(static_cast<size_t>(one.devPtr_offset), one.size) ==
				    bytes_.substr(from, one.size))
				<< i;
		}
	}
}

TEST_F(Batches, HowManyThereMayBe)
{
	CUfileBatchHandle_t id = nullptr;
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, 0), 5022);
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, 129), 5022);
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, nullptr, 1), 5022);
	EXPECT_NE(set_up(128), nullptr);
	id = set_up(2);
	std::vector<CUfileIOParams_t> three = {io(10, 0, 0, 1), io(10, 0, 0, 2), io(10, 0, 0, 3)};
	std::vector<CUfileIOParams_t> two(three.begin(), three.end() - 1);
	EXPECT_EQ(submit(id, three), 5040);
	EXPECT_EQ(code(lib().cuFileBatchIOSubmit, id, 0, two.data(), 0), 5040);
	EXPECT_EQ(submit(id, two), 0);
	EXPECT_EQ(submit(id, two), 5040) << "no room before the results are fetched";
	EXPECT_EQ(fetch(id, 2).size(), 2u);
	EXPECT_EQ(submit(id, two), 0);
	EXPECT_EQ(fetch(id, 2).size(), 2u);
}

TEST_F(Batches, AllOrNothing)
{
	const auto id = set_up(8);
	const CUfileHandle_t only_read = handle("r", "x", O_RDONLY);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1), io(10, 0, 0, 2)};
	ios[1].fh = &ios;
	EXPECT_EQ(submit(id, ios), 5040) << "no such file";
	ios[1] = io(10, 0, 0, 2, CUFILE_WRITE);
	ios[1].fh = only_read;
	EXPECT_EQ(submit(id, ios), 5040) << "not open for writing";
	ios[1] = io(10, -1, 0, 2);
	EXPECT_EQ(submit(id, ios), 5040);
	ios[1] = io(10, 0, 0, 2);
	EXPECT_EQ(code(lib().cuFileBatchIOSubmit, nullptr, 2, ios.data(), 0), 5022);
	EXPECT_TRUE(memory_.untouched(0, 100)) << "the first one was not done either";
	CUfileIOEvents_t event;
	unsigned n = 1;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, &event, nullptr), 0);
	EXPECT_EQ(n, 0u);
}

TEST_F(Batches, FlagsMeanNothing)
{
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1)};
	EXPECT_EQ(code(lib().cuFileBatchIOSubmit, id, 1, ios.data(), 1), 0);
	EXPECT_EQ(fetch(id, 1).at(1).ret, 10u);
}

TEST_F(Batches, AnOpcodeThatIsNoneIsTakenAndSaidToBeInvalid)
{
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1, 5), io(10, 0, 0, 2)};
	EXPECT_EQ(submit(id, ios), 0);
	const auto all = fetch(id, 2);
	EXPECT_EQ(all.at(1).status, CUFILE_INVALID);
	EXPECT_EQ(all.at(2).status, CUFILE_COMPLETE);
}

TEST_F(Batches, Status)
{
	const auto id = set_up(8);
	CUfileIOEvents_t events[8];
	unsigned n = 8;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 1, &n, events, nullptr), 0) << "nothing was submitted";
	EXPECT_EQ(n, 0u);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1), io(10, 5 << 20, 0, 2), io(0, 0, 0, 3)};
	EXPECT_EQ(submit(id, ios), 0);
	n = 2;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 3, &n, events, nullptr), 5022)
		<< "more than there is room for";
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, nullptr, 0, &n, events, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, nullptr, events, nullptr), 5022);
	n = 8;
	struct timespec wrong = {0, 1'000'000'000};
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, events, &wrong), 5022);
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 4, &n, events, nullptr), 0) << "more than were submitted";
	ASSERT_EQ(n, 3u);
	for (const auto &event : events)
		if (event.cookie == reinterpret_cast<void *>(2)) {
			EXPECT_EQ(event.status, CUFILE_COMPLETE) << "beyond the end of the file";
			EXPECT_EQ(event.ret, 0u);
			break;
		}
}

TEST_F(Gated, ATimeoutEndsTheWait)
{
	const auto id = set_up(4);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1)};
	ASSERT_EQ(submit(id, ios), 0);
	CUfileIOEvents_t events[4];
	unsigned n = 4;
	struct timespec soon = {0, 30'000'000};
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 1, &n, events, &soon), 0);
	EXPECT_EQ(n, 0u);
	n = 4;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, events, nullptr), 0) << "without waiting";
	EXPECT_EQ(n, 0u);
	gate_.open = 1;
	EXPECT_EQ(fetch(id, 1).at(1).ret, 10u);
}

TEST_F(Gated, WhoWaitsForAllHelps)
{
	const auto id = set_up(64);
	auto ios = reads(64, 1, 10);
	ASSERT_NO_FATAL_FAILURE(begin(id, ios, 4));
	// The gate lets one thread more than the library's through.
	std::thread opener([&] {
		for (int i = 0; i < 5000 && gate_.inside < 5; i++)
			usleep(1000);
		EXPECT_EQ(gate_.inside, 5);
		gate_.open = 1;
	});
	CUfileIOEvents_t events[64];
	unsigned n = 64;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 64, &n, events, nullptr), 0);
	opener.join();
	EXPECT_EQ(n, 64u);
	EXPECT_EQ(memory_.bytes(0, 640), std::string(640, 'g'));
}

TEST_F(Gated, OthersMayFetchWhileOneHelps)
{
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios;
	// Host memory: a request completes when it has been read.
	std::vector<char> memory(80);
	for (unsigned i = 0; i < 8; i++) {
		ios.push_back(io(10, i, 0, i));
		ios.back().u.batch.devPtr_base = memory.data() + i * 10;
	}
	ASSERT_NO_FATAL_FAILURE(begin(id, ios, 4));
	std::atomic<unsigned> seen{0};
	std::thread helper([&] {
		CUfileIOEvents_t events[8];
		unsigned n = 8;
		EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 8, &n, events, nullptr), 0);
		seen += n;
	});
	while (gate_.inside < 5)
		usleep(1000);
	gate_.some = 2;
	CUfileIOEvents_t event;
	unsigned n = 1;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 1, &n, &event, nullptr), 0);
	seen += n;
	gate_.open = 1;
	helper.join();
	EXPECT_EQ(seen, 8u);
}

TEST_F(Gated, WhatHasNotBegunIsCanceled)
{
	const auto id = set_up(64);
	auto ios = reads(64, 1, 1);
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	EXPECT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
	EXPECT_EQ(code(lib().cuFileBatchIOCancel, id), 0) << "once more";
	EXPECT_EQ(code(lib().cuFileBatchIOCancel, nullptr), 5022);
	gate_.open = 1;
	unsigned canceled = 0, complete = 0;
	std::map<uintptr_t, CUfileIOEvents_t> all;
	poll(id, 64, all);
	for (const auto &[cookie, event] : all) {
		canceled += event.status == CUFILE_CANCELED;
		complete += event.status == CUFILE_COMPLETE && event.ret == 10;
		EXPECT_EQ(memory_.bytes(cookie, 1), event.status == CUFILE_COMPLETE ? "g" : memory_.bytes(cookie, 1));
	}
	EXPECT_EQ(canceled + complete, 64u);
	EXPECT_GE(canceled, 50u) << "four threads, of which each may have begun one";
	EXPECT_GE(complete, 1u);
	EXPECT_EQ(submit(id, ios), 0) << "and the batch is as new";
	EXPECT_EQ(fetch(id, 64).size(), 64u);
}

// Reuses a canceled batch, its cookies and its memory without reading the events of the first submission.
TEST_F(Gated, ACanceledBatchIsAsNew)
{
	for (const unsigned capacity : {8u, 16u}) {
		gate_.open = 0;
		const auto before = gate_.inside.load();
		const auto id = set_up(capacity);
		auto ios = reads(8, 1, 16);
		ASSERT_NO_FATAL_FAILURE(begin(id, ios, before + 1));
		EXPECT_EQ(code(lib().cuFileBatchIOCancel, id), 0);
		std::thread opener([&] {
			usleep(50000);
			gate_.open = 1;
		});
		ASSERT_EQ(submit(id, ios), 0) << capacity;
		EXPECT_TRUE(gate_.open) << "what has begun may write to the same places";
		opener.join();
		const auto all = fetch(id, 8);
		ASSERT_EQ(all.size(), 8u);
		for (unsigned i = 0; i < 8; i++) {
			EXPECT_EQ(all.at(i).status, CUFILE_COMPLETE);
			EXPECT_EQ(memory_.bytes(i * 16, 10), std::string(10, 'g')) << i;
		}
		CUfileIOEvents_t more[8];
		unsigned n = 8;
		EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, more, nullptr), 0);
		EXPECT_EQ(n, 0u) << "nothing of the old ones is told";
		lib().cuFileBatchIODestroy(id);
	}
}

TEST_F(Gated, DestroyingWaitsForWhatHasBegun)
{
	CUfileBatchHandle_t id = nullptr;
	ASSERT_EQ(code(lib().cuFileBatchIOSetUp, &id, 8), 0);
	auto ios = reads(8, 1, 1);
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	std::thread opener([&] {
		usleep(50000);
		gate_.open = 1;
	});
	lib().cuFileBatchIODestroy(id);
	EXPECT_TRUE(gate_.open) << "it came back too early";
	opener.join();
	unsigned n = 0;
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, nullptr, nullptr), 5022);
	lib().cuFileBatchIODestroy(id);
	lib().cuFileBatchIODestroy(nullptr);
}

TEST_F(Gated, ClosingWaitsForWhatHasBegun)
{
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1)};
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	std::thread opener([&] {
		usleep(50000);
		gate_.open = 1;
	});
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_TRUE(gate_.open);
	opener.join();
}

TEST_F(Batches, ManyAtOnceFromManyThreads)
{
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (unsigned t = 0; t < 6; t++) {
		threads.emplace_back([&, t] {
			CUfileBatchHandle_t id = nullptr;
			lib().cuFileBatchIOSetUp(&id, 32);
			Device memory(32 * 20000, t % 2);
			for (int round = 0; round < 4; round++) {
				std::vector<CUfileIOParams_t> ios;
				for (unsigned i = 0; i < 32; i++) {
					ios.push_back(io(20000, i * 30000 + t, i * 20000, i));
					ios.back().u.batch.devPtr_base = memory.get();
				}
				if (submit(id, ios))
					return;
				unsigned done = 0;
				while (done < 32) {
					// As programs poll: minimum 0 and timeout zero.
					CUfileIOEvents_t events[32];
					unsigned n = 32;
					lib().cuFileBatchIOGetStatus(id, 0, &n, events, nullptr);
					done += n;
				}
				for (unsigned i = 0; i < 32; i++)
					good += memory.bytes(i * 20000, 20000) == bytes_.substr(i * 30000 + t, 20000);
			}
			lib().cuFileBatchIODestroy(id);
		});
	}
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 6 * 4 * 32);
}

// Streams

TEST_F(Streams, AReadInTheOrderOfTheStream)
{
	EXPECT_EQ(result_of_read(stream_), 1000);
	EXPECT_EQ(memory_.bytes(100, 1000), bytes_.substr(10, 1000));
	EXPECT_TRUE(memory_.untouched(1100, 5000));
}

TEST_F(Streams, TheDefaultStream) { EXPECT_EQ(result_of_read(nullptr), 1000); }

TEST_F(Streams, AWriteAndALongRead)
{
	memory_.put(pattern(5000, 5));
	EXPECT_EQ(lib().cuFileWriteAsync(fh_, memory_.get(), &size_, &file_, &at_, &result_,
					 static_cast<CUstream>(stream_))
			  .err,
		  0);
	fake_sync(stream_);
	EXPECT_EQ(result_, 1000);
	EXPECT_EQ(content("f").substr(10, 1000), pattern(5000, 5).substr(100, 1000));
	size_ = 900000;
	EXPECT_EQ(result_of_read(stream_), 900000);
	EXPECT_TRUE(memory_.bytes(100, 900000) == content("f").substr(10, 900000));
}

TEST_F(Streams, ParametersAreReadWhenTheStreamGetsThere)
{
	Hold hold(stream_);
	EXPECT_EQ(read_async(stream_), 0);
	size_ = 50;
	file_ = 7;
	at_ = 9;
	EXPECT_EQ(result_, 4711) << "nothing happens before its time";
	hold.go = true;
	fake_sync(stream_);
	EXPECT_EQ(result_, 50);
	EXPECT_EQ(memory_.bytes(9, 50), bytes_.substr(7, 50));
	EXPECT_TRUE(memory_.untouched(59, 2000));
}

TEST_F(Streams, WhatIsFixedIsReadAtOnce)
{
	for (unsigned flags = 0; flags < 16; flags++) {
		ASSERT_EQ(code(lib().cuFileStreamRegister, static_cast<CUstream>(stream_), flags), 0);
		memory_.fill(0x77);
		size_ = 1000;
		file_ = 10;
		at_ = 100;
		Hold hold(stream_);
		ASSERT_EQ(read_async(stream_), 0);
		size_ = 50;
		file_ = 7;
		at_ = 9;
		hold.go = true;
		fake_sync(stream_);
		const size_t size = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 1000 : 50;
		const size_t file = flags & CU_FILE_STREAM_FIXED_FILE_OFFSET ? 10 : 7;
		const size_t at = flags & CU_FILE_STREAM_FIXED_BUF_OFFSET ? 100 : 9;
		EXPECT_EQ(result_, static_cast<ssize_t>(size)) << flags;
		EXPECT_EQ(memory_.bytes(at, size), bytes_.substr(file, size)) << flags;
		EXPECT_TRUE(memory_.untouched(0, at)) << flags;
		EXPECT_EQ(code(lib().cuFileStreamRegister, static_cast<CUstream>(stream_), flags), 5022) << "twice";
		EXPECT_EQ(code(lib().cuFileStreamDeregister, static_cast<CUstream>(stream_)), 0);
		EXPECT_EQ(code(lib().cuFileStreamDeregister, static_cast<CUstream>(stream_)), 5022) << "unknown now";
	}
	// As hipFile's tests expect, unknown flags are accepted and ignored.
	EXPECT_EQ(code(lib().cuFileStreamRegister, static_cast<CUstream>(stream_), 16), 0);
}

TEST_F(Streams, ErrorsAreInTheResult)
{
	ASSERT_EQ(code(lib().cuFileBufRegister, memory_.get(), 4096, 0), 0);
	size_ = 5000;
	EXPECT_EQ(result_of_read(stream_), -5016);
	size_ = 10;
	file_ = -1;
	EXPECT_EQ(result_of_read(stream_), -5022);
	file_ = 10;
	at_ = -1;
	EXPECT_EQ(result_of_read(stream_), -5030) << "as hipFile's tests have it";
	at_ = 100;
	CUstream on = static_cast<CUstream>(stream_);
	EXPECT_EQ(code(lib().cuFileReadAsync, nullptr, memory_.get(), &size_, &file_, &at_, &result_, on), 5027);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, nullptr, &size_, &file_, &at_, &result_, on), 5022);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory_.get(), nullptr, &file_, &at_, &result_, on), 5022);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory_.get(), &size_, nullptr, &at_, &result_, on), 5022);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory_.get(), &size_, &file_, nullptr, &result_, on), 5022);
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory_.get(), &size_, &file_, &at_, nullptr, on), 5022);
	fake_fail("cuLaunchHostFunc", 0, 400);
	const CUfileError_t error = lib().cuFileReadAsync(fh_, memory_.get(), &size_, &file_, &at_, &result_, on);
	EXPECT_EQ(error.err, 5011);
	EXPECT_EQ(error.cu_err, 400);
}

TEST_F(Streams, AFileThatIsDeregisteredBeforeItsTime)
{
	Hold hold(stream_);
	EXPECT_EQ(read_async(stream_), 0);
	lib().cuFileHandleDeregister(fh_);
	hold.go = true;
	fake_sync(stream_);
	EXPECT_EQ(result_, 1000) << "what was begun goes on";
}

TEST_F(Streams, ADriverThatIsClosedBeforeItsTime)
{
	Hold hold(stream_);
	EXPECT_EQ(read_async(stream_), 0);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	hold.go = true;
	fake_sync(stream_);
	EXPECT_EQ(result_, -5001);
	// The next close releases the library's resources for the stream.
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
}

TEST_F(Streams, InsideAGraph)
{
	fake_capture(stream_);
	EXPECT_EQ(read_async(stream_), 0);
	for (int i = 0; i < 3; i++) {
		size_ = 100 + static_cast<size_t>(i);
		memory_.fill(0x77);
		fake_launch_graph(stream_);
		fake_sync(stream_);
		EXPECT_EQ(result_, 100 + i);
		EXPECT_EQ(memory_.bytes(100, size_), bytes_.substr(10, size_));
	}
	fake_end_graph(stream_);
}

// While a stream of the program is being captured, I/O by any thread succeeds and does not invalidate the capture.
TEST_F(Streams, BesideACapture)
{
	const auto begin = reinterpret_cast<int (*)(void *, int)>(dlsym(lib().cuda, "cuStreamBeginCapture_v2"));
	const auto end = reinterpret_cast<int (*)(void *, void **)>(dlsym(lib().cuda, "cuStreamEndCapture"));
	const auto drop = reinterpret_cast<int (*)(void *)>(dlsym(lib().cuda, "cuGraphDestroy"));
	constexpr ssize_t length = 900000;
	ASSERT_EQ(begin(stream_, 0), 0);
	// The first read allocates pinned memory; the longer ones start worker threads.
	EXPECT_EQ(lib().cuFileRead(fh_, memory_.get(), 4096, 0, 0), 4096);
	EXPECT_EQ(lib().cuFileRead(fh_, memory_.get(), length, 0, 0), length);
	EXPECT_EQ(lib().cuFileWrite(fh_, memory_.get(), length, 0, 0), length);
	std::thread([&] {
		fake_set_current(0);
		EXPECT_EQ(lib().cuFileRead(fh_, memory_.get(), length, 0, 0), length);
	}).join();
	// To separate places: several copies in one call.
	CUfileBatchHandle_t batch = nullptr;
	CUfileIOParams_t ios[8] = {};
	CUfileIOEvents_t events[8];
	unsigned nr = 8;
	for (unsigned i = 0; i < nr; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].fh = fh_;
		ios[i].u.batch = {memory_.get(), i * 8192, i * 8192, 4096};
	}
	memory_.fill(0x77);
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &batch, nr), 0);
	EXPECT_EQ(code(lib().cuFileBatchIOSubmit, batch, nr, ios, 0u), 0);
	EXPECT_EQ(code(lib().cuFileBatchIOGetStatus, batch, nr, &nr, events, nullptr), 0);
	for (unsigned i = 0; i < 8; i++) {
		EXPECT_EQ(events[i].status, CUFILE_COMPLETE);
		EXPECT_EQ(memory_.bytes(i * 8192, 4096), bytes_.substr(i * 8192, 4096)) << i;
	}
	EXPECT_EQ(lib().cuFileRead(fh_, memory_.get(), length, 0, 0), length);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	void *graph = nullptr;
	ASSERT_EQ(end(stream_, &graph), 0) << "it is void";
	drop(graph);
	EXPECT_TRUE(memory_.bytes(0, length) == bytes_.substr(0, length));
	EXPECT_TRUE(content("f").substr(0, length) == bytes_.substr(0, length));
}

// cuMemFree() holds the driver's lock until the stream has finished, including the library's host functions in it.
TEST_F(Streams, MemoryIsFreedMeanwhile)
{
	const auto free_memory = reinterpret_cast<int (*)(void *)>(dlsym(lib().cuda, "cuMemFree_v2"));
	const auto alloc = reinterpret_cast<int (*)(void **, size_t)>(dlsym(lib().cuda, "cuMemAlloc_v2"));
	size_ = 900000;
	for (const bool write : {false, true}) {
		void *other = nullptr;
		fake_set_current(0);
		ASSERT_EQ(alloc(&other, 4096), 0);
		Hold hold(stream_);
		result_ = 4711;
		auto *const on = static_cast<CUstream>(stream_);
		ASSERT_EQ((write ? lib().cuFileWriteAsync : lib().cuFileReadAsync)(fh_, memory_.get(), &size_, &file_,
										   &at_, &result_, on)
				  .err,
			  0);
		auto freed = std::async(std::launch::async, [&] {
			fake_set_current(0);
			return free_memory(other);
		});
		EXPECT_EQ(freed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
		hold.go = true;
		// The blocked threads cannot be ended, so exit.
		if (freed.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
			std::fprintf(stderr, "[  FAILED  ] Streams.MemoryIsFreedMeanwhile: it hangs\n");
			_exit(1);
		}
		EXPECT_EQ(freed.get(), 0);
		fake_sync(stream_);
		EXPECT_EQ(result_, 900000);
	}
	EXPECT_TRUE(memory_.bytes(100, 900000) == bytes_.substr(10, 900000));
}

// Threads that read without a pause do not block calls that affect the whole driver.
TEST_F(Cufile, SettingsAndClosingBesideReadersWithoutAPause)
{
	const CUfileHandle_t fh = handle("f", pattern(100000));
	std::atomic<bool> over{false};
	std::vector<std::thread> readers;
	std::vector<std::unique_ptr<Device>> memory;
	for (int i = 0; i < 4; i++) {
		memory.push_back(std::make_unique<Device>(100000));
		readers.emplace_back([&, at = memory.back()->get()] {
			while (!over)
				lib().cuFileRead(fh, at, 100000, 0, 0);
		});
	}
	auto settings = std::async(std::launch::async, [&] {
		int errors = 0;
		for (int i = 0; i < 50; i++)
			errors += code(lib().cuFileDriverSetPollMode, i % 2 != 0, size_t{4}) != 0;
		errors += code(lib().cuFileDriverClose_v2) != 0;
		return errors;
	});
	const bool ended = settings.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
	over = true;
	for (auto &reader : readers)
		reader.join();
	EXPECT_TRUE(ended) << "for 20 seconds";
	EXPECT_EQ(settings.get(), 0);
}

TEST_F(Streams, ManyStreamsAtOnce)
{
	constexpr int n = 12;
	void *streams[n];
	ssize_t results[n][8];
	size_t size = 30000;
	off_t zero = 0, files[8];
	std::vector<std::unique_ptr<Device>> memory;
	for (int i = 0; i < 8; i++)
		files[i] = i * 1000;
	for (int s = 0; s < n; s++) {
		streams[s] = fake_stream(s % 2);
		memory.push_back(std::make_unique<Device>(30000, s % 2));
		for (int i = 0; i < 8; i++)
			EXPECT_EQ(lib().cuFileReadAsync(fh_, memory.back()->get(), &size, &files[i], &zero,
							&results[s][i], static_cast<CUstream>(streams[s]))
					  .err,
				  0);
	}
	for (int s = 0; s < n; s++) {
		fake_sync(streams[s]);
		for (const ssize_t result : results[s])
			EXPECT_EQ(result, 30000);
		EXPECT_TRUE(memory[static_cast<size_t>(s)]->bytes(0, 30000) == bytes_.substr(7000, 30000));
		fake_stream_destroy(streams[s]);
	}
}

// Parameters

TEST_F(Cufile, ParametersAreSetWhileTheDriverIsClosed)
{
	for (unsigned i = 0; i < 12; i++) {
		const auto param = static_cast<CUFileSizeTConfigParameter_t>(i);
		size_t min = 1, max = 0, old = 0, value = 0;
		EXPECT_EQ(code(lib().cuFileGetParameterMinMaxValue, param, &min, &max), 0) << i;
		EXPECT_LE(min, max) << i;
		EXPECT_EQ(code(lib().cuFileGetParameterSizeT, param, &old), 0) << i;
		EXPECT_LE(min, old) << i;
		EXPECT_GE(max, old) << i;
		EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, max), 0) << i;
		EXPECT_EQ(code(lib().cuFileGetParameterSizeT, param, &value), 0) << i;
		EXPECT_EQ(value, max) << i;
		EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, max + 1), 5022) << i;
		if (min) {
			EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, min - 1), 5022) << i;
		}
		EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, old), 0) << i;
	}
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	for (unsigned i = 0; i < 12; i++) {
		size_t value = 0;
		EXPECT_EQ(code(lib().cuFileGetParameterSizeT, static_cast<CUFileSizeTConfigParameter_t>(i), &value), 0);
		EXPECT_EQ(code(lib().cuFileSetParameterSizeT, static_cast<CUFileSizeTConfigParameter_t>(i), value),
			  5026);
	}
}

TEST_F(Cufile, ParametersThatAreNone)
{
	size_t value = 4711, most = 4711;
	bool flag = true;
	char text[8] = "text";
	for (const int none : {12, 13, 255, -1, INT_MAX, INT_MIN}) {
		const auto size = static_cast<CUFileSizeTConfigParameter_t>(none);
		const auto yes = static_cast<CUFileBoolConfigParameter_t>(none);
		const auto word = static_cast<CUFileStringConfigParameter_t>(none);
		EXPECT_EQ(code(lib().cuFileGetParameterSizeT, size, &value), 5022) << none;
		EXPECT_EQ(code(lib().cuFileSetParameterSizeT, size, 1), 5022) << none;
		EXPECT_EQ(code(lib().cuFileGetParameterMinMaxValue, size, &value, &most), 5022) << none;
		EXPECT_EQ(code(lib().cuFileGetParameterBool, yes, &flag), 5022) << none;
		EXPECT_EQ(code(lib().cuFileSetParameterBool, yes, true), 5022) << none;
		EXPECT_EQ(code(lib().cuFileGetParameterString, word, text, 8), 5022) << none;
		EXPECT_EQ(code(lib().cuFileSetParameterString, word, "x"), 5022) << none;
	}
	EXPECT_EQ(code(lib().cuFileGetParameterString, static_cast<CUFileStringConfigParameter_t>(3), text, 8), 5022);
	EXPECT_EQ(code(lib().cuFileSetParameterString, static_cast<CUFileStringConfigParameter_t>(3), "x"), 5022);
	EXPECT_EQ(code(lib().cuFileGetParameterSizeT, CUFILE_PARAM_PROFILE_STATS, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileGetParameterMinMaxValue, CUFILE_PARAM_PROFILE_STATS, nullptr, &most), 5022);
	EXPECT_EQ(code(lib().cuFileGetParameterMinMaxValue, CUFILE_PARAM_PROFILE_STATS, &value, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileGetParameterBool, CUFILE_PARAM_FORCE_COMPAT_MODE, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileSetParameterString, CUFILE_PARAM_LOG_DIR, nullptr), 5022);
	EXPECT_EQ(value, 4711u);
	EXPECT_EQ(most, 4711u);
	EXPECT_STREQ(text, "text");
}

TEST_F(Cufile, StringParameters)
{
	// cuda-python's first query: nothing is set and the driver is closed.
	char text[64] = "text";
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOG_DIR, text, 64), 0);
	EXPECT_STREQ(text, "");
	std::strcpy(text, "text");
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOGGING_LEVEL, text, 64), 0);
	EXPECT_STREQ(text, "");
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_ENV_LOGFILE_PATH, text, 64), 5022)
		<< "there is no such variable";
	for (const char *value : {"", "/dev/null"}) {
		setenv("CUFILE_LOGFILE_PATH", value, 1);
		std::strcpy(text, "text");
		EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_ENV_LOGFILE_PATH, text, 64), 0);
		EXPECT_STREQ(text, value);
	}
	unsetenv("CUFILE_LOGFILE_PATH");
	EXPECT_EQ(code(lib().cuFileSetParameterString, CUFILE_PARAM_LOG_DIR, dir_.c_str()), 0);
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOG_DIR, text, 64), 0);
	EXPECT_EQ(std::string(text), dir_.string());
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOG_DIR, text, 3), 5022) << "no room";
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOG_DIR, text, 0), 5022);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_TRUE(fs::exists(path("cufile.log"))) << "there it was asked for";
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOGGING_LEVEL, text, 64), 0);
	EXPECT_STREQ(text, "ERROR");
	EXPECT_EQ(code(lib().cuFileSetParameterString, CUFILE_PARAM_LOG_DIR, ""), 5026);
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(code(lib().cuFileSetParameterString, CUFILE_PARAM_LOG_DIR, ""), 0);
}

TEST_F(Cufile, AConfigurationThatIsOdd)
{
	const auto said = [&] {
		capture_stderr();
		EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
		lib().cuFileDriverClose_v2();
		return testing::internal::GetCapturedStderr();
	};
	EXPECT_EQ(said(), "");
	json("{ \"fs\": { \"generic\": {} }, \"odd\": 1, \"properties\": { \"odder\": true } }");
	std::string text = said();
	EXPECT_NE(text.find("cufile.json:1:28: odd: unknown key"), std::string::npos) << text;
	EXPECT_NE(text.find("cufile.json:1:54: properties/odder: unknown key"), std::string::npos) << text;
	EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line: " << text;
}

TEST_F(Cufile, SlabsOnTheGpu)
{
	size_t sizes[5], counts[5];
	ASSERT_EQ(code(lib().cuFileGetParameterGpuBounceBufferSlabArray, sizes, counts, 4), 0);
	EXPECT_EQ(std::vector<size_t>(sizes, sizes + 4), (std::vector<size_t>{1024, 8192, 16384, 65536}));
	EXPECT_EQ(std::vector<size_t>(counts, counts + 4), (std::vector<size_t>{128, 8, 4, 2}));
	EXPECT_EQ(code(lib().cuFileGetParameterGpuBounceBufferSlabArray, sizes, counts, 3), 5022);
	const size_t new_sizes[] = {64, 128}, new_counts[] = {1, 2};
	ASSERT_EQ(code(lib().cuFileSetParameterGpuBounceBufferSlabArray, new_sizes, new_counts, 2), 0);
	ASSERT_EQ(code(lib().cuFileGetParameterGpuBounceBufferSlabArray, sizes, counts, 2), 0);
	EXPECT_EQ(std::vector<size_t>(sizes, sizes + 2), (std::vector<size_t>{64, 128}));
	EXPECT_EQ(std::vector<size_t>(counts, counts + 2), (std::vector<size_t>{1, 2}));
	ASSERT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, sizes, counts, 3), 0);
	EXPECT_EQ(sizes[0], 4u) << "the other pool is another";
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterGpuBounceBufferSlabArray, new_sizes, new_counts, 2), 5026);
	lib().cuFileDriverClose_v2();
	const size_t old_sizes[] = {1024, 8192, 16384, 65536}, old_counts[] = {128, 8, 4, 2};
	EXPECT_EQ(code(lib().cuFileSetParameterGpuBounceBufferSlabArray, old_sizes, old_counts, 4), 0);
}

TEST_F(Cufile, WaysToDeviceMemory)
{
	CUfileP2PFlags_t mask = CUFILE_DMABUF;
	ASSERT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_NVME_SUPPORTED, &mask), 0);
	EXPECT_EQ(mask, 0);
	for (const int bad : {2, 4, 8, 16, 3, 32, -1})
		EXPECT_EQ(
			code(lib().cuFileDriverSetP2PFlags, CU_FILE_NVME_SUPPORTED, static_cast<CUfileP2PFlags_t>(bad)),
			5022)
			<< bad;
	const auto p2pdma = static_cast<CUfileP2PFlags_t>(CU_FILE_P2P_FLAG_PCI_P2PDMA);
	EXPECT_EQ(code(lib().cuFileDriverSetP2PFlags, CU_FILE_NVME_SUPPORTED, p2pdma), 0);
	ASSERT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_NVME_SUPPORTED, &mask), 0);
	EXPECT_EQ(mask, p2pdma);
	ASSERT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_NFS_SUPPORTED, &mask), 0);
	EXPECT_EQ(mask, 0) << "of each by itself";
	EXPECT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_NVME_SUPPORTED, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileDriverGetP2PFlags, CU_FILE_MAX_TARGET_TYPES, &mask), 5022);
	EXPECT_EQ(code(lib().cuFileDriverSetP2PFlags, CU_FILE_MAX_TARGET_TYPES, p2pdma), 5022);
	EXPECT_EQ(code(lib().cuFileDriverSetP2PFlags, CU_FILE_NVME_SUPPORTED, static_cast<CUfileP2PFlags_t>(0)), 0);
	EXPECT_EQ(lib().cuFileUseCount(), 0);
}

TEST_F(Cufile, Topology)
{
	EXPECT_EQ(code(lib().cuFileExportPCIeTopology, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileExportPCIeTopology, ""), 5022);
	EXPECT_EQ(code(lib().cuFileExportPCIeTopology, "/nowhere/topology.json"), 5022);
	const std::string file = path("topology.json");
	std::ofstream(file) << std::string(1 << 20, 'x'); // content that must be replaced
	ASSERT_EQ(code(lib().cuFileExportPCIeTopology, file.c_str()), 0);
	std::ifstream in(file);
	const std::string text{std::istreambuf_iterator<char>(in), {}};
	EXPECT_TRUE(text.starts_with("{") && text.ends_with("}\n")) << text;
	for (const auto &entry : fs::directory_iterator("/sys/bus/pci/devices")) {
		std::ifstream pci_class(entry.path() / "class");
		std::string value;
		pci_class >> value;
		// All PCI devices of the classes storage, network and display are listed.
		const bool ours = value.starts_with("0x01") || value.starts_with("0x02") || value.starts_with("0x03");
		EXPECT_TRUE(!ours || text.find(entry.path().filename().string()) != std::string::npos) << text;
	}
}

TEST_F(Cufile, Slabs)
{
	size_t sizes[4], counts[4];
	ASSERT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, sizes, counts, 3), 0);
	EXPECT_EQ(std::vector<size_t>(sizes, sizes + 3), (std::vector<size_t>{4, 1024, 16384}));
	EXPECT_EQ(std::vector<size_t>(counts, counts + 3), (std::vector<size_t>{128, 64, 64}));
	EXPECT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, sizes, counts, 2), 5022);
	EXPECT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, nullptr, counts, 3), 5022);
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, nullptr, 3), 5022);
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 0), 5022);
	sizes[1] = 2048;
	counts[1] = 5;
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 2), 0);
	EXPECT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, sizes, counts, 4), 0);
	EXPECT_EQ(std::vector<size_t>(sizes, sizes + 4), (std::vector<size_t>{4, 2048, 0, 0}));
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 2), 5026);
	lib().cuFileDriverClose_v2();
	const size_t old_sizes[] = {4, 1024, 16384}, old_counts[] = {128, 64, 64};
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, old_sizes, old_counts, 3), 0);
}

// Statistics

TEST_F(Cufile, StatsLevels)
{
	int level = -1;
	for (int i = 0; i < 4; i++) {
		EXPECT_EQ(code(lib().cuFileSetStatsLevel, i), 0);
		EXPECT_EQ(code(lib().cuFileGetStatsLevel, &level), 0);
		EXPECT_EQ(level, i);
	}
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 4), 5022);
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, -1), 5022);
	EXPECT_EQ(code(lib().cuFileGetStatsLevel, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 1), 0);
	CUfileStatsLevel2_t two;
	EXPECT_EQ(code(lib().cuFileGetStatsL2, &two), 5022) << "not counted at level 1";
	EXPECT_EQ(code(lib().cuFileGetStatsL1, nullptr), 5022);
}

// At level 0, starting statistics fails with an error.
TEST_F(Cufile, StatsThatAreOff)
{
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 0), 0);
	EXPECT_EQ(code(lib().cuFileStatsStart), 5001) << "the driver is closed";
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileStatsStart), 5030);
	EXPECT_EQ(code(lib().cuFileStatsStop), 0);
	EXPECT_EQ(code(lib().cuFileStatsReset), 0);
	CUfileStatsLevel1_t one;
	EXPECT_EQ(code(lib().cuFileGetStatsL1, &one), 5022);
}

// Each level's struct is available from that level on, and a call does not write past its struct.
TEST_F(Cufile, StatsOfEachLevel)
{
	const CUfileHandle_t fh = handle("f", pattern(10000));
	Device memory(8192);
	for (int level = 0; level < 4; level++) {
		EXPECT_EQ(code(lib().cuFileSetStatsLevel, level), 0);
		EXPECT_EQ(code(lib().cuFileStatsReset), 0);
		EXPECT_EQ(code(lib().cuFileStatsStart), level ? 0 : 5030);
		EXPECT_EQ(read(fh, memory.get(), 5000, 0), 5000);
		EXPECT_EQ(code(lib().cuFileStatsStop), 0);
		const auto get = [&](auto call, auto &room, int from) {
			std::memset(static_cast<void *>(&room), 0x55, sizeof(room));
			EXPECT_EQ(call(&room.stats).err, level >= from ? 0 : 5022) << level << ' ' << from;
			for (const char c : room.behind)
				EXPECT_EQ(c, 0x55) << "beyond the struct";
			const auto *first = reinterpret_cast<const unsigned char *>(&room);
			EXPECT_EQ(*first, level >= from ? 1 : 0x55) << "one read, or nothing at all";
			return level >= from;
		};
		struct {
			CUfileStatsLevel1_t stats;
			char behind[128];
		} one;
		struct {
			CUfileStatsLevel2_t stats;
			char behind[128];
		} two;
		struct {
			CUfileStatsLevel3_t stats;
			char behind[128];
		} three;
		if (get(lib().cuFileGetStatsL1, one, 1)) {
			EXPECT_EQ(one.stats.read_bytes, 5000u);
			EXPECT_EQ(one.stats.read_lat_avg_us, one.stats.read_lat_sum_us);
		}
		if (get(lib().cuFileGetStatsL2, two, 2)) {
			EXPECT_EQ(std::memcmp(&two.stats.basic, &one.stats, sizeof(one.stats)), 0);
			EXPECT_EQ(two.stats.read_size_kb_hist[3], 1u);
		}
		if (get(lib().cuFileGetStatsL3, three, 3)) {
			EXPECT_EQ(std::memcmp(&three.stats.detailed, &two.stats, sizeof(two.stats)), 0);
			EXPECT_EQ(three.stats.num_gpus, 1u);
			EXPECT_EQ(three.stats.per_gpu_stats[0].n_posix_reads, 1u);
		}
	}
	EXPECT_EQ(code(lib().cuFileGetStatsL2, nullptr), 5022);
	EXPECT_EQ(code(lib().cuFileGetStatsL3, nullptr), 5022);
}

TEST_F(Cufile, StatsAreWhatWasDone)
{
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 3), 0);
	EXPECT_EQ(code(lib().cuFileStatsReset), 0);
	EXPECT_EQ(code(lib().cuFileStatsStart), 0);
	const CUfileHandle_t fh = handle("f", pattern(100000));
	Device memory(100000), second(4096, 1);
	EXPECT_EQ(code(lib().cuFileBufRegister, memory.get(), 100000, 0), 0);
	EXPECT_EQ(read(fh, memory.get(), 50000, 0), 50000);
	EXPECT_EQ(read(fh, memory.get(), 4096, 0), 4096);
	EXPECT_EQ(read(fh, memory.get(), 10, -1), -5022);
	EXPECT_EQ(write(fh, second.get(), 100, 7), 100);
	EXPECT_EQ(code(lib().cuFileBufDeregister, memory.get()), 0);
	EXPECT_EQ(code(lib().cuFileStatsStop), 0);
	EXPECT_EQ(read(fh, memory.get(), 50000, 0), 50000) << "after the end";
	struct {
		CUfileStatsLevel3_t stats;
		char behind[64];
	} room;
	std::memset(&room, 0x55, sizeof(room));
	ASSERT_EQ(code(lib().cuFileGetStatsL3, &room.stats), 0);
	for (const char c : room.behind)
		ASSERT_EQ(c, 0x55) << "beyond the struct";
	const CUfileStatsLevel1_t &basic = room.stats.detailed.basic;
	EXPECT_EQ(basic.read_ops.ok, 2u);
	EXPECT_EQ(basic.read_ops.err, 1u);
	EXPECT_EQ(basic.write_ops.ok, 1u);
	EXPECT_EQ(basic.read_bytes, 54096u);
	EXPECT_EQ(basic.write_bytes, 100u);
	EXPECT_EQ(basic.hdl_register_ops.ok, 1u);
	EXPECT_EQ(basic.buf_register_ops.ok, 1u);
	EXPECT_EQ(basic.buf_deregister_ops.ok, 1u);
	EXPECT_EQ(room.stats.detailed.read_size_kb_hist[6], 1u) << "32 to 63 KiB";
	EXPECT_EQ(room.stats.detailed.read_size_kb_hist[3], 1u) << "4 to 7 KiB";
	EXPECT_EQ(room.stats.detailed.write_size_kb_hist[0], 1u) << "below 1 KiB";
	ASSERT_EQ(room.stats.num_gpus, 2u);
	EXPECT_EQ(room.stats.per_gpu_stats[0].uuid[0], static_cast<char>(0xa0));
	EXPECT_EQ(room.stats.per_gpu_stats[0].n_total_reads, 2u);
	EXPECT_EQ(room.stats.per_gpu_stats[0].n_posix_reads, 2u);
	EXPECT_EQ(room.stats.per_gpu_stats[0].n_mmap_ok, 1u);
	EXPECT_EQ(room.stats.per_gpu_stats[0].n_mmap_free, 1u);
	EXPECT_EQ(room.stats.per_gpu_stats[1].n_unaligned_writes, 1u);
	EXPECT_EQ(room.stats.per_gpu_stats[1].writes_bytes, 100u);
	CUfileStatsLevel1_t one;
	EXPECT_EQ(code(lib().cuFileGetStatsL1, &one), 0);
	EXPECT_EQ(std::memcmp(&one, &basic, sizeof(one)), 0);
	EXPECT_EQ(code(lib().cuFileStatsReset), 0);
	EXPECT_EQ(code(lib().cuFileGetStatsL1, &one), 0);
	EXPECT_EQ(one.read_ops.ok, 0u);
}

// A caller that passes the struct's size gets the layout of that size, whatever the environment says.
TEST_F(Cufile, StatsBySize)
{
	const CUfileHandle_t fh = handle("f", pattern(10000));
	Device memory(8192);
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 2), 0);
	EXPECT_EQ(code(lib().cuFileStatsReset), 0);
	EXPECT_EQ(code(lib().cuFileStatsStart), 0);
	EXPECT_EQ(read(fh, memory.get(), 5000, 0), 5000);
	EXPECT_EQ(code(lib().cuFileStatsStop), 0);
	CUfileStatsLevel2_t known;
	EXPECT_EQ(code(lib().cuFileGetStatsL2, &known), 0);
	for (const size_t more : {0, 112}) {
		unsigned char stats[2048];
		std::memset(stats, 0x55, sizeof(stats));
		const size_t size = sizeof(known) + more;
		EXPECT_EQ(lib().peerdma_cufile_stats(2, stats, size), 0);
		EXPECT_EQ(std::memcmp(stats, &known.basic, sizeof(known.basic)), 0);
		EXPECT_EQ(std::memcmp(stats + sizeof(known.basic) + more, known.read_size_kb_hist,
				      sizeof(known) - sizeof(known.basic)),
			  0);
		EXPECT_EQ(stats[size], 0x55) << "beyond the struct";
		EXPECT_EQ(lib().peerdma_cufile_stats(2, stats, size - 1), -EINVAL);
		EXPECT_EQ(lib().peerdma_cufile_stats(1, stats, size), -EINVAL);
		EXPECT_EQ(lib().peerdma_cufile_stats(3, stats, 5000 + more), -EINVAL) << "not counted at level 2";
		for (const int level : {-1, 0, 4})
			EXPECT_EQ(lib().peerdma_cufile_stats(level, stats, 512), -EINVAL);
		EXPECT_EQ(lib().peerdma_cufile_stats(2, nullptr, size), -EINVAL);
	}
}

TEST_F(Batches, StatsOfBatches)
{
	EXPECT_EQ(code(lib().cuFileSetStatsLevel, 1), 0);
	EXPECT_EQ(code(lib().cuFileStatsReset), 0);
	EXPECT_EQ(code(lib().cuFileStatsStart), 0);
	const auto id = set_up(8);
	std::vector<CUfileIOParams_t> ios = {io(100, 0, 0, 1), io(200, 0, 1000, 2),
					     io(50, 5000, 2000, 3, CUFILE_WRITE)};
	EXPECT_EQ(submit(id, ios), 0);
	fetch(id, 3);
	CUfileStatsLevel1_t stats;
	EXPECT_EQ(code(lib().cuFileGetStatsL1, &stats), 0);
	EXPECT_EQ(stats.batch_setup_ops.ok, 1u);
	EXPECT_EQ(stats.batch_submit_ops.ok, 1u);
	EXPECT_EQ(stats.batch_total_submit_ops.ok, 3u);
	EXPECT_EQ(stats.batch_complete_ops.ok, 3u);
	EXPECT_EQ(stats.batch_posix_processed_ops.ok, 3u);
	EXPECT_EQ(stats.batch_read_bytes, 300u);
	EXPECT_EQ(stats.batch_write_bytes, 50u);
	EXPECT_EQ(stats.last_batch_read_bytes, 300u);
}

// Reasons for not going directly

TEST_F(Cufile, TheReasonIsThere)
{
	const CUfileHandle_t fh = handle("f", pattern(5000));
	Device memory(8192);
	char host[64];
	peerdma_cufile_counts before = {}, after = {};
	before.size = after.size = sizeof(before);
	ASSERT_EQ(lib().peerdma_cufile_count(&before), 0);
	read(fh, memory.get(), 5000, 0);
	read(fh, host, 64, 0);
	ASSERT_EQ(lib().peerdma_cufile_count(&after), 0);
	peerdma_cufile_route route = {};
	EXPECT_EQ(lib().peerdma_cufile_explain(fh, memory.get(), 10, 0, 0, &route), -EINVAL) << "no size";
	before.size--;
	EXPECT_EQ(lib().peerdma_cufile_count(&before), -EINVAL) << "a shorter one has them elsewhere";
	route.size = sizeof(route);
	ASSERT_EQ(lib().peerdma_cufile_explain(fh, memory.get(), 10, 0, 0, &route), 0);
	EXPECT_EQ(route.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
	EXPECT_TRUE(route.why == PEERDMA_CUFILE_WHY_NOT_A_BUFFER || route.why == PEERDMA_CUFILE_WHY_NO_LIBRARY);
	EXPECT_EQ(after.ios[route.why] - before.ios[route.why], 1u);
	EXPECT_EQ(after.bytes[route.why] - before.bytes[route.why], 5000u);
	EXPECT_EQ(after.bytes[PEERDMA_CUFILE_WHY_HOST_MEMORY] - before.bytes[PEERDMA_CUFILE_WHY_HOST_MEMORY], 64u);
	ASSERT_EQ(lib().peerdma_cufile_explain(fh, host, 10, 0, 0, &route), 0);
	EXPECT_EQ(route.route, static_cast<uint32_t>(PEERDMA_ROUTE_POSIX));
	EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_HOST_MEMORY));
	EXPECT_EQ(lib().peerdma_cufile_explain(nullptr, host, 10, 0, 0, &route), -EBADF);
	EXPECT_EQ(lib().peerdma_cufile_explain(fh, host, 10, -1, 0, &route), -EINVAL);
	lib().cuFileDriverClose_v2();
	EXPECT_EQ(lib().peerdma_cufile_explain(fh, host, 10, 0, 0, &route), -ENOTCONN);
}

TEST_F(Cufile, WhoInsistsOnDirectGetsAnError)
{
	setenv("PEERDMA_REQUIRE_DIRECT", "1", 1);
	capture_stderr();
	const CUfileHandle_t fh = handle("f", pattern(5000));
	unsetenv("PEERDMA_REQUIRE_DIRECT");
	Device memory(8192);
	char host[64];
	EXPECT_EQ(read(fh, memory.get(), 100, 0), -5008);
	EXPECT_EQ(write(fh, memory.get(), 100, 0), -5008);
	EXPECT_EQ(read(fh, host, 64, 0), 64) << "host memory has nothing to go around";
	EXPECT_TRUE(memory.untouched(0, 8192));
	peerdma_cufile_route route = {};
	route.size = sizeof(route);
	EXPECT_EQ(lib().peerdma_cufile_explain(fh, memory.get(), 10, 0, 0, &route), 0);
	EXPECT_EQ(route.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	testing::internal::GetCapturedStderr();
}

// Processes

#ifndef __SANITIZE_THREAD__ // in the child it takes the stand-in's lock for held
TEST_F(Cufile, AfterForkAnOpenDriverIsNoMore)
{
	const CUfileHandle_t fh = handle("f", pattern(5000));
	Device memory(8192);
	EXPECT_EQ(read(fh, memory.get(), 100, 0), 100);
	EXPECT_EQ(in_child([&] {
			  int bad = 0;
			  CUfileHandle_t other;
			  bad += read(fh, memory.get(), 100, 0) != -5001;
			  bad += add(fds_[0], other) != 5001;
			  bad += lib().cuFileDriverOpen().err != 5001;
			  bad += lib().cuFileDriverClose_v2().err != 5001;
			  bad += lib().cuFileUseCount() != 0;
			  bad += lib().cuFileBufRegister(memory.get(), 10, 0).err != 5001;
			  lib().cuFileHandleDeregister(fh);
			  lib().cuFileBatchIODestroy(fh);
			  return bad;
		  }),
		  0);
	EXPECT_EQ(read(fh, memory.get(), 100, 0), 100) << "the parent goes on";
}

TEST_F(Cufile, AfterForkAClosedDriverCanBeOpened)
{
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0);
	EXPECT_EQ(in_child([&] {
			  const CUfileHandle_t fh = handle("f", "hello");
			  char host[8];
			  const bool good = read(fh, host, 5, 0) == 5;
			  lib().cuFileDriverClose_v2();
			  return !good;
		  }),
		  0);
}

TEST_F(Cufile, AfterForkInTheMiddleOfIo)
{
	const std::string bytes = pattern(2000000);
	const CUfileHandle_t fh = handle("f", bytes);
	const CUfileHandle_t direct = has_direct() ? handle("g", bytes, O_RDONLY | O_DIRECT) : fh;
	std::atomic<bool> stop{false};
	std::atomic<int> wrong{0};
	std::thread reader([&] {
		Device memory(2000000);
		while (!stop)
			for (const CUfileHandle_t one : {fh, direct}) {
				memory.fill(0x77);
				wrong += read(one, memory.get(), 2000000, 0) != 2000000 ||
					 memory.bytes(0, 2000000) != bytes;
			}
	});
	for (int i = 0; i < 30; i++)
		EXPECT_EQ(in_child([&] {
				  alarm(20);
				  char host[8];
				  lib().cuFileDriverClose_v2();
				  return read(fh, host, 5, 0) != -5001;
			  }),
			  0);
	stop = true;
	reader.join();
	EXPECT_EQ(wrong, 0);
}
#endif

TEST_F(Cufile, LoadedAndClosedAtOnceItStays)
{
	void *again = dlopen((here() / CONFORMANCE_BUILD "/lib/libcufile.so.0").c_str(), RTLD_NOW);
	ASSERT_NE(again, nullptr);
	const CUfileHandle_t fh = handle("f", "hello");
	dlclose(again);
	char host[8];
	EXPECT_EQ(read(fh, host, 5, 0), 5);
}

#ifndef __SANITIZE_THREAD__ // in the child it takes the stand-in's lock for held
TEST_F(Cufile, AProcessThatEndsWithAllOpen)
{
	EXPECT_EQ(in_child([&]() -> int {
			  const CUfileHandle_t fh = handle("f", pattern(4000000));
			  Device memory(4000000);
			  const bool good = read(fh, memory.get(), 4000000, 0) == 4000000;
			  // exit() rather than _exit(): runs the exit handlers while threads are idle.
			  std::exit(!good);
		  }),
		  0);
}
#endif

TEST_F(Cufile, OpenedAndClosedManyTimesAtOnce)
{
	std::vector<std::thread> threads;
	const std::string bytes = pattern(700000);
	const int fd = open_file("f", bytes);
	std::atomic<int> wrong{0}, right{0};
	for (int t = 0; t < 4; t++) {
		threads.emplace_back([&] {
			Device memory(700000);
			for (int i = 0; i < 50; i++) {
				lib().cuFileDriverOpen();
				CUfileHandle_t fh;
				const int own = dup(fd);
				if (!add(own, fh)) {
					const ssize_t n = read(fh, memory.get(), 700000, 0);
					if (n == 700000 && memory.bytes(0, 700000) == bytes)
						right++;
					else if (n != -5027)
						wrong++;
					lib().cuFileHandleDeregister(fh);
				}
				close(own);
				lib().cuFileDriverClose_v2();
			}
		});
	}
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(wrong, 0);
	EXPECT_EQ(right, 200) << "who has opened it keeps it open";
	EXPECT_EQ(lib().cuFileUseCount(), 0);
}

} // namespace
