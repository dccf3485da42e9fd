// SPDX-License-Identifier: MIT
//
// Correctness and speed of a libcufile on a real GPU. The library is given by its path, so that two can be compared.
// The CUDA driver is loaded at run time, so that building needs no toolkit.
//   cufile_gpu LIBCUFILE verify FILE [MIB] [IOS] [SEED]    FILE is overwritten
//   cufile_gpu LIBCUFILE read|write|batch FILE SIZE THREADS SECONDS [direct]
//   cufile_gpu LIBCUFILE open FILE           DriverOpen and the first read
//   cufile_gpu naive read|write FILE SIZE THREADS SECONDS [direct]   pread and cuMemcpy, pinned
//   cufile_gpu copy SIZE SECONDS             copies from pinned memory to the device
// Prints one line of JSON.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.hpp"

namespace
{

int open_file(const char *path, bool direct)
{
	const int fd = open(path, O_RDWR | (direct ? O_DIRECT : 0) | O_CLOEXEC);
	must(fd >= 0, path);
	return fd;
}

// Calls io(thread, offset) on each thread until the time limit, at successive offsets, and prints the result.
template <class Io>
void measure(const char *what, size_t size, unsigned threads, double limit, size_t file_size, Io &&io,
	     bool direct = false)
{
	std::atomic<uint64_t> ios{0}, bytes{0};
	const auto [time, cpu] = run_threads(threads, limit, [&](unsigned t, const std::atomic<bool> &stop) {
		size_t at = t * size;
		while (!stop) {
			if (at + size > file_size)
				at = t * size;
			const ssize_t n = io(t, static_cast<off_t>(at));
			must(n == static_cast<ssize_t>(size), "an I/O came to " + std::to_string(n));
			ios++;
			bytes += size;
			at += size * threads;
		}
	});
	const double gb = static_cast<double>(bytes) / 1e9;
	std::printf("{\"what\": \"%s\", \"direct\": %s, \"size\": %zu, \"threads\": %u, \"us\": %.2f, \"gb_s\": %.3f, "
		    "\"cpu_s_per_gb\": %.4f}\n",
		    what, direct ? "true" : "false", size, threads, time * 1e6 * threads / static_cast<double>(ios),
		    gb / time, cpu / gb);
}

// Prints where the bytes differ from the expected ones.
void tell_wrong(const std::string &io, ssize_t n, const std::string &got, const std::string &want)
{
	const auto [at, wanted] = std::mismatch(got.begin(), got.end(), want.begin());
	const auto first = at - got.begin();
	long differing = 0;
	for (size_t i = 0; i < got.size(); i++)
		differing += got[i] != want[i];
	std::fprintf(stderr, "%s came to %zd; %ld bytes differ, the first at %td (%02x for %02x)\n", io.c_str(), n,
		     differing, first, at == got.end() ? 0U : static_cast<unsigned char>(*at),
		     at == got.end() ? 0U : static_cast<unsigned char>(*wanted));
}

void verify(Cuda &cuda, Library &library, const char *path, size_t mib, int ios, unsigned seed)
{
	const size_t file_size = mib << 20, memory_size = file_size + (file_size >> 2);
	std::mt19937_64 random(seed);
	std::string bytes(file_size, '\0');
	for (char &c : bytes)
		c = static_cast<char>(random());
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(fd >= 0 && pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), path);
	const CUfileHandle_t files[] = {library.file(fd), library.file(open_file(path, true))};
	char *const memory = cuda.memory(memory_size);
	const std::string before(memory_size, 'z');
	unsigned wrong = 0, done = 0;
	for (int registered = 0; registered < 2; registered++) {
		if (registered)
			must(!library.add_buffer(memory, memory_size, 0).err, "cuFileBufRegister");
		for (const CUfileHandle_t file : files) {
			for (int i = 0; i < ios / 4; i++) {
				const size_t limits[] = {100, 5000, 70000, file_size / 40, file_size / 2};
				const size_t size = 1 + random() % limits[random() % 5];
				const size_t align = random() % 2 ? 4096 : 1;
				const size_t at = random() % file_size / align * align;
				const size_t to = random() % (memory_size - size) / align * align;
				const size_t there = std::min(size, file_size - at);
				const std::string io = std::string(i % 3 ? "read" : "write") +
						       (file == files[1] ? ", O_DIRECT, " : ", ") +
						       (registered ? "registered, " : "") + std::to_string(size) +
						       " at " + std::to_string(at) + " to " + std::to_string(to);
				std::string want, after;
				ssize_t n;
				if (i % 3) {
					cuda.put(memory, before);
					n = library.read(file, memory, size, static_cast<off_t>(at),
							 static_cast<off_t>(to));
					after = cuda.bytes(memory, memory_size);
					want = before;
					want.replace(to, there, bytes, at, there);
				} else {
					std::string what(there, '\0');
					for (char &c : what)
						c = static_cast<char>(random());
					cuda.put(memory + to, what);
					n = library.write(file, memory, there, static_cast<off_t>(at),
							  static_cast<off_t>(to));
					bytes.replace(at, there, what);
					after.resize(file_size);
					must(pread(fd, after.data(), file_size, 0) == static_cast<ssize_t>(file_size),
					     path);
					want = bytes;
				}
				if (n != static_cast<ssize_t>(there) || after != want) {
					tell_wrong(io, n, after, want);
					wrong++;
				}
				done++;
			}
		}
	}
	std::printf("{\"what\": \"verify\", \"ios\": %u, \"wrong\": %u}\n", done, wrong);
	if (wrong)
		std::exit(1);
}

