// SPDX-License-Identifier: MIT
//
// The results of a libcufile in the corner cases of Documentation/cufile.md, "What is not as in the original".
//   corners LIBCUFILE FILE [CASE...]     FILE is overwritten; prints "case: result" lines without a verdict
// Run it with NVIDIA's library and with ours and compare the output. Each case has its own process, because a library
// may crash or hang.
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.hpp"

namespace
{

using Address = unsigned long long; // CUdeviceptr

constexpr size_t mib = 1 << 20;
constexpr unsigned case_seconds = 20;

const char *library_path, *file_path;

void say(const char *name, const std::string &text)
{
	std::printf("%s: %s\n", name, text.c_str());
	std::fflush(stdout);
}

std::string number(int64_t n) { return std::to_string(n); }

// A library with an open driver, a registered file and 8 MiB of device memory.
struct World : Library {
	Cuda cuda;
	int fd = -1;
	CUfileHandle_t fh = nullptr;
	char *memory = nullptr;
	decltype(&cuFileDriverClose_v2) close = find("cuFileDriverClose_v2");
	decltype(&cuFileUseCount) use_count = find("cuFileUseCount");
	decltype(&cuFileHandleDeregister) remove = find("cuFileHandleDeregister");
	decltype(&cuFileBufDeregister) remove_buffer = find("cuFileBufDeregister");
	decltype(&cuFileBatchIOCancel) cancel = find("cuFileBatchIOCancel");
	decltype(&cuFileBatchIODestroy) destroy = find("cuFileBatchIODestroy");
	decltype(&cuFileReadAsync) read_async = find("cuFileReadAsync");
	decltype(&cuFileStreamRegister) add_stream = find("cuFileStreamRegister");
	decltype(&cuFileStreamDeregister) remove_stream = find("cuFileStreamDeregister");
	decltype(&cuFileSetParameterSizeT) set_size = find("cuFileSetParameterSizeT");
	decltype(&cuFileGetParameterSizeT) get_size = find("cuFileGetParameterSizeT");
	decltype(&cuFileGetParameterBool) get_bool = find("cuFileGetParameterBool");
	decltype(&cuFileDriverSetMaxPinnedMemSize) set_pinned = find("cuFileDriverSetMaxPinnedMemSize");
	decltype(&cuFileDriverGetProperties) properties = find("cuFileDriverGetProperties");
	int (*make_stream)(CUstream *, unsigned) = cuda.find("cuStreamCreate");
	int (*drop_stream)(void *) = cuda.find("cuStreamDestroy_v2");
	int (*sync)(void *) = cuda.find("cuStreamSynchronize");
	int (*call)(void *, void (*)(void *), void *) = cuda.find("cuLaunchHostFunc");
	int (*free_memory)(Address) = cuda.find("cuMemFree_v2");

