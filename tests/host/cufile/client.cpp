// SPDX-License-Identifier: MIT
//
// client CASE LIBCUFILE FILE SYMBOLS: loads libcufile.so.0 by dlopen only, as real programs do, each case in its own
// process. With a libcuda.so.1 in the library path it uses device memory, otherwise host memory. FILE is created anew;
// SYMBOLS lists the public symbols. Without arguments it lists its cases. clients.sh runs them.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peerdma_cufile.h"
#include "random_bytes.hpp"

namespace
{

const char *library_path, *file_path, *symbols_path, *self_path;

[[noreturn]] void fail(const char *what, int line)
{
	std::fprintf(stderr, "client.cpp:%d: %s (errno %d)\n", line, what, errno);
	std::exit(1);
}
#define MUST(condition) ((condition) ? void() : fail(#condition, __LINE__))

void *load(int flags)
{
	void *const library = dlopen(library_path, flags);
	if (!library)
		fail(dlerror(), __LINE__);
	return library;
}

// Symbols of one library, or of the whole program.
struct Calls {
	explicit Calls(void *in) : library(in) {}
	void *const library;

	template <class Function> Function *find(const char *name, Function *) const
	{
		auto *const function = reinterpret_cast<Function *>(dlsym(library, name));
		if (!function)
			fail(name, __LINE__);
		return function;
	}
#define CALL(name) decltype(&::name) name = find(#name, static_cast<decltype(&::name)>(nullptr))
	CALL(cuFileDriverOpen);
	CALL(cuFileDriverClose_v2);
	CALL(cuFileUseCount);
	CALL(cuFileDriverGetProperties);
	CALL(cuFileGetBARSizeInKB);
	CALL(cuFileGetParameterSizeT);
	CALL(cuFileHandleRegister);
	CALL(cuFileHandleDeregister);
	CALL(cuFileBufRegister);
	CALL(cuFileBufDeregister);
	CALL(cuFileRead);
	CALL(cuFileWrite);
	CALL(cuFileReadv);
	CALL(cuFileBatchIOSetUp);
	CALL(cuFileBatchIOSubmit);
	CALL(cuFileBatchIOGetStatus);
	CALL(cuFileBatchIODestroy);
	CALL(cuFileReadAsync);
	CALL(cuFileWriteAsync);
	CALL(cuFileStreamRegister);
	CALL(cuFileStreamDeregister);
	CALL(peerdma_cufile_explain);
#undef CALL
};

Calls loaded() { return Calls(load(RTLD_NOW | RTLD_LOCAL)); }

// The driver, if there is one.
struct Cuda {
	using Address = unsigned long long;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*alloc)(Address *, size_t) = nullptr;
	int (*copy)(Address, Address, size_t) = nullptr;
	int (*synchronize)(void *) = nullptr;

	Cuda()
	{
		if (!library)
			return;
		int (*init)(unsigned), (*retain)(void **, int), (*enter)(void *);
		get(init, "cuInit");
		get(retain, "cuDevicePrimaryCtxRetain");
		get(enter, "cuCtxSetCurrent");
		get(alloc, "cuMemAlloc_v2");
		get(copy, "cuMemcpy");
		get(synchronize, "cuStreamSynchronize");
		void *context = nullptr;
		MUST(!init(0) && !retain(&context, 0) && !enter(context));
	}
	template <class Function> void get(Function *&function, const char *name) const
	{
		function = reinterpret_cast<Function *>(dlsym(library, name));
		MUST(function);
	}
};

const Cuda &cuda()
{
	static const Cuda the_driver;
	return the_driver;
}

// Freed only at process exit.
class Memory
{
public:
	explicit Memory(size_t size) : memory_(static_cast<char *>(cuda().library ? nullptr : std::malloc(size)))
	{
		Cuda::Address at = 0;
		if (cuda().library) {
			MUST(!cuda().alloc(&at, size));
			memory_ = reinterpret_cast<char *>(at);
		}
		put(0, std::string(size, 0x77));
	}
	char *get() const { return memory_; }
	void put(size_t at, const std::string &bytes) { copy(memory_ + at, bytes.data(), bytes.size()); }
	std::string bytes(size_t at, size_t size) const
	{
		std::string all(size, '\0');
		copy(all.data(), memory_ + at, size);
		return all;
	}

private:
	static void copy(char *to, const char *from, size_t size)
	{
		if (cuda().library)
			MUST(!cuda().copy(reinterpret_cast<Cuda::Address>(to), reinterpret_cast<Cuda::Address>(from),
					  size));
		else
			std::memcpy(to, from, size);
	}
	char *memory_;
};

