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

template <class Function> void get(void *library, Function &function, const char *name)
{
	function = reinterpret_cast<Function>(dlsym(library, name));
	must(function, std::string("no ") + name);
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
	void *driver;
	int (*init)(unsigned);
	int (*device)(int *, int);
	int (*retain)(void **, int);
	int (*current)(void *);
	int (*alloc)(unsigned long long *, size_t);
	int (*in)(unsigned long long, const void *, size_t);
	int (*out)(void *, unsigned long long, size_t);
	int (*pinned)(void **, size_t, unsigned);
	int (*settle)();
	void *context = nullptr;

	Cuda()
	{
		driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
		must(driver, "no libcuda.so.1");
		get(driver, init, "cuInit");
		get(driver, device, "cuDeviceGet");
		get(driver, retain, "cuDevicePrimaryCtxRetain");
		get(driver, current, "cuCtxSetCurrent");
		get(driver, alloc, "cuMemAlloc_v2");
		get(driver, in, "cuMemcpyHtoD_v2");
		get(driver, out, "cuMemcpyDtoH_v2");
		get(driver, pinned, "cuMemHostAlloc");
		get(driver, settle, "cuCtxSynchronize");
		int number = 0;
		must(!init(0) && !device(&number, 0) && !retain(&context, number), "no GPU");
		enter();
	}
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
	void *self;
	decltype(&cuFileDriverOpen) open;
	decltype(&cuFileHandleRegister) add;
	decltype(&cuFileBufRegister) add_buffer;
	decltype(&cuFileRead) read;
	decltype(&cuFileWrite) write;
	decltype(&cuFileBatchIOSetUp) set_up;
	decltype(&cuFileBatchIOSubmit) submit;
	decltype(&cuFileBatchIOGetStatus) status;

	explicit Library(const char *path)
	{
		self = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!self)
			die(dlerror());
		get(self, open, "cuFileDriverOpen");
		get(self, add, "cuFileHandleRegister");
		get(self, add_buffer, "cuFileBufRegister");
		get(self, read, "cuFileRead");
		get(self, write, "cuFileWrite");
		get(self, set_up, "cuFileBatchIOSetUp");
		get(self, submit, "cuFileBatchIOSubmit");
		get(self, status, "cuFileBatchIOGetStatus");
	}
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
