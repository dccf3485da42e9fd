// SPDX-License-Identifier: MIT
//
// Reads in stream order on a real GPU, while the program makes calls that wait for the GPU inside the CUDA driver. The
// stream waits for the library, which copies in another stream; the three must not wait for each other in a circle.
// Each case has its own process, which is killed and reported as hanging after a timeout.
//   pressure LIBCUFILE FILE [CASE]        FILE is overwritten
#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.hpp"

namespace
{

using Address = unsigned long long;

constexpr size_t MiB = 1 << 20, file_size = 64 * MiB;
constexpr int patience = 120; // seconds

Address number(const void *at) { return reinterpret_cast<Address>(at); }

std::string random_bytes(size_t n)
{
	std::mt19937_64 random(5);
	std::string bytes(n, '\0');
	for (size_t i = 0; i + 8 <= n; i += 8) {
		const uint64_t word = random();
		std::memcpy(&bytes[i], &word, 8);
	}
	return bytes;
}

struct Driver : Cuda {
	int (*count)(int *) = find("cuDeviceGetCount");
	int (*stream)(void **, unsigned) = find("cuStreamCreate");
	int (*drop_stream)(void *) = find("cuStreamDestroy_v2");
	int (*sync)(void *) = find("cuStreamSynchronize");
	int (*free)(Address) = find("cuMemFree_v2");
	int (*free_host)(void *) = find("cuMemFreeHost");
	int (*make_context)(void **, unsigned, int) = find("cuCtxCreate_v2");
	int (*drop_context)(void *) = find("cuCtxDestroy_v2");
	int (*push)(void *) = find("cuCtxPushCurrent_v2");
	int (*event)(void **, unsigned) = find("cuEventCreate");
	int (*record)(void *, void *) = find("cuEventRecord");
	int (*wait)(void *) = find("cuEventSynchronize");
	int (*fill)(Address, unsigned char, size_t) = find("cuMemsetD8_v2");
	int devices()
	{
		int n = 0;
		must(!count(&n), "cuDeviceGetCount");
		return n;
	}
	// Makes the primary context current to the calling thread.
	void be_on(int which)
	{
		int handle = 0;
		void *own = nullptr;
		must(!device(&handle, which) && !retain(&own, handle) && !current(own), "no such GPU");
	}
	void *new_stream(unsigned flags = 1)
	{
		void *made = nullptr;
		must(!stream(&made, flags), "cuStreamCreate");
		return made;
	}
};

class World
{
public:
	World(const char *library, const char *path) : lib(library), bytes(random_bytes(file_size))
	{
		const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		must(fd >= 0 && pwrite(fd, bytes.data(), file_size, 0) == static_cast<ssize_t>(file_size), path);
		file = lib.file(fd);
		const int past = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
		direct = past >= 0 ? lib.file(past) : file;
	}

	Driver cuda;
	Library lib;
	const std::string bytes;
	CUfileHandle_t file, direct;
	decltype(&cuFileReadAsync) read_async = lib.find("cuFileReadAsync");
};

// One read in a stream; must not move or be destroyed before it has completed.
struct Read {
	size_t size = 0;
	off_t from = 0, to = 0;
	ssize_t result = 4711;