const std::string &pattern()
{
	static const std::string all = random_bytes(3000000);
	return all;
}

int open_file()
{
	std::ofstream(file_path, std::ios::binary) << pattern();
	const int fd = open(file_path, O_RDWR | O_CLOEXEC);
	MUST(fd >= 0);
	return fd;
}

std::string content()
{
	std::ifstream in(file_path, std::ios::binary);
	return std::string(std::istreambuf_iterator<char>(in), {});
}

CUfileDescr_t descr_of(int fd)
{
	CUfileDescr_t descr = {};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	return descr;
}

CUfileHandle_t add(const Calls &calls, int fd)
{
	CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t fh = nullptr;
	MUST(!calls.cuFileHandleRegister(&fh, &descr).err);
	return fh;
}

// A short read, a long one and a write: the minimum that a working library does.
void use(const Calls &calls)
{
	const int fd = open_file();
	const CUfileHandle_t fh = add(calls, fd);
	Memory memory(2500000);
	MUST(calls.cuFileRead(fh, memory.get(), 5000, 77, 100) == 5000);
	MUST(memory.bytes(100, 5000) == pattern().substr(77, 5000));
	MUST(calls.cuFileRead(fh, memory.get(), 2500000, 4096, 0) == 2500000);
	MUST(memory.bytes(0, 2500000) == pattern().substr(4096, 2500000));
	MUST(calls.cuFileWrite(fh, memory.get(), 9000, 3000000, 11) == 9000);
	MUST(content() == pattern() + pattern().substr(4096 + 11, 9000));
	calls.cuFileHandleDeregister(fh);
	close(fd);
}

// --- How it is loaded

// Loaded and unloaded repeatedly: the library stays loaded, at the same address and with its state.
void again()
{
	void *const first = load(RTLD_NOW | RTLD_LOCAL);
	const Calls calls(first);
	MUST(!calls.cuFileDriverOpen().err);
	MUST(!dlclose(first));
	MUST(calls.cuFileUseCount() == 1);
	void *const second = load(RTLD_LAZY | RTLD_LOCAL);
	MUST(dlsym(second, "cuFileRead") == reinterpret_cast<void *>(calls.cuFileRead));
	MUST(!dlclose(second));
	MUST(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD));
	use(calls);
	MUST(calls.cuFileUseCount() == 1);
	MUST(!calls.cuFileDriverClose_v2().err);
}

// Closed by one thread while another does I/O.
void closed_meanwhile()
{
	const Calls calls = loaded();
	MUST(!dlclose(calls.library));
	std::thread closer([&] {
		for (int i = 0; i < 200; i++)
			MUST(!dlclose(load(RTLD_NOW)));
	});
	use(calls);
	closer.join();
}

// Loaded with RTLD_LOCAL, then with RTLD_GLOBAL: every public symbol is found globally, with the same address.
void global()
{
	MUST(!dlsym(RTLD_DEFAULT, "cuFileRead"));
	void *const own = load(RTLD_NOW | RTLD_LOCAL);
	MUST(!dlsym(RTLD_DEFAULT, "cuFileRead"));
	load(RTLD_NOW | RTLD_GLOBAL);
	std::ifstream list(symbols_path);
	int n = 0;
	for (std::string name; std::getline(list, name);) {
		if (name.empty() || name[0] == '#')
			continue;
		MUST(dlsym(RTLD_DEFAULT, name.c_str()));
		MUST(dlsym(RTLD_DEFAULT, name.c_str()) == dlsym(own, name.c_str()));
		n++;
	}
	MUST(n >= 43);
	use(Calls(RTLD_DEFAULT));
}

// Preloaded by LD_PRELOAD. A dlopen by name returns the same library.
void preloaded()
{
	const Calls calls(RTLD_DEFAULT);
	void *const by_name = dlopen("libcufile.so.0", RTLD_NOW);
	MUST(by_name);
	MUST(dlsym(by_name, "cuFileRead") == reinterpret_cast<void *>(calls.cuFileRead));
	use(calls);
}

// --- First calls and missing dependencies