	explicit World(bool opened = true) : Library(library_path)
	{
		memory = cuda.memory(8 * mib);
		fd = ::open(file_path, O_RDWR);
		must(fd >= 0, file_path);
		if (!opened)
			return;
		const int rc = open().err;
		must(!rc, "cuFileDriverOpen " + number(rc));
		fh = file(fd);
	}
	CUstream stream()
	{
		CUstream made = nullptr;
		must(!make_stream(&made, 1), "cuStreamCreate");
		return made;
	}
	// Four reads of 1 MiB, submitted.
	CUfileBatchHandle_t batch(unsigned room = 4)
	{
		CUfileBatchHandle_t id = nullptr;
		must(!set_up(&id, room).err, "cuFileBatchIOSetUp");
		again(id);
		return id;
	}
	int again(CUfileBatchHandle_t id, size_t size = mib)
	{
		CUfileIOParams_t ios[4] = {};
		for (size_t i = 0; i < 4; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].u.batch.devPtr_base = memory;
			ios[i].u.batch.devPtr_offset = static_cast<off_t>(i * size);
			ios[i].u.batch.file_offset = static_cast<off_t>(i * size);
			ios[i].u.batch.size = size;
			ios[i].fh = fh;
			ios[i].opcode = CUFILE_READ;
			ios[i].cookie = reinterpret_cast<void *>(i + 1);
		}
		return submit(id, 4, ios, 0).err;
	}
	std::string events(CUfileBatchHandle_t id, unsigned min, unsigned most, long timeout_ms)
	{
		CUfileIOEvents_t told[16] = {};
		struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
		unsigned nr = most;
		const int rc = status(id, min, &nr, told, timeout_ms < 0 ? nullptr : &timeout).err;
		std::string text = "rc " + number(rc) + ", nr " + number(nr) + ":";
		for (unsigned i = 0; !rc && i < nr && i < 16; i++)
			text += " " + number(told[i].status) + "/" + number(static_cast<int64_t>(told[i].ret));
		return text;
	}
	// Reads into this memory, registered if possible, and compares.
	std::string try_memory(char *at, size_t size)
	{
		const int added = add_buffer(at, size, 0).err;
		errno = 0;
		const ssize_t n = read(fh, at, size, 0, 0);
		std::string text = "register " + number(added) + ", read " + number(n) + " errno " + number(errno);
		if (n > 0) {
			std::string want(static_cast<size_t>(n), '\0');
			must(pread(fd, want.data(), want.size(), 0) == n, "pread");
			text += cuda.bytes(at, want.size()) == want ? ", right" : ", WRONG";
		}
		if (!added)
			text += ", deregister " + number(remove_buffer(at).err);
		return text;
	}
};

struct Case {
	const char *name;
	void (*run)(const char *);
};

// Blocks a stream until the program has changed the parameters.
void hold(void *pipe)
{
	char byte;
	(void)!::read(*static_cast<int *>(pipe), &byte, 1);
}

std::string json_file(const std::string &text)
{
	const std::string path = "/tmp/corners-" + number(getpid()) + ".json";
	FILE *const out = std::fopen(path.c_str(), "w");
	must(out, path);
	std::fwrite(text.data(), 1, text.size(), out);
	std::fclose(out);
	return path;
}

void with_json(const char *name, const std::string &what, const std::string &path)
{
	const pid_t child = fork();
	if (!child) {
		alarm(8);
		setenv("CUFILE_ENV_PATH_JSON", path.c_str(), 1);
		World world(false);
		const int rc = world.open().err;
		bool compat = false;
		const int got = world.get_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, &compat).err;
		say(name,
		    what + ": open " + number(rc) + ", allow_compat_mode " + number(compat) + " (" + number(got) + ")");
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		say(name, what + ": killed by signal " + number(WTERMSIG(status)));
}