	bool begin(World &world, char *at, void *stream, size_t n, off_t where, bool past = false)
	{
		size = n;
		from = where;
		result = 4711;
		return !world.read_async(past ? world.direct : world.file, at, &size, &from, &to, &result,
					 static_cast<CUstream>(stream))
				.err;
	}
	bool came(World &world, const char *at) const
	{
		return result == static_cast<ssize_t>(size) &&
		       world.cuda.bytes(at, size) == world.bytes.substr(static_cast<size_t>(from), size);
	}
};

// Calls of the program that may wait for all work of the GPU.
bool beside(World &world, void *stream, bool past)
{
	char *const at = world.cuda.memory(16 * MiB);
	bool right = true;
	for (int i = 0; i < 60 && right; i++) {
		Read read;
		right = read.begin(world, at, stream, i % 2 ? 16 * MiB : 4096, i * 4096, past);
		char *const other = world.cuda.memory(2 * MiB);
		void *host = nullptr;
		switch (i % 6) {
		case 0:
			right = right && !world.cuda.free(number(other));
			break;
		case 1:
			right = right && !world.cuda.settle() && !world.cuda.free(number(other));
			break;
		case 2:
			right = right && !world.cuda.pinned(&host, 4 * MiB, 1) && !world.cuda.free_host(host) &&
				!world.cuda.free(number(other));
			break;
		case 3:
			right = right && !world.cuda.fill(number(other), 1, 2 * MiB) && !world.cuda.free(number(other));
			break;
		case 4: {
			void *event = nullptr;
			right = right && !world.cuda.event(&event, 0) && !world.cuda.record(event, stream) &&
				!world.cuda.wait(event) && !world.cuda.free(number(other));
			break;
		}
		default: {
			void *const short_lived = world.cuda.new_stream();
			right = right && !world.cuda.drop_stream(short_lived) && !world.cuda.free(number(other));
		}
		}
		right = right && !world.cuda.sync(stream) && read.came(world, at);
	}
	return right;
}

bool own_stream(World &world) { return beside(world, world.cuda.new_stream(), false); }
bool own_stream_direct(World &world) { return beside(world, world.cuda.new_stream(), true); }
bool blocking_stream(World &world) { return beside(world, world.cuda.new_stream(0), false); }
bool default_stream(World &world) { return beside(world, nullptr, false); }

// Many streams on every GPU with several reads each: more than the library has threads or memory for.
bool many(World &world)
{
	const int devices = world.cuda.devices();
	std::atomic<int> right{0};
	std::vector<std::thread> all;
	constexpr int threads = 8, reads = 12;
	for (int i = 0; i < threads; i++)
		all.emplace_back([&, i] {
			world.cuda.be_on(i % devices);
			void *const stream = world.cuda.new_stream();
			std::vector<char *> at;
			std::vector<Read> in(reads);
			bool good = true;
			for (int n = 0; n < reads; n++) {
				at.push_back(world.cuda.memory(8 * MiB));
				good = in[static_cast<size_t>(n)].begin(world, at.back(), stream,
									8 * MiB - static_cast<size_t>(n),
									static_cast<off_t>(n) * 4096, n % 2) &&
				       good;
			}
			for (int n = 0; n < 20; n++)
				must(!world.cuda.free(number(world.cuda.memory(MiB))), "cuMemFree");
			good = !world.cuda.sync(stream) && good;
			for (size_t n = 0; n < reads; n++)
				good = good && in[n].came(world, at[n]);
			right += good;
		});
	for (auto &thread : all)
		thread.join();
	return right == threads;
}

// The pool is full of buffers from the reads of another GPU.
bool in_turn(World &world)
{
	const int devices = world.cuda.devices();
	bool right = true;
	for (int round = 0; round < 6; round++) {
		std::vector<std::thread> all;
		std::atomic<int> good{0};
		for (int i = 0; i < 12; i++)
			all.emplace_back([&, i] {
				world.cuda.be_on(round % devices);
				char *const at = world.cuda.memory(8 * MiB);
				Read read;
				void *const stream = world.cuda.new_stream();
				const bool one = read.begin(world, at, stream, 8 * MiB, i * 4096);
				const bool two = world.lib.read(world.file, at, 4096, 0, 0) == 4096 || round;
				good += one && two && !world.cuda.sync(stream) &&
					read.result == 8 * static_cast<ssize_t>(MiB);
				must(!world.cuda.free(number(at)), "cuMemFree");
			});
		for (auto &thread : all)
			thread.join();
		right = right && good == 12;
	}
	return right;
}

// Non-primary contexts on each GPU, with each kind of call; then the context is destroyed.
bool contexts(World &world)
{
	bool right = true;
	for (int device = 0; device < world.cuda.devices(); device++) {
		int handle = 0;
		void *context = nullptr;
		must(!world.cuda.device(&handle, device) && !world.cuda.make_context(&context, 0, handle),
		     "cuCtxCreate");
		char *const at = world.cuda.memory(8 * MiB);
		right = right && world.lib.read(world.file, at, 8 * MiB, 4096, 0) == 8 * static_cast<ssize_t>(MiB) &&
			world.cuda.bytes(at, 8 * MiB) == world.bytes.substr(4096, 8 * MiB);
		right = right && !world.lib.add_buffer(at, 8 * MiB, 0).err &&
			world.lib.read(world.direct, at, MiB, 8192, 4096) == MiB &&
			world.cuda.bytes(at + 4096, MiB) == world.bytes.substr(8192, MiB);
		Read read;
		void *const stream = world.cuda.new_stream();
		right = right && read.begin(world, at, stream, 5 * MiB, 12345) && !world.cuda.sync(stream) &&
			read.came(world, at);
		CUfileBatchHandle_t id = nullptr;
		CUfileIOParams_t ios[8] = {};
		for (int i = 0; i < 8; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].fh = world.file;
			ios[i].opcode = CUFILE_READ;
			ios[i].u.batch = {at, i * 70000L, i * 65536L, 65536};
		}
		right = right && !world.lib.set_up(&id, 8).err && !world.lib.submit(id, 8, ios, 0).err;
		CUfileIOEvents_t events[8];
		unsigned n = 8;
		right = right && !world.lib.status(id, 8, &n, events, nullptr).err && n == 8;
		for (int i = 0; right && i < 8; i++)
			right = world.cuda.bytes(at + i * 65536, 65536) ==
				world.bytes.substr(static_cast<size_t>(i) * 70000, 65536);
		// This frees the context's memory, including the library's in it.
		must(!world.cuda.drop_context(context), "cuCtxDestroy");
		world.cuda.enter();
		char *const after = world.cuda.memory(MiB);
		right = right && world.lib.read(world.file, after, MiB, 0, 0) == MiB &&
			world.cuda.bytes(after, MiB) == world.bytes.substr(0, MiB);
		// The registered memory no longer exists.
		right = right && world.lib.read(world.file, at, 4096, 0, 0) < 0;
	}
	return right;
}

