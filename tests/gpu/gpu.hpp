// SPDX-License-Identifier: MIT
//
// The CUDA driver and a libcufile loaded by dlopen, with the calls that all programs here need. On an error a program
// prints the reason and exits.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cufile.h"

[[noreturn]] inline void die(const std::string &what)
{
	std::fprintf(stderr, "%s (%s)\n", what.c_str(), std::strerror(errno));
	std::exit(1);
}

inline void must(bool good, const std::string &what)
{
	if (!good)
		die(what);
}

// A function of any type.
struct Symbol {
	void *address;
	template <class Function> operator Function *() const { return reinterpret_cast<Function *>(address); }
};

inline Symbol find_in(void *library, const char *name)
{
	const Symbol symbol{dlsym(library, name)};
	must(symbol.address, std::string("no ") + name);
	return symbol;
}

inline void *load(const char *path, int flags)
{
	void *const library = dlopen(path, RTLD_NOW | flags);
	if (!library)
		die(dlerror());
	return library;
}

// Of this process, all threads.
inline double cpu_seconds()
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
	       static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

struct Cost {
	double time, cpu; // seconds
};

// Runs body(thread, stop) on each thread; sets stop at the time limit, and waits until all have returned.
template <class Body> Cost run_threads(unsigned threads, double limit, Body &&body)
{
	std::atomic<bool> stop{false};
	const double cpu = cpu_seconds();
	const auto start = Clock::now();
	std::vector<std::thread> all;
	for (unsigned t = 0; t < threads; t++)
		all.emplace_back([&, t] { body(t, stop); });
	while (seconds(start) < limit)
		usleep(5000);
	stop = true;
	for (auto &thread : all)
		thread.join();
	return {seconds(start), cpu_seconds() - cpu};
}

// The first device, with its primary context current to the calling thread.
struct Cuda {
	void *const driver = load("libcuda.so.1", RTLD_GLOBAL);
	int (*init)(unsigned) = find("cuInit");
	int (*device)(int *, int) = find("cuDeviceGet");
	int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain");
	int (*current)(void *) = find("cuCtxSetCurrent");
	int (*alloc)(unsigned long long *, size_t) = find("cuMemAlloc_v2");
	int (*in)(unsigned long long, const void *, size_t) = find("cuMemcpyHtoD_v2");
	int (*out)(void *, unsigned long long, size_t) = find("cuMemcpyDtoH_v2");
	int (*pinned)(void **, size_t, unsigned) = find("cuMemHostAlloc");
	int (*settle)() = find("cuCtxSynchronize");
	void *context = nullptr;

	Cuda()
	{
		int number = 0;
		must(!init(0) && !device(&number, 0) && !retain(&context, number), "no GPU");
		enter();
	}
	Symbol find(const char *name) const { return find_in(driver, name); }
	void enter() { must(!current(context), "cuCtxSetCurrent"); }
	char *memory(size_t size)
	{
		unsigned long long at = 0;
		must(!alloc(&at, size), "cuMemAlloc");
		return reinterpret_cast<char *>(at);
	}
	// cuMemcpy from pageable memory returns once the memory has been read, before the GPU has all of it. The
	// streams on which a libcufile copies do not wait for that.
	void put(char *to, const std::string &bytes)
	{
		must(!in(reinterpret_cast<unsigned long long>(to), bytes.data(), bytes.size()) && !settle(),
		     "cuMemcpyHtoD");
	}
	std::string bytes(const char *from, size_t n)
	{
		std::string all(n, '\0');
		must(!out(all.data(), reinterpret_cast<unsigned long long>(from), n), "cuMemcpyDtoH");
		return all;
	}
};

struct Library {
	void *const self;
	decltype(&cuFileDriverOpen) open = find("cuFileDriverOpen");
	decltype(&cuFileHandleRegister) add = find("cuFileHandleRegister");
	decltype(&cuFileBufRegister) add_buffer = find("cuFileBufRegister");
	decltype(&cuFileRead) read = find("cuFileRead");
	decltype(&cuFileWrite) write = find("cuFileWrite");
	decltype(&cuFileBatchIOSetUp) set_up = find("cuFileBatchIOSetUp");
	decltype(&cuFileBatchIOSubmit) submit = find("cuFileBatchIOSubmit");
	decltype(&cuFileBatchIOGetStatus) status = find("cuFileBatchIOGetStatus");

	explicit Library(const char *path) : self(load(path, RTLD_LOCAL)) {}
	Symbol find(const char *name) const { return find_in(self, name); }
	CUfileHandle_t file(int fd)
	{
		CUfileDescr_t descr = {};
		descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
		descr.handle.fd = fd;
		CUfileHandle_t fh = nullptr;
		const int error = add(&fh, &descr).err;
		must(!error, "cuFileHandleRegister " + std::to_string(error));
		return fh;
	}
};