void unopened()
{
	const Calls calls = loaded();
	const int fd = open_file();
	Memory memory(4096);
	errno = 0;
	MUST(calls.cuFileRead(memory.get(), memory.get(), 100, 0, 0) == -1 && errno == 5027);
	MUST(calls.cuFileUseCount() == 0);
	MUST(calls.cuFileBufDeregister(memory.get()).err == 5024);
	const std::function<CUfileError_t()> firsts[] = {
		[&] {
			CUfileHandle_t fh;
			CUfileDescr_t descr = descr_of(fd);
			return calls.cuFileHandleRegister(&fh, &descr);
		},
		[&] { return calls.cuFileBufRegister(memory.get(), 4096, 0); },
		[&] {
			CUfileBatchHandle_t batch;
			return calls.cuFileBatchIOSetUp(&batch, 4);
		},
	};
	MUST(!calls.cuFileStreamRegister(nullptr, 0).err && !calls.cuFileStreamDeregister(nullptr).err);
	MUST(calls.cuFileUseCount() == 0); // does not count as a first call
	for (const auto &first : firsts) {
		MUST(calls.cuFileUseCount() == 0);
		MUST(!first().err);
		MUST(calls.cuFileUseCount() == 1);
		MUST(!calls.cuFileDriverClose_v2().err);
	}
	use(calls);
	MUST(calls.cuFileUseCount() == 1); // left open when the process ends
}

void odd_configurations()
{
	const Calls calls = loaded();
	for (const char *path : {"/", "/dev/null"}) {
		setenv("CUFILE_ENV_PATH_JSON", path, 1);
		MUST(calls.cuFileDriverOpen().err == 5002 && calls.cuFileUseCount() == 0);
	}
	for (const char *path : {"/nowhere/cufile.json", ""}) {
		setenv("CUFILE_ENV_PATH_JSON", path, 1);
		MUST(!calls.cuFileDriverOpen().err);
		use(calls);
		MUST(!calls.cuFileDriverClose_v2().err);
	}
}

void driver()
{
	const Calls calls = loaded();
	CUfileDrvProps_t props = {};
	MUST(!calls.cuFileDriverGetProperties(&props).err && calls.cuFileUseCount() == 0);
	MUST(!calls.cuFileDriverOpen().err && !calls.cuFileDriverOpen().err && calls.cuFileUseCount() == 2);
	MUST(!calls.cuFileDriverGetProperties(&props).err && props.fflags == 0xf);
	// The stand-in's devices are no PCI functions of this machine.
	size_t kb = 4711;
	MUST(calls.cuFileGetBARSizeInKB(0, &kb).err == 5029 && kb == 4711);
	MUST(!calls.cuFileDriverClose_v2().err && !calls.cuFileDriverClose_v2().err);
	MUST(calls.cuFileDriverClose_v2().err == 5001);
}

// --- Memory

// Host memory, with and without a driver.
void host_memory()
{
	const Calls calls = loaded();
	const int fd = open_file();
	const CUfileHandle_t fh = add(calls, fd);
	std::vector<char> memory(2000000), more(1000);
	MUST(calls.cuFileRead(fh, memory.data(), memory.size(), 1, 0) == 2000000);
	MUST(!std::memcmp(memory.data(), pattern().data() + 1, memory.size()));
	struct peerdma_cufile_route route = {};
	route.size = sizeof(route);
	MUST(!calls.peerdma_cufile_explain(fh, memory.data(), 100, 0, 0, &route));
	MUST(route.route == PEERDMA_ROUTE_POSIX && route.why == PEERDMA_CUFILE_WHY_HOST_MEMORY);
	MUST(!calls.cuFileBufRegister(memory.data(), memory.size(), 0).err);
	MUST(calls.cuFileRead(fh, memory.data(), 1000, 50, 1999000) == 1000);
	MUST(!std::memcmp(memory.data() + 1999000, pattern().data() + 50, 1000));
	const CUfileIOVec_t vector[] = {{memory.data(), 10}, {more.data(), 1000}};
	MUST(calls.cuFileReadv(fh, vector, 2, 500, 0) == 1010);
	MUST(!std::memcmp(more.data(), pattern().data() + 510, 1000));
	MUST(calls.cuFileWrite(fh, more.data(), 1000, 0, 0) == 1000);
	MUST(content() == pattern().substr(510, 1000) + pattern().substr(1000));
}