// Memory that the stream's kernels cannot access: that of another context on the same GPU, and addresses beyond an
// allocation.
bool out_of_reach(World &world)
{
	void *context = nullptr;
	int handle = 0;
	char *const at = world.cuda.memory(8 * MiB);
	must(!world.cuda.device(&handle, 0) && !world.cuda.make_context(&context, 0, handle), "cuCtxCreate");
	void *const stream = world.cuda.new_stream();
	Read read;
	bool right = read.begin(world, at, stream, 8 * MiB, 777) && !world.cuda.sync(stream);
	world.cuda.enter();
	right = right && read.came(world, at);
	// The first half is in the allocation, the rest beyond it.
	must(!world.cuda.fill(number(at), 'z', 8 * MiB), "cuMemsetD8");
	void *const own = world.cuda.new_stream();
	const bool asked = read.begin(world, at + 4 * MiB, own, 512 * MiB, 0);
	right = right && asked && !world.cuda.sync(own) && read.result != static_cast<ssize_t>(512 * MiB) &&
		!world.cuda.settle();
	// Later I/O still works.
	right = right && read.begin(world, at, own, MiB, 0) && !world.cuda.sync(own) && read.came(world, at);
	return right;
}

struct Case {
	const char *name;
	bool (*run)(World &);
	const char *variable; // environment variable to set to 1; "": none
};

constexpr Case cases[] = {{"a stream of its own", own_stream, ""},
			  {"a stream of its own, past the page cache", own_stream_direct, ""},
			  {"a stream that waits for the default one", blocking_stream, ""},
			  {"the default stream", default_stream, ""},
			  {"a stream, one connection to the GPU", own_stream, "CUDA_DEVICE_MAX_CONNECTIONS"},
			  {"the default stream, one connection", default_stream, "CUDA_DEVICE_MAX_CONNECTIONS"},
			  {"many streams on each GPU", many, ""},
			  {"many streams on each GPU, one connection", many, "CUDA_DEVICE_MAX_CONNECTIONS"},
			  {"each GPU in its turn", in_turn, ""},
			  {"contexts of the program's own", contexts, ""},
			  {"what the stream cannot reach", out_of_reach, ""}};

// Runs a case in its own process: the exit status, or -1 if it had to be killed.
int in_process(char **argv, size_t which)
{
	const std::string name = std::to_string(which);
	const pid_t child = fork();
	if (!child) {
		if (*cases[which].variable)
			setenv(cases[which].variable, "1", 1);
		execl("/proc/self/exe", argv[0], argv[1], argv[2], name.c_str(), nullptr);
		_exit(127);
	}
	for (int i = 0; i < patience * 10; i++) {
		int status = 0;
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
		usleep(100000);
	}
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
	return -1;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 4) {
		World world(argv[1], argv[2]);
		return !cases[std::strtoul(argv[3], nullptr, 10)].run(world);
	}
	if (argc != 3)
		die("pressure LIBCUFILE FILE");
	unsigned n = 0, bad = 0;
	for (const Case &one : cases) {
		const int status = in_process(argv, n);
		bad += status != 0;
		std::printf("%sok %u - %s%s\n", status ? "not " : "", ++n, one.name,
			    status < 0 ? ": it hangs" :
			    status     ? (": status " + std::to_string(status)).c_str() :
					 "");
		std::fflush(stdout);
	}
	std::printf("1..%u\n", n);
	return bad != 0;
}
