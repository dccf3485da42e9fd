// SPDX-License-Identifier: MIT
//
// Fixtures for the conformance tests of libcufile.so.0: the library is loaded by dlopen, with a stand-in CUDA driver
// (tests/softgpu) whose device memory system calls cannot access.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../random_bytes.hpp"
#include "peerdma_cufile.h"
#include "softgpu.hpp"

// Build directory of the libraries, relative to the program.
#ifndef CONFORMANCE_BUILD
#define CONFORMANCE_BUILD "../.."
#endif

namespace conformance
{

namespace fs = std::filesystem;

inline fs::path here() { return fs::read_symlink("/proc/self/exe").parent_path(); }

inline void *must_load(const fs::path &path, int flags)
{
	void *library = dlopen(path.c_str(), flags);
	if (!library) {
		std::fprintf(stderr, "%s\n", dlerror());
		std::abort();
	}
	return library;
}

struct Library {
	// Load the stand-in driver first: libcufile then finds it under the soname that it asks for.
	void *cuda = must_load(here() / CONFORMANCE_BUILD "/tests/softgpu/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *self = must_load(here() / CONFORMANCE_BUILD "/lib/libcufile.so.0", RTLD_NOW | RTLD_LOCAL);

#define CALL(name) decltype(&::name) name = reinterpret_cast<decltype(&::name)>(dlsym(self, #name))
	CALL(cuFileDriverOpen);
	CALL(cuFileDriverClose_v2);
	CALL(cuFileUseCount);
	CALL(cuFileDriverGetProperties);
	CALL(cuFileDriverSetPollMode);
	CALL(cuFileDriverSetMaxDirectIOSize);
	CALL(cuFileDriverSetMaxCacheSize);
	CALL(cuFileDriverSetMaxPinnedMemSize);
	CALL(cuFileGetVersion);
	CALL(cuFileGetBARSizeInKB);
	CALL(cuFileDriverSetP2PFlags);
	CALL(cuFileDriverGetP2PFlags);
	CALL(cuFileExportPCIeTopology);
	CALL(cuFileHandleRegister);
	CALL(cuFileHandleDeregister);
	CALL(cuFileBufRegister);
	CALL(cuFileBufDeregister);
	CALL(cuFileRead);
	CALL(cuFileWrite);
	CALL(cuFileReadv);
	CALL(cuFileWritev);
	CALL(cuFileBatchIOSetUp);
	CALL(cuFileBatchIOSubmit);
	CALL(cuFileBatchIOGetStatus);
	CALL(cuFileBatchIOCancel);
	CALL(cuFileBatchIODestroy);
	CALL(cuFileReadAsync);
	CALL(cuFileWriteAsync);
	CALL(cuFileStreamRegister);
	CALL(cuFileStreamDeregister);
	CALL(cuFileGetParameterSizeT);
	CALL(cuFileGetParameterBool);
	CALL(cuFileGetParameterString);
	CALL(cuFileGetParameterMinMaxValue);
	CALL(cuFileGetParameterPosixPoolSlabArray);
	CALL(cuFileGetParameterGpuBounceBufferSlabArray);
	CALL(cuFileSetParameterSizeT);
	CALL(cuFileSetParameterBool);
	CALL(cuFileSetParameterString);
	CALL(cuFileSetParameterPosixPoolSlabArray);
	CALL(cuFileSetParameterGpuBounceBufferSlabArray);
	CALL(cuFileSetStatsLevel);
	CALL(cuFileGetStatsLevel);
	CALL(cuFileStatsStart);
	CALL(cuFileStatsStop);
	CALL(cuFileStatsReset);
	CALL(cuFileGetStatsL1);
	CALL(cuFileGetStatsL2);
	CALL(cuFileGetStatsL3);
	CALL(peerdma_cufile_explain);
	CALL(peerdma_cufile_count);
	CALL(peerdma_cufile_stats);
#undef CALL
	explicit Library(bool tell = std::getenv("CONFORMANCE_ANSWERS"))
	{
		if (tell)
			tell_answers();
	}
	void tell_answers();
};

inline Library &lib()
{
	static Library the_library;
	return the_library;
}

template <class... Args> int code(CUfileError_t (*call)(Args...), std::type_identity_t<Args>... args)
{
	return call(args...).err;
}

// Like CaptureStderr(), but into a file that the library does not mistake for the program's data.
inline void capture_stderr()
{
	testing::internal::CaptureStderr();
	fcntl(2, F_SETFL, O_APPEND);
}

// Maps a return value of -1 to -errno.
inline ssize_t told(ssize_t n) { return n == -1 ? -errno : n; }

} // namespace conformance
#include "answers.hpp"
namespace conformance
{

inline std::string pattern(size_t n, unsigned seed = 1) { return random_bytes(n, seed * 2654435761u + 1); }

inline int count_threads(const std::string &name)
{
	int n = 0;
	for (const auto &task : fs::directory_iterator("/proc/self/task")) {
		std::ifstream comm(task.path() / "comm");
		std::string text;
		std::getline(comm, text);
		n += text == name;
	}
	return n;
}

// All threads of the process, by number, with their names. Includes io_uring's workers (iou-wrk-N of thread N).
inline std::map<int, std::string> all_threads()
{
	std::map<int, std::string> all;
	for (const auto &task : fs::directory_iterator("/proc/self/task")) {
		std::ifstream comm(task.path() / "comm");
		std::string name;
		if (std::getline(comm, name)) // otherwise the thread has ended
			all[std::stoi(task.path().filename())] = name.starts_with("iou-wrk") ? "iou-wrk" : name;
	}
	return all;
}

// Device memory, initialized to other bytes than the tests expect.
class Device
{
public:
	explicit Device(size_t size, int device = 0, int kind = 0)
		: size_(size), host_(!kind && way("MEMORY") == "host"),
		  memory_(host_ ? host_memory(size) : fake_alloc(size, device, kind))
	{
		fill(0x77);
		if (!kind && way("MEMORY") == "registered")
			registered_before().add(memory_, size);
	}
	~Device()
	{
		registered_before().drop(memory_);
		if (host_)
			munmap(memory_, pages(size_));
		else
			fake_free(memory_);
	}
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;
	char *get() const { return static_cast<char *>(memory_); }
	void fill(int with) { std::memset(seen(), with, size_); }
	void put(const std::string &bytes) { std::memcpy(seen(), bytes.data(), bytes.size()); }
	std::string bytes(size_t at, size_t n) const { return std::string(seen() + at, n); }
	bool untouched(size_t from, size_t to) const
	{
		for (size_t i = from; i < to; i++)
			if (seen()[i] != 0x77)
				return false;
		return true;
	}

private:
	// Followed by an inaccessible page.
	static size_t pages(size_t size) { return (size + 4095) / 4096 * 4096 + 4096; }
	static void *host_memory(size_t size)
	{
		void *const memory = mmap(nullptr, pages(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		EXPECT_EQ(mprotect(memory, pages(size) - 4096, PROT_READ | PROT_WRITE), 0);
		return memory;
	}
	char *seen() const { return host_ ? static_cast<char *>(memory_) : fake_peek(memory_); }

	const size_t size_;
	const bool host_;
	void *const memory_;
};

class Cufile : public ::testing::Test
{
protected:
	Cufile() : dir_(fs::temp_directory_path() / ("cufile-" + std::to_string(getpid())))
	{
		fs::create_directories(dir_);
		json(way("JSON").empty() ? "{}" : way("JSON"));
		setenv("CUFILE_ENV_PATH_JSON", (dir_ / "cufile.json").c_str(), 1);
		fake_initialized(1);
		fake_set_current(0);
	}
	void SetUp() override
	{
		if (!way("ANSWERS").empty())
			counters_.begin();
	}
	void TearDown() override
	{
		if (!way("ANSWERS").empty())
			counters_.tell();
	}
	~Cufile() override
	{
		fake_fail(nullptr, 0, 0); // an injected failure that this test did not use must not hit the next one
		while (lib().cuFileUseCount() > 0)
			lib().cuFileDriverClose_v2();
		EXPECT_EQ(fake_live(), 0) << "a stream, an event or pinned memory is left";
		EXPECT_EQ(fake_wrongs(), 0) << "a call that a real driver forbids";
		// Threads are still listed until the kernel has removed them.
		for (int i = 0; i < 100 && count_threads("peerdma-io"); i++)
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		EXPECT_EQ(count_threads("peerdma-io"), 0) << "a thread is left";
		for (const int fd : fds_)
			close(fd);
		lib().cuFileSetStatsLevel(0);
		fs::remove_all(dir_);
	}

	fs::path path(const std::string &name) const { return dir_ / name; }
	bool has_direct() const
	{
		std::ofstream(path("probe")) << "x";
		const int probe = open(path("probe").c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
		return probe >= 0 && !close(probe);
	}
	void json(const std::string &text) { std::ofstream(dir_ / "cufile.json") << text; }

	int open_file(const std::string &name, const std::string &bytes, int flags = O_RDWR)
	{
		std::ofstream(path(name), std::ios::binary) << bytes;
		const int fd = open(path(name).c_str(), flags | O_CLOEXEC);
		EXPECT_GE(fd, 0) << std::strerror(errno);
		fds_.push_back(fd);
		return fd;
	}
	std::string content(const std::string &name)
	{
		std::ifstream in(path(name), std::ios::binary);
		return std::string(std::istreambuf_iterator<char>(in), {});
	}
	static CUfileDescr_t descr(int fd, int type = CU_FILE_HANDLE_TYPE_OPAQUE_FD)
	{
		CUfileDescr_t d = {};
		d.type = static_cast<CUfileFileHandleType>(type);
		d.handle.fd = fd;
		return d;
	}
	// Of a file system of the program's own.
	static CUfileDescr_t descr(const CUfileFSOps_t &ops, void *handle = nullptr)
	{
		CUfileDescr_t d = {};
		d.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
		d.handle.handle = handle;
		d.fs_ops = &ops;
		return d;
	}
	static int add(int fd, CUfileHandle_t &fh, int type = CU_FILE_HANDLE_TYPE_OPAQUE_FD)
	{
		CUfileDescr_t d = descr(fd, type);
		return lib().cuFileHandleRegister(&fh, &d).err;
	}
	CUfileHandle_t handle(const std::string &name, const std::string &bytes, int flags = O_RDWR)
	{
		CUfileHandle_t fh = nullptr;
		const bool own = way("FILES") == "own";
		const int fd = open_file(name, bytes, own ? flags & ~O_DIRECT : flags);
		if (own) {
			static const CUfileFSOps_t ops = {nullptr, nullptr, nullptr, own_read, own_write};
			CUfileDescr_t d = descr(ops, reinterpret_cast<void *>(static_cast<intptr_t>(fd)));
			EXPECT_EQ(code(lib().cuFileHandleRegister, &fh, &d), 0);
		} else {
			EXPECT_EQ(add(fd, fh), 0);
		}
		return fh;
	}
	static ssize_t read(CUfileHandle_t fh, void *base, size_t size, off_t from, off_t to = 0)
	{
		return told(lib().cuFileRead(fh, base, size, from, to));
	}
	static ssize_t write(CUfileHandle_t fh, void *base, size_t size, off_t to, off_t from = 0)
	{
		return told(lib().cuFileWrite(fh, base, size, to, from));
	}

	const fs::path dir_;
	std::vector<int> fds_;
	Counters counters_;
};

// Batches of reads and writes of one memory and one file.
class Batches : public Cufile
{
protected:
	Batches() : bytes_(pattern(4 << 20)), memory_(4 << 20) { fh_ = handle("f", bytes_); }
	~Batches() override
	{
		for (const auto id : ids_)
			lib().cuFileBatchIODestroy(id);
	}

	CUfileBatchHandle_t set_up(unsigned nr)
	{
		CUfileBatchHandle_t id = nullptr;
		EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &id, nr), 0);
		ids_.push_back(id);
		return id;
	}
	CUfileIOParams_t io(size_t size, off_t file, off_t at, uintptr_t cookie, int opcode = CUFILE_READ)
	{
		CUfileIOParams_t one = {};
		one.mode = CUFILE_BATCH;
		one.u.batch.devPtr_base = memory_.get();
		one.u.batch.file_offset = file;
		one.u.batch.devPtr_offset = at;
		one.u.batch.size = size;
		one.fh = fh_;
		one.opcode = static_cast<CUfileOpcode_t>(opcode);
		one.cookie = reinterpret_cast<void *>(cookie);
		return one;
	}
	// Reads of 10 bytes at multiples of these steps in the file and in memory. The cookies are their numbers.
	std::vector<CUfileIOParams_t> reads(unsigned nr, off_t file_step, off_t memory_step)
	{
		std::vector<CUfileIOParams_t> ios;
		for (unsigned i = 0; i < nr; i++)
			ios.push_back(io(10, i * file_step, i * memory_step, i));
		return ios;
	}
	static int submit(CUfileBatchHandle_t id, std::vector<CUfileIOParams_t> &ios)
	{
		return code(lib().cuFileBatchIOSubmit, id, static_cast<unsigned>(ios.size()), ios.data(), 0);
	}
	// All events by cookie. A duplicate is a failure.
	std::map<uintptr_t, CUfileIOEvents_t> fetch(CUfileBatchHandle_t id, unsigned nr, unsigned at_once = 1)
	{
		std::map<uintptr_t, CUfileIOEvents_t> all;
		while (all.size() < nr) {
			CUfileIOEvents_t events[128];
			unsigned n = std::max(16U, at_once);
			if (code(lib().cuFileBatchIOGetStatus, id, at_once, &n, events, nullptr)) {
				ADD_FAILURE() << "GetStatus, with " << all.size() << " of " << nr;
				break;
			}
			for (unsigned i = 0; i < n; i++)
				EXPECT_TRUE(
					all.emplace(reinterpret_cast<uintptr_t>(events[i].cookie), events[i]).second);
		}
		return all;
	}

	// Collects the events of a canceled batch as Mooncake does: polls without a minimum until every entry is
	// reported.
	static void poll(CUfileBatchHandle_t id, unsigned nr, std::map<uintptr_t, CUfileIOEvents_t> &all)
	{
		for (int i = 0; i < 20000 && all.size() < nr; i++) {
			CUfileIOEvents_t events[128];
			unsigned n = 128;
			ASSERT_EQ(code(lib().cuFileBatchIOGetStatus, id, 0, &n, events, nullptr), 0);
			for (unsigned e = 0; e < n; e++)
				EXPECT_TRUE(
					all.emplace(reinterpret_cast<uintptr_t>(events[e].cookie), events[e]).second);
			usleep(n ? 0 : 1000);
		}
		EXPECT_EQ(all.size(), nr);
	}

	const std::string bytes_;
	Device memory_;
	CUfileHandle_t fh_;
	std::vector<CUfileBatchHandle_t> ids_;
};

// A file system whose reads block until the test opens the gate.
struct Gate {
	std::atomic<int> inside{0}, open{0};
	std::atomic<int> some{0}; // number of reads to pass while the gate is closed
};

inline ssize_t gate_read(const void *handle, char *to, size_t size, off_t, const cufileRDMAInfo_t *)
{
	auto *gate = static_cast<Gate *>(const_cast<void *>(handle));
	gate->inside++;
	while (!gate->open && gate->some.fetch_sub(1) <= 0) {
		gate->some++;
		usleep(1000);
	}
	std::memset(to, 'g', size);
	return static_cast<ssize_t>(size);
}

class Gated : public Batches
{
protected:
	Gated()
	{
		ops_.read = gate_read;
		CUfileDescr_t d = descr(ops_, &gate_);
		EXPECT_EQ(code(lib().cuFileHandleRegister, &fh_, &d), 0);
	}
	~Gated() override { gate_.open = 1; }
	// Submits, and waits until that many reads wait at the gate.
	void begin(CUfileBatchHandle_t id, std::vector<CUfileIOParams_t> &ios, int nr = 1)
	{
		ASSERT_EQ(submit(id, ios), 0);
		while (gate_.inside < nr)
			usleep(1000);
	}
	Gate gate_;
	CUfileFSOps_t ops_ = {};
};

class Streams : public Cufile
{
protected:
	Streams() : bytes_(pattern(1 << 20)), memory_(1 << 20), stream_(fake_stream(0)) { fh_ = handle("f", bytes_); }
	~Streams() override
	{
		fake_sync(stream_);
		lib().cuFileDriverClose_v2();
		fake_stream_destroy(stream_);
	}
	int read_async(void *stream)
	{
		return lib()
			.cuFileReadAsync(fh_, memory_.get(), &size_, &file_, &at_, &result_,
					 static_cast<CUstream>(stream))
			.err;
	}
	ssize_t result_of_read(void *stream)
	{
		EXPECT_EQ(read_async(stream), 0);
		fake_sync(stream);
		return result_;
	}

