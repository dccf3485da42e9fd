// SPDX-License-Identifier: MIT
//
// exits END CLOSE BUSY FILE [PLUGIN]: its main thread uses CUDA and libcufile, and the process ends while I/O is in
// progress. exits.sh runs each case in a process of its own.
//   END    how the process ends: return, exit, thread (exit() in another thread), callback (exit() in a host function),
//          leave (pthread_exit() in main()), quick (quick_exit()), now (_exit())
//   CLOSE  where the driver is closed: nobody, main (before the end),
//          first, last (atexit() before and after CUDA's first use),
//          static, late (destructors of static objects constructed before and after CUDA's first use),
//          local (destructor of a thread_local object), reset (main, after the device was reset and used again),
//          plugin, unload (destructor of a dlopen()ed library: at exit, by dlclose()), quick (at_quick_exit())
//   BUSY   I/O in progress: idle, reads, batch, stream, all
// Exits with status 42. Prints "closed N" for each cuFileDriverClose() that returned N, and "unloaded" after dlclose().
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "cuda.h"
#include "peerdma_cufile.h"

namespace
{

// Not through stdio, which may already be shut down.
void say(const std::string &line)
{
	if (write(1, (line + "\n").c_str(), line.size() + 1) < 0)
		_exit(3);
}

void close_driver() { say("closed " + std::to_string(cuFileDriverClose().err)); }

struct Closer {
	bool armed = false;
	~Closer()
	{
		if (armed)
			close_driver();
	}
};

} // namespace

#ifdef PLUGIN

namespace
{
Closer closer;
}
extern "C" void arm() { closer.armed = true; }

#else