// By a registered base and an offset, by pointers into it, and by unregistered memory.
void places()
{
	const Calls calls = loaded();
	const CUfileHandle_t fh = add(calls, open_file());
	constexpr size_t size = 1 << 20, half = size / 2;
	Memory memory(2 * size);
	char *const base = memory.get();
	const auto came = [&](char *from, size_t offset, size_t n, off_t at) {
		memory.put(0, std::string(2 * size, 0x77));
		MUST(calls.cuFileRead(fh, from, n, at, static_cast<off_t>(offset)) == static_cast<ssize_t>(n));
		const size_t to = static_cast<size_t>(from - base) + offset;
		MUST(memory.bytes(to, n) == pattern().substr(static_cast<size_t>(at), n));
		MUST(memory.bytes(0, to) == std::string(to, 0x77));
		MUST(memory.bytes(to + n, 2 * size - to - n) == std::string(2 * size - to - n, 0x77));
	};
	const auto everywhere = [&] {
		came(base, 0, size, 0);
		came(base, half, half, 12345); // up to its end
		came(base, 1, 4097, 3);
		came(base + half, 0, size, 7); // through a pointer inside, only the allocation bounds the I/O
		came(base + half + 1, 4095, 100, 4096);
	};
	everywhere();
	MUST(!calls.cuFileBufRegister(base, size, 0).err);
	everywhere();
	errno = 0;
	MUST(calls.cuFileRead(fh, base, half + 1, 0, half) == -1 && errno == 5017);
	MUST(calls.cuFileBufDeregister(base + half).err == 5024);
	// A nested registration: the same bytes by two bases.
	MUST(!calls.cuFileBufRegister(base + half, 100, 0).err);
	came(base, half, half, 1);
	came(base + half, 40, 60, 2);
	errno = 0;
	MUST(calls.cuFileRead(fh, base + half, 61, 0, 40) == -1 && errno == 5017);
	MUST(!calls.cuFileBufDeregister(base + half).err);
	memory.put(half, pattern().substr(100, 5000));
	MUST(calls.cuFileWrite(fh, base, 5000, 0, half) == 5000);
	MUST(calls.cuFileWrite(fh, base + half, 4999, 5000, 1) == 4999);
	MUST(content() == pattern().substr(100, 5000) + pattern().substr(101, 4999) + pattern().substr(9999));
	MUST(!calls.cuFileBufDeregister(base).err);
}

// --- Batches and streams

// Polled with minimum 0 and timeout zero, a few events at a time; one handle throughout.
void poll()
{
	const Calls calls = loaded();
	const CUfileHandle_t fh = add(calls, open_file());
	constexpr unsigned count = 48;
	Memory memory(count * 60000);
	CUfileBatchHandle_t batch = nullptr;
	MUST(!calls.cuFileBatchIOSetUp(&batch, count).err);
	for (unsigned round = 0; round < 4; round++) {
		std::vector<CUfileIOParams_t> ios(count);
		size_t bytes = 0;
		for (unsigned i = 0; i < count; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].fh = fh;
			ios[i].opcode = CUFILE_READ;
			ios[i].cookie = &ios[i];
			ios[i].u.batch = {memory.get(), static_cast<off_t>(i * 60000 + round), i * 60000, 50000 + i};
			bytes += ios[i].u.batch.size;
		}
		MUST(!calls.cuFileBatchIOSubmit(batch, count, ios.data(), 0).err);
		std::set<void *> seen;
		size_t came = 0;
		while (seen.size() < count) {
			CUfileIOEvents_t events[7];
			unsigned n = 7;
			MUST(!calls.cuFileBatchIOGetStatus(batch, 0, &n, events, nullptr).err && n <= 7);
			for (unsigned i = 0; i < n; i++) {
				MUST(events[i].status == CUFILE_COMPLETE && seen.insert(events[i].cookie).second);
				came += events[i].ret;
			}
		}
		MUST(came == bytes);
		CUfileIOEvents_t none;
		unsigned n = 1;
		MUST(!calls.cuFileBatchIOGetStatus(batch, 0, &n, &none, nullptr).err && n == 0);
		for (unsigned i = 0; i < count; i++)
			MUST(memory.bytes(i * 60000, 50000 + i) == pattern().substr(i * 60000 + round, 50000 + i));
	}
	calls.cuFileBatchIODestroy(batch);
}