const Case cases[] = {
	{"batch-cancel",
	 [](const char *name) {
		 World world;
		 for (int turn = 0; turn < 3; turn++) {
			 const auto id = world.batch();
			 const int rc = world.cancel(id).err;
			 say(name, "cancel " + number(rc) + "; status " + world.events(id, 0, 4, 0));
			 usleep(200000);
			 say(name, "later " + world.events(id, 0, 4, 0));
			 say(name, "min 1 " + world.events(id, 1, 4, 200));
			 const int more = world.again(id);
			 say(name, "submit " + number(more) + "; min 4 " + world.events(id, 4, 4, 5000));
			 say(name, "and then " + world.events(id, 0, 4, 0));
			 world.destroy(id);
		 }
	 }},
	{"batch-cancel-ended",
	 [](const char *name) {
		 World world;
		 const auto id = world.batch();
		 usleep(500000);
		 const int rc = world.cancel(id).err;
		 say(name, "cancel " + number(rc) + "; status " + world.events(id, 0, 4, 0));
	 }},
	{"batch-min",
	 [](const char *name) {
		 World world;
		 const auto id = world.batch();
		 say(name, "two " + world.events(id, 2, 2, 5000));
		 say(name, "min 4 of the two left " + world.events(id, 4, 4, 1000));
		 say(name, "min 4 of none " + world.events(id, 4, 4, 1000));
		 say(name, "min above nr " + world.events(id, 4, 2, 1000));
	 }},
	{"async-zero",
	 [](const char *name) {
		 World world;
		 const CUstream stream = world.stream();
		 int pipe_fds[2];
		 must(!pipe(pipe_fds), "pipe");
		 world.call(stream, hold, pipe_fds);
		 size_t size = 0;
		 off_t zero = 0, other = 0;
		 ssize_t result = -77;
		 const int rc = world.read_async(world.fh, world.memory, &size, &zero, &other, &result, stream).err;
		 say(name, "rc " + number(rc) + ", at the call " + number(result));
		 (void)!write(pipe_fds[1], "", 1);
		 world.sync(stream);
		 say(name, "at the end " + number(result));
	 }},
	{"async-negative",
	 [](const char *name) {
		 World world;
		 const CUstream stream = world.stream();
		 for (int which = 0; which < 2; which++) {
			 size_t size = 4096;
			 off_t file_off = which ? 0 : -4096, buf_off = which ? -4096 : 0;
			 ssize_t result = -77;
			 const int rc =
				 world.read_async(world.fh, world.memory, &size, &file_off, &buf_off, &result, stream)
					 .err;
			 const ssize_t at_once = result;
			 const int synced = world.sync(stream);
			 say(name, std::string(which ? "buffer" : "file") + " offset: rc " + number(rc) + ", result " +
					   number(at_once) + ", at the end " + number(result) + ", sync " +
					   number(synced));
		 }
	 }},
	{"async-grows",
	 [](const char *name) {
		 World world;
		 const CUstream stream = world.stream();
		 // The first I/O of a stream allocates memory, which waits for all streams.
		 size_t first_size = 4096;
		 off_t zero = 0, other = 0;
		 ssize_t first = -77;
		 must(!world.read_async(world.fh, world.memory, &first_size, &zero, &other, &first, stream).err &&
			      !world.sync(stream),
		      "cuFileReadAsync");
		 for (size_t grown : {size_t{2} * mib, size_t{2048}}) {
			 int pipe_fds[2];
			 must(!pipe(pipe_fds), "pipe");
			 world.call(stream, hold, pipe_fds);
			 size_t size = 4096;
			 off_t file_off = 0, buf_off = 0;
			 ssize_t result = -77;
			 const int rc =
				 world.read_async(world.fh, world.memory, &size, &file_off, &buf_off, &result, stream)
					 .err;
			 size = grown;
			 (void)!write(pipe_fds[1], "", 1);
			 world.sync(stream);
			 say(name, "4096 becomes " + number(static_cast<int64_t>(grown)) + ": rc " + number(rc) +
					   ", result " + number(result));
		 }
	 }},
	{"stream-register",
	 [](const char *name) {
		 World world(false);
		 const CUstream stream = world.stream();
		 say(name, "closed driver: rc " + number(world.add_stream(stream, 0).err));
		 say(name, "use count " + number(world.use_count()));
		 say(name, "deregister with a closed driver " + number(world.remove_stream(stream).err));
		 must(!world.open().err, "cuFileDriverOpen");
		 const int once = world.add_stream(stream, 0).err, twice = world.add_stream(stream, 0).err;
		 const int removed = world.remove_stream(stream).err, again = world.remove_stream(stream).err;
		 say(name, "once " + number(once) + ", twice " + number(twice) + ", deregister " + number(removed) +
				   ", again " + number(again));
		 say(name, "unknown deregistered " + number(world.remove_stream(world.stream()).err));
		 say(name, "flags 0xff " + number(world.add_stream(world.stream(), 0xff).err));
		 say(name, "flags 0x100 " + number(world.add_stream(world.stream(), 0x100).err));
		 say(name, "the default stream " + number(world.add_stream(nullptr, 0).err));
	 }},
	{"parameters",
	 [](const char *name) {
		 World world(false);
		 size_t value = 0;
		 const int set = world.set_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 64).err;
		 must(!world.open().err, "cuFileDriverOpen");
		 world.get_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value);
		 say(name, "set " + number(set) + ", open has " + number(static_cast<int64_t>(value)));
		 world.set_pinned(1024);
		 world.close();
		 const int rc = world.get_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value).err;
		 say(name, "closed has " + number(static_cast<int64_t>(value)) + " (" + number(rc) + ")");
		 must(!world.open().err, "cuFileDriverOpen");
		 world.get_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value);
		 CUfileDrvProps_t props = {};
		 world.properties(&props);
		 say(name, "open again has " + number(static_cast<int64_t>(value)) + ", pinned kb " +
				   number(props.max_device_pinned_mem_size));
	 }},
	{"closed",
	 [](const char *name) {
		 World world(false);
		 must(!world.open().err, "cuFileDriverOpen");
		 world.fh = world.file(world.fd);
		 const auto id = world.batch();
		 const int first = world.close().err, second = world.close().err;
		 say(name, "close " + number(first) + ", again " + number(second));
		 errno = 0;
		 const ssize_t n = world.read(world.fh, world.memory, 4096, 0, 0);
		 say(name, "read " + number(n) + " errno " + number(errno));
		 size_t size = 4096;
		 off_t zero = 0, other = 0;
		 ssize_t result = -77;
		 const int rc = world.read_async(world.fh, world.memory, &size, &zero, &other, &result, nullptr).err;
		 say(name, "async " + number(rc) + " result " + number(result));
		 say(name, "buffer deregister " + number(world.remove_buffer(world.memory).err));
		 say(name, "use count " + number(world.use_count()));
		 say(name, "batch cancel " + number(world.cancel(id).err));
	 }},
	{"never-opened",
	 [](const char *name) {
		 World world(false);
		 say(name, "buffer deregister " + number(world.remove_buffer(world.memory).err));
		 errno = 0;
		 const ssize_t n = world.read(world.memory, world.memory, 4096, 0, 0);
		 say(name, "read " + number(n) + " errno " + number(errno));
		 CUfileBatchHandle_t id = nullptr;
		 const int rc = world.set_up(&id, 4).err;
		 say(name, "batch set up " + number(rc) + ", use count " + number(world.use_count()));
	 }},
	{"json",
	 [](const char *name) {
		 const char *const strict = R"({"properties": {"allow_compat_mode": false}})";
		 with_json(name, "good", json_file(strict));
		 with_json(name, "no such file", "/tmp/corners-none.json");
		 with_json(name, "a folder", "/tmp");
		 with_json(name, "empty", json_file(""));
		 with_json(name, "comma", json_file(R"({"properties": {"allow_compat_mode": false,}})"));
		 with_json(name, "// comment", json_file(std::string("// c\n") + strict));
		 with_json(name, "# comment", json_file(std::string("# c\n") + strict));
		 with_json(name, "latin-1", json_file("{\"x\": \"\xe9\", " + std::string(strict + 1)));
		 with_json(name, "compat is a string", json_file(R"({"properties": {"allow_compat_mode": "false"}})"));
		 with_json(name, "compat is 0", json_file(R"({"properties": {"allow_compat_mode": 0}})"));
		 with_json(name, "denylist is a string", json_file(R"({"denylist": {"mounts": "/"}})"));
		 with_json(name, "denylist of numbers", json_file(R"({"denylist": {"mounts": [1]}})"));
		 with_json(name, "level info", json_file(R"({"logging": {"level": "info"}})"));
		 with_json(name, "level blue", json_file(R"({"logging": {"level": "blue"}})"));
		 with_json(name, "slab scalar",
			   json_file(R"({"properties": {"posix_pool_slab_size_kb": 4,)"
				     R"( "posix_pool_slab_count": 16}})"));
		 with_json(name, "unknown key", json_file(R"({"properties": {"allow_compat_mod": false}})"));
		 const std::string fifo = "/tmp/corners-fifo";
		 unlink(fifo.c_str());
		 must(!mkfifo(fifo.c_str(), 0600), fifo);
		 with_json(name, "fifo", fifo);
	 }},
	{"memory",
	 [](const char *name) {
		 World world;
		 say(name, "cuMemAlloc " + world.try_memory(world.memory, mib));
		 int (*from_pool)(Address *, size_t, void *) = world.cuda.find("cuMemAllocAsync");
		 Address at = 0;
		 must(!from_pool(&at, 4 * mib, nullptr) && !world.cuda.settle(), "cuMemAllocAsync");
		 say(name, "cuMemAllocAsync " + world.try_memory(reinterpret_cast<char *>(at), mib));
		 const CUstream stream = world.stream();
		 must(!from_pool(&at, 4 * mib, stream), "cuMemAllocAsync");
		 say(name, "cuMemAllocAsync, not synchronized " + world.try_memory(reinterpret_cast<char *>(at), mib));
	 }},
	{"managed",
	 [](const char *name) {
		 World world;
		 int (*managed)(Address *, size_t, unsigned) = world.cuda.find("cuMemAllocManaged");
		 Address at = 0;
		 must(!managed(&at, 4 * mib, 1), "cuMemAllocManaged");
		 say(name, world.try_memory(reinterpret_cast<char *>(at), mib));
	 }},
	{"mapped-host",
	 [](const char *name) {
		 World world;
		 void *at = nullptr;
		 must(!world.cuda.pinned(&at, 4 * mib, 2), "cuMemHostAlloc");
		 say(name, world.try_memory(static_cast<char *>(at), mib));
	 }},
	{"green-context",
	 [](const char *name) {
		 World world;
		 // Room for any release's CUdevResource.
		 alignas(16) char resource[1024] = {};
		 void *desc = nullptr, *green = nullptr, *context = nullptr;
		 int (*whole)(int, void *, int) = world.cuda.find("cuDeviceGetDevResource");
		 int (*describe)(void **, void *, unsigned) = world.cuda.find("cuDevResourceGenerateDesc");
		 int (*create)(void **, void *, int, unsigned) = world.cuda.find("cuGreenCtxCreate");
		 int (*context_of)(void **, void *) = world.cuda.find("cuCtxFromGreenCtx");
		 must(!whole(0, resource, 1) && !describe(&desc, resource, 1) && !create(&green, desc, 0, 1) &&
			      !context_of(&context, green) && !world.cuda.current(context),
		      "a green context");
		 say(name, world.try_memory(world.cuda.memory(4 * mib), mib));
		 const CUstream stream = world.stream();
		 size_t size = mib;
		 off_t file_off = 0, buf_off = 0;
		 ssize_t result = -77;
		 const int rc =
			 world.read_async(world.fh, world.memory, &size, &file_off, &buf_off, &result, stream).err;
		 world.sync(stream);
		 say(name, "in a stream of it: rc " + number(rc) + ", result " + number(result));
	 }},
	{"ipc",
	 [](const char *name) {
		 struct Handle {
			 char bytes[64];
		 } handle;
		 int to_us[2], to_it[2];
		 must(!pipe(to_us) && !pipe(to_it), "pipe");
		 if (!fork()) {
			 Cuda cuda;
			 int (*export_memory)(Handle *, Address) = cuda.find("cuIpcGetMemHandle");
			 must(!export_memory(&handle, reinterpret_cast<Address>(cuda.memory(4 * mib))),
			      "cuIpcGetMemHandle");
			 must(write(to_us[1], &handle, sizeof(handle)) == sizeof(handle), "write");
			 close(to_it[1]);
			 char byte;
			 _exit(static_cast<int>(::read(to_it[0], &byte, 1)));
		 }
		 must(::read(to_us[0], &handle, sizeof(handle)) == sizeof(handle), "read");
		 World world;
		 int (*open_memory)(Address *, Handle, unsigned) = world.cuda.find("cuIpcOpenMemHandle_v2");
		 Address at = 0;
		 must(!open_memory(&at, handle, 1), "cuIpcOpenMemHandle");
		 say(name, world.try_memory(reinterpret_cast<char *>(at), mib));
	 }},
	{"tensors",
	 [](const char *name) {
		 World world;
		 std::string text;
		 for (size_t i = 0; i < 6; i++)
			 text += " " + number(world.add_buffer(world.memory + i * (mib + 512), mib + 512, 0).err);
		 say(name, "register" + text);
		 text.clear();
		 for (size_t i = 0; i < 6; i++)
			 text += " " + number(world.read(world.fh, world.memory + i * (mib + 512), mib, 0, 0));
		 say(name, "read" + text);
		 say(name, "inside another " + number(world.add_buffer(world.memory + 4096, 4096, 0).err));
		 say(name, "the same base " + number(world.add_buffer(world.memory, 4096, 0).err));
	 }},
	{"half-mapped",
	 [](const char *name) {
		 World world;
		 int (*create)(Address *, size_t, const void *, unsigned long long) = world.cuda.find("cuMemCreate");
		 int (*reserve)(Address *, size_t, size_t, Address, unsigned long long) =
			 world.cuda.find("cuMemAddressReserve");
		 int (*map)(Address, size_t, size_t, Address, unsigned long long) = world.cuda.find("cuMemMap");
		 int (*allow)(Address, size_t, const void *, size_t) = world.cuda.find("cuMemSetAccess");
		 struct {
			 int type, handles, where, id;
			 void *other;
			 unsigned char flags[8];
		 } prop = {1, 0, 1, 0, nullptr, {0, 1}};
		 struct {
			 int where, id, flags;
		 } desc = {1, 0, 3};
		 constexpr size_t half = 2 * mib;
		 Address at = 0, physical = 0;
		 must(!reserve(&at, 2 * half, 0, 0, 0), "cuMemAddressReserve");
		 const auto map_half = [&](size_t i) {
			 must(!create(&physical, half, &prop, 0) && !map(at + i * half, half, 0, physical, 0) &&
				      !allow(at + i * half, half, &desc, 1),
			      "cuMemMap");
		 };
		 map_half(0);
		 char *const memory = reinterpret_cast<char *>(at);
		 const int half_rc = world.add_buffer(memory, 2 * half, 0).err;
		 errno = 0;
		 const ssize_t first = world.read(world.fh, memory, half, 0, 0);
		 const ssize_t both = world.read(world.fh, memory, 2 * half, 0, 0);
		 say(name, "register all of it " + number(half_rc) + ", read the half " + number(first) +
				   ", read all " + number(both) + " errno " + number(errno));
		 map_half(1);
		 errno = 0;
		 const ssize_t all = world.read(world.fh, memory, 2 * half, 0, 0);
		 say(name, "the rest is mapped: read all " + number(all) + " errno " + number(errno) + ", deregister " +
				   number(world.remove_buffer(memory).err));
	 }},
	{"memory-reused",
	 [](const char *name) {
		 World world;
		 char *const first = world.cuda.memory(4 * mib);
		 const int one = world.add_buffer(first, 4 * mib, 0).err;
		 world.free_memory(reinterpret_cast<Address>(first));
		 char *const second = world.cuda.memory(4 * mib);
		 const int two = world.add_buffer(second, 4 * mib, 0).err;
		 say(name, std::string(first == second ? "same" : "other") + " address: register " + number(one) +
				   ", freed, register " + number(two) + ", read " +
				   number(world.read(world.fh, second, mib, 0, 0)));
	 }},
	{"file-reopened",
	 [](const char *name) {
		 World world;
		 const int old = world.fd;
		 ::close(old);
		 const int fd = ::open(file_path, O_RDWR);
		 CUfileDescr_t descr = {};
		 descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
		 descr.handle.fd = fd;
		 CUfileHandle_t fh = nullptr;
		 const int same = world.add(&fh, &descr).err;
		 say(name, std::string(fd == old ? "same" : "other") + " number, same file: register " + number(same));
		 ::close(fd);
		 const int other = ::open("/tmp/corners-other", O_RDWR | O_CREAT | O_TRUNC, 0600);
		 must(ftruncate(other, 4096) == 0, "ftruncate");
		 errno = 0;
		 const ssize_t n = world.read(world.fh, world.memory, 4096, 0, 0);
		 say(name, std::string(other == old ? "same" : "other") + " number, other file: read " + number(n) +
				   " errno " + number(errno) +
				   (n > 0 && world.cuda.bytes(world.memory, 4096) == std::string(4096, '\0') ?
					    ", the other file's bytes" :
					    ""));
	 }},
	{"few-descriptors",
	 [](const char *name) {
		 World world(false);
		 must(!world.open().err, "cuFileDriverOpen");
		 const int direct = ::open(file_path, O_RDONLY | O_DIRECT);
		 must(direct >= 0 && !truncate(file_path, 10000), "O_DIRECT");
		 world.fh = world.file(direct);
		 std::vector<int> all;
		 for (int fd; (fd = dup(0)) >= 0;)
			 all.push_back(fd);
		 errno = 0;
		 const ssize_t n = world.read(world.fh, world.memory, 10000, 0, 0);
		 say(name, "read of 10000 bytes, O_DIRECT: " + number(n) + " errno " + number(errno));
	 }},
	{"locks",
	 [](const char *name) {
		 World world;
		 struct flock lock = {};
		 lock.l_type = F_WRLCK;
		 must(!fcntl(world.fd, F_SETLK, &lock), "F_SETLK");
		 const auto held = [&] {
			 const pid_t child = fork();
			 if (!child) {
				 struct flock ask = {};
				 ask.l_type = F_WRLCK;
				 const int fd = ::open(file_path, O_RDWR);
				 _exit(fcntl(fd, F_GETLK, &ask) || ask.l_type == F_UNLCK ? 0 : 1);
			 }
			 int status = 0;
			 waitpid(child, &status, 0);
			 return WEXITSTATUS(status) ? "held" : "lost";
		 };
		 say(name, std::string("registered: ") + held());
		 world.read(world.fh, world.memory, 4097, 1, 0);
		 say(name, std::string("after a read: ") + held());
		 world.remove(world.fh);
		 say(name, std::string("deregistered: ") + held());
	 }},
	{"stream-reused",
	 [](const char *name) {
		 World world;
		 const CUstream first = world.stream();
		 const int one = world.add_stream(first, 7).err;
		 world.drop_stream(first);
		 const CUstream second = world.stream();
		 const int two = world.add_stream(second, 0).err;
		 say(name, std::string(first == second ? "same" : "other") + " address: register " + number(one) +
				   ", destroyed, register " + number(two));
	 }},
};

} // namespace

int main(int argc, char **argv)
{
	if (argc < 3)
		die("usage: corners LIBCUFILE FILE [CASE...]");
	library_path = argv[1];
	file_path = argv[2];
	for (const Case &one : cases) {
		bool wanted = argc == 3;
		for (int i = 3; i < argc; i++)
			wanted = wanted || !std::strcmp(argv[i], one.name);
		if (!wanted)
			continue;
		const int fd = open(file_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		must(fd >= 0, file_path);
		std::string bytes(16 * mib, '\0');
		for (size_t i = 0; i < bytes.size(); i++)
			bytes[i] = static_cast<char>(i * 2654435761u >> 13 | 1);
		must(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && !fsync(fd),
		     "write");
		close(fd);
		const pid_t child = fork();
		if (!child) {
			alarm(one.name == std::string("json") ? 200 : case_seconds);
			one.run(one.name);
			_exit(0);
		}
		int status = 0;
		waitpid(child, &status, 0);
		if (WIFSIGNALED(status))
			say(one.name, "killed by signal " + number(WTERMSIG(status)));
		else if (WEXITSTATUS(status))
			say(one.name, "ended with status " + number(WEXITSTATUS(status)));
	}
	return 0;
}