namespace
{

constexpr size_t MiB = 1 << 20, piece = 256 << 10;
constexpr int status = 42;

Closer the_static;
thread_local Closer the_local;

#define MUST(condition) ((condition) ? void() : fail(#condition, __LINE__))
[[noreturn]] void fail(const char *what, int line)
{
	std::fprintf(stderr, "exits.cpp:%d: %s (errno %d)\n", line, what, errno);
	_exit(1);
}

// Never freed: threads use it until the process is gone.
struct Ios {
	CUfileHandle_t file;
	CUdeviceptr memory;
	CUcontext context;
	std::atomic<bool> ending;
	std::atomic<int> begun[16]; // for each thread, by its `own`
	struct Async {
		size_t size = piece;
		off_t from = 0, to = 0;
		ssize_t result = 0;
	} async[256];
};
Ios *ios;

void *at(size_t offset) { return reinterpret_cast<void *>(ios->memory + offset); }

// An I/O that fails before the end is a test failure; afterwards the driver may be closed.
void goes_on(size_t own, bool right)
{
	if (!right && !ios->ending)
		fail("I/O failed before the end", __LINE__);
	if (!right)
		usleep(1000);
	ios->begun[own]++;
}

void reads(size_t own)
{
	for (;;)
		goes_on(own, cuFileRead(ios->file, at(own * MiB), MiB, 0, 0) == static_cast<ssize_t>(MiB));
}

bool submit(CUfileBatchHandle_t batch, size_t own)
{
	CUfileIOParams_t all[16] = {};
	for (size_t i = 0; i < 16; i++) {
		all[i].mode = CUFILE_BATCH;
		all[i].u.batch = {at(own * MiB), static_cast<off_t>(i * 64 << 10), static_cast<off_t>(i * 64 << 10),
				  64 << 10};
		all[i].fh = ios->file;
		all[i].opcode = CUFILE_READ;
	}
	return !cuFileBatchIOSubmit(batch, 16, all, 0).err;
}

void batches(size_t own)
{
	for (;;) {
		CUfileBatchHandle_t batch = nullptr;
		bool right = !cuFileBatchIOSetUp(&batch, 16).err && submit(batch, own);
		for (unsigned n = 0, done = 0; right && done < 16; done += n) {
			CUfileIOEvents_t events[16];
			n = 16;
			right = !cuFileBatchIOGetStatus(batch, 1, &n, events, nullptr).err && n;
		}
		if (batch)
			cuFileBatchIODestroy(batch);
		goes_on(own, right);
	}
}

bool read_async(CUstream stream, size_t own, Ios::Async &io)
{
	return !cuFileReadAsync(ios->file, at(own * MiB), &io.size, &io.from, &io.to, &io.result, stream).err;
}

void streams(size_t own)
{
	CUstream stream = nullptr;
	MUST(!cuCtxSetCurrent(ios->context) && !cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (;;)
		goes_on(own, read_async(stream, own, ios->async[own]) && !cuStreamSynchronize(stream) &&
				     ios->async[own].result == static_cast<ssize_t>(piece));
}

// Returns when each of the threads has done I/O, so that every thread has its stream before the process ends.
void start(void (*what)(size_t), size_t own, size_t threads)
{
	for (size_t i = 0; i < threads; i++)
		std::thread(what, own + i).detach();
	for (size_t i = 0; i < threads; i++)
		while (ios->begun[own + i] < 2)
			usleep(1000);
}

// Submits I/O that is never waited for.
void leave_behind(bool batch, bool stream)
{
	CUfileBatchHandle_t left = nullptr;
	if (batch)
		MUST(!cuFileBatchIOSetUp(&left, 16).err && submit(left, 14));
	CUstream own = nullptr;
	if (stream)
		MUST(!cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	for (size_t i = 64; stream && i < 256; i++)
		MUST(read_async(own, 15, ios->async[i]));
}

// The library's resources in the device's context are gone. I/O may fail, but must return.
void reset()
{
	MUST(!cuDevicePrimaryCtxReset(0) && !cuMemAlloc(&ios->memory, 16 * MiB));
	const ssize_t n = cuFileRead(ios->file, at(0), MiB, 0, 0);
	char back = 0;
	MUST(n == -1 || n == static_cast<ssize_t>(MiB));
	MUST(!cuMemcpyDtoH(&back, ios->memory + MiB - 1, 1) && (n == -1 || back == 'x'));
}

void prepare(const char *path)
{
	ios = new Ios();
	const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	const std::string bytes(MiB, 'x');
	MUST(fd >= 0 && pwrite(fd, bytes.data(), MiB, 0) == static_cast<ssize_t>(MiB));
	MUST(!cuInit(0) && !cuDevicePrimaryCtxRetain(&ios->context, 0) && !cuCtxSetCurrent(ios->context));
	MUST(!cuMemAlloc(&ios->memory, 16 * MiB));
	MUST(!cuFileDriverOpen().err);
	CUfileDescr_t descr = {};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	MUST(!cuFileHandleRegister(&ios->file, &descr).err);
	// Use CUDA in the main thread, directly and through the library.
	char back = 0;
	MUST(cuFileRead(ios->file, at(0), MiB, 0, 0) == static_cast<ssize_t>(MiB));
	MUST(!cuMemcpyDtoH(&back, ios->memory + MiB - 1, 1) && back == 'x');
}

} // namespace

int main(int argc, char **argv)
{
	MUST(argc >= 5);
	const std::string end = argv[1], who = argv[2], busy = argv[3];
	the_local.armed = who == "local";
	the_static.armed = who == "static";
	if (who == "first")
		MUST(!std::atexit(close_driver));
	prepare(argv[4]);
	if (who == "last")
		MUST(!std::atexit(close_driver));
	if (who == "quick")
		MUST(!std::at_quick_exit(close_driver));
	static Closer late; // its destructor is registered here
	late.armed = who == "late";
	void *plugin = nullptr;
	if (argc > 5) {
		plugin = dlopen(argv[5], RTLD_NOW);
		MUST(plugin);
		reinterpret_cast<void (*)()>(dlsym(plugin, "arm"))();
	}
	const bool all = busy == "all";
	if (all || busy == "reads")
		start(reads, 0, 4);
	if (all || busy == "batch")
		start(batches, 4, 2);
	if (all || busy == "stream")
		start(streams, 6, 2);
	leave_behind(all || busy == "batch", all || busy == "stream");
	ios->ending = true;

	if (who == "reset")
		reset();
	if (who == "main" || who == "reset")
		close_driver();
	if (who == "unload") {
		MUST(!dlclose(plugin));
		say("unloaded");
	}
	if (end == "exit")
		std::exit(status);
	if (end == "thread")
		std::thread([] { std::exit(status); }).detach();
	CUstream stream = nullptr;
	if (end == "callback")
		MUST(!cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) &&
		     !cuLaunchHostFunc(
			     stream, [](void *) { std::exit(status); }, nullptr));
	if (end == "thread" || end == "callback")
		for (;;)
			pause();
	if (end == "leave") {
		std::thread([] {
			usleep(20000);
			std::exit(status);
		}).detach();
		pthread_exit(nullptr);
	}
	if (end == "quick")
		std::quick_exit(status);
	if (end == "now")
		_exit(status);
	return status;
}

#endif