// Without a driver there are no streams, and the arguments are not examined.
void streams()
{
	const Calls calls = loaded();
	const CUfileHandle_t fh = add(calls, open_file());
	Memory memory(200000);
	size_t size = 100000;
	off_t at = 5, to = 9;
	ssize_t got = 4711;
	const int error = calls.cuFileReadAsync(fh, memory.get(), &size, &at, &to, &got, nullptr).err;
	if (cuda().library) {
		MUST(!error && !cuda().synchronize(nullptr));
		MUST(got == 100000 && memory.bytes(9, size) == pattern().substr(5, size));
		return;
	}
	MUST(error == 5038 && got == 4711);
	MUST(calls.cuFileWriteAsync(fh, memory.get(), &size, &at, &to, &got, nullptr).err == 5038);
	MUST(calls.cuFileReadAsync(nullptr, memory.get(), &size, &at, &to, &got, nullptr).err == 5027);
	MUST(memory.bytes(0, 200000) == std::string(200000, 0x77) && content() == pattern());
}

// --- Processes

int in_child(const std::function<void()> &what)
{
	const pid_t child = fork();
	if (!child) {
		alarm(60);
		what();
		std::exit(0); // runs the exit handlers
	}
	int status = -1;
	MUST(waitpid(child, &status, 0) == child);
	return status;
}

// Forked after loading but before any call: parent and child each have their own library.
void fork_before()
{
	const Calls calls = loaded();
	const std::string of_parent = file_path, of_child = of_parent + ".child";
	MUST(!in_child([&] {
		file_path = of_child.c_str();
		use(calls);
		MUST(calls.cuFileUseCount() == 1);
		// Its own child has inherited an open driver, so calls fail.
		MUST(!in_child([&] { MUST(calls.cuFileDriverOpen().err == 5001); }));
	}));
	MUST(calls.cuFileUseCount() == 0);
	use(calls);
}

// In the child of a process with an open driver every call fails. After exec the library works, and no descriptor was
// inherited (main() checks).
void fork_after()
{
	const Calls calls = loaded();
	Memory memory(4096);
	const CUfileHandle_t fh = add(calls, open_file());
	MUST(!calls.cuFileBufRegister(memory.get(), 4096, 0).err);
	MUST(!in_child([&] {
		errno = 0;
		MUST(calls.cuFileRead(fh, memory.get(), 10, 0, 0) == -1 && errno == 5001);
		MUST(calls.cuFileDriverOpen().err == 5001 && calls.cuFileUseCount() == 0);
		execl(self_path, self_path, "unopened", library_path, (file_path + std::string(".child")).c_str(),
		      symbols_path, nullptr);
		MUST(!"exec");
	}));
	use(calls);
	MUST(!calls.cuFileDriverClose_v2().err && !calls.cuFileUseCount());
	// After closing, a child can use the library as if it had never been open.
	MUST(!in_child([&] { use(calls); }));
	use(calls);
}

constexpr struct {
	const char *name;
	void (*run)();
} cases[] = {
	{"again", again},           {"closed_meanwhile", closed_meanwhile},
	{"global", global},         {"preloaded", preloaded},
	{"unopened", unopened},     {"odd_configurations", odd_configurations},
	{"driver", driver},         {"host_memory", host_memory},
	{"places", places},         {"poll", poll},
	{"streams", streams},       {"fork_before", fork_before},
	{"fork_after", fork_after},
};

} // namespace

int main(int argc, char **argv)
{
	// After exec the process has as many descriptors as its predecessor started with.
	const std::filesystem::directory_iterator fds("/proc/self/fd");
	const std::string open_now = std::to_string(std::distance(begin(fds), end(fds)));
	const char *const before = getenv("CLIENT_DESCRIPTORS");
	MUST(!before || open_now == before);
	setenv("CLIENT_DESCRIPTORS", open_now.c_str(), 1);
	if (argc != 5) {
		for (const auto &one : cases)
			std::puts(one.name);
		return 0;
	}
	self_path = argv[0];
	library_path = argv[2];
	file_path = argv[3];
	symbols_path = argv[4];
	for (const auto &one : cases)
		if (!std::strcmp(one.name, argv[1])) {
			one.run();
			return 0;
		}
	return 2;
}