	const std::string bytes_;
	Device memory_;
	void *const stream_;
	CUfileHandle_t fh_;
	size_t size_ = 1000;
	off_t file_ = 10, at_ = 100;
	ssize_t result_ = 4711;
};

// Blocks a stream until the test releases it.
struct Hold {
	std::atomic<bool> go{false};
	explicit Hold(void *stream)
	{
		using Launch = int (*)(void *, void (*)(void *), void *);
		const auto launch = reinterpret_cast<Launch>(dlsym(lib().cuda, "cuLaunchHostFunc"));
		launch(
			stream,
			[](void *arg) {
				while (!static_cast<Hold *>(arg)->go)
					usleep(1000);
			},
			this);
	}
};

// A userspace file system with one file in memory.
struct Shelf {
	std::string bytes;
	size_t most = SIZE_MAX;
	int fail = 0;
};

inline ssize_t shelf_read(const void *handle, char *to, size_t size, off_t from, const cufileRDMAInfo_t *info)
{
	const auto *shelf = static_cast<const Shelf *>(handle);
	if (shelf->fail || info)
		return shelf->fail;
	if (static_cast<size_t>(from) >= shelf->bytes.size())
		return 0;
	return static_cast<ssize_t>(shelf->bytes.copy(to, std::min(size, shelf->most), static_cast<size_t>(from)));
}

inline ssize_t shelf_write(const void *handle, const char *from, size_t size, off_t to, const cufileRDMAInfo_t *)
{
	auto *shelf = static_cast<Shelf *>(const_cast<void *>(handle));
	if (shelf->fail) {
		errno = ENOSPC;
		return -1;
	}
	shelf->bytes.resize(std::max(shelf->bytes.size(), static_cast<size_t>(to) + size));
	shelf->bytes.replace(static_cast<size_t>(to), size, from, size);
	return static_cast<ssize_t>(size);
}

inline int in_child(const std::function<int()> &what)
{
	const pid_t child = fork();
	if (!child)
		_exit(what());
	int status = 0;
	waitpid(child, &status, 0);
	return status;
}

} // namespace conformance