void batch(Cuda &cuda, Library &library, int fd, size_t size, double limit, size_t file_size, bool direct)
{
	constexpr unsigned n = 64;
	must(file_size >= n * size, "the file is too short");
	const CUfileHandle_t fh = library.file(fd);
	char *const memory = cuda.memory(n * size);
	library.add_buffer(memory, n * size, 0);
	CUfileBatchHandle_t id = nullptr;
	must(!library.set_up(&id, n).err, "cuFileBatchIOSetUp");
	std::vector<CUfileIOParams_t> ios(n);
	for (unsigned i = 0; i < n; i++) {
		ios[i] = {};
		ios[i].mode = CUFILE_BATCH;
		ios[i].fh = fh;
		ios[i].u.batch = {memory, static_cast<off_t>(i * size), static_cast<off_t>(i * size), size};
	}
	const auto one = [&](unsigned, off_t) -> ssize_t {
		if (library.submit(id, n, ios.data(), 0).err)
			return -1;
		unsigned done = 0;
		while (done < n) {
			CUfileIOEvents_t events[n];
			unsigned some = n;
			if (library.status(id, n - done, &some, events, nullptr).err)
				return -1;
			for (unsigned i = 0; i < some; i++)
				if (events[i].status != CUFILE_COMPLETE || events[i].ret != size)
					return -1;
			done += some;
		}
		return static_cast<ssize_t>(n * size);
	};
	measure("batch", n * size, 1, limit, n * size, one, direct);
}

} // namespace

int main(int argc, char **argv)
{
	const std::vector<std::string> args(argv + 1, argv + argc);
	const auto arg = [&](size_t i) {
		if (i >= args.size())
			die("too few arguments: see the top of tests/gpu/cufile_gpu.cpp");
		return args[i];
	};
	Cuda cuda;
	if (arg(0) == "copy") {
		const size_t size = std::stoul(arg(1));
		char *const to = cuda.memory(size);
		void *from = nullptr;
		must(!cuda.pinned(&from, size, 1), "cuMemHostAlloc");
		std::memset(from, 1, size);
		measure("copy", size, 1, std::stod(arg(2)), size, [&](unsigned, off_t) -> ssize_t {
			cuda.enter();
			return cuda.in(reinterpret_cast<unsigned long long>(to), from, size) ?
				       -1 :
				       static_cast<ssize_t>(size);
		});
		return 0;
	}
	const std::string what = arg(1), path = arg(2);
	const bool naive = arg(0) == "naive";
	if (naive && what != "read" && what != "write")
		die("naive: read or write");
	if (!naive && what == "verify") {
		Library library(args[0].c_str());
		const auto number = [&](size_t i, unsigned long other) {
			return i < args.size() ? std::stoul(args[i]) : other;
		};
		verify(cuda, library, path.c_str(), number(3, 40), static_cast<int>(number(4, 480)),
		       static_cast<unsigned>(number(5, 1)));
		return 0;
	}
	if (!naive && what == "open") {
		Library library(args[0].c_str());
		char *const memory = cuda.memory(4096);
		const int fd = open_file(path.c_str(), false);
		const auto start = Clock::now();
		must(!library.open().err, "cuFileDriverOpen");
		const double opened = seconds(start);
		must(library.read(library.file(fd), memory, 4096, 0, 0) == 4096, "the first read");
		std::printf("{\"what\": \"open\", \"open_ms\": %.3f, \"with_first_read_ms\": %.3f}\n", opened * 1e3,
			    seconds(start) * 1e3);
		return 0;
	}
	const size_t size = std::stoul(arg(3));
	const auto threads = static_cast<unsigned>(std::stoul(arg(4)));
	const double limit = std::stod(arg(5));
	const bool direct = args.size() > 6 && args[6] == "direct";
	const int fd = open_file(path.c_str(), direct);
	struct stat st;
	must(!fstat(fd, &st), path);
	const auto file_size = static_cast<size_t>(st.st_size);
	must(file_size >= size * threads, "the file is too short");
	std::vector<char *> memory;
	for (unsigned t = 0; t < threads; t++)
		memory.push_back(cuda.memory(size));
	if (naive) {
		std::vector<void *> host(threads);
		for (void *&one : host)
			must(!cuda.pinned(&one, size, 1), "cuMemHostAlloc");
		const auto one = [&](unsigned t, off_t at) -> ssize_t {
			cuda.enter();
			const auto device = reinterpret_cast<unsigned long long>(memory[t]);
			if (what == "write")
				return cuda.out(host[t], device, size) ? -1 : pwrite(fd, host[t], size, at);
			const ssize_t n = pread(fd, host[t], size, at);
			return n < 0 || cuda.in(device, host[t], size) ? -1 : n;
		};
		measure(("naive " + what).c_str(), size, threads, limit, file_size, one, direct);
		return 0;
	}
	Library library(args[0].c_str());
	must(!library.open().err, "cuFileDriverOpen");
	if (what == "batch") {
		batch(cuda, library, fd, size, limit, file_size, direct);
		return 0;
	}
	const CUfileHandle_t fh = library.file(fd);
	for (char *one : memory)
		must(!library.add_buffer(one, size, 0).err, "cuFileBufRegister");
	const auto one = [&](unsigned t, off_t at) {
		return what == "write" ? library.write(fh, memory[t], size, at, 0) :
					 library.read(fh, memory[t], size, at, 0);
	};
	measure(what.c_str(), size, threads, limit, file_size, one, direct);
	return 0;
}
