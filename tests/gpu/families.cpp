// SPDX-License-Identifier: MIT
//
// Each family of cuFile's calls with each kind of CUDA memory on a real GPU: are the results correct? Prints TAP.
//   families LIBCUFILE FILE      FILE is overwritten
// With another library the results are that library's; some that are errors for ours may be valid there.
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.hpp"

namespace
{

using Address = unsigned long long; // CUdeviceptr

constexpr size_t mib = 1 << 20;
constexpr size_t file_size = 24 * mib + 12345;

int lines, bad;
void tell(bool good, const std::string &what)
{
	std::printf("%sok %d - %s\n", good ? "" : "not ", ++lines, what.c_str());
	bad += !good;
}
void skip(const std::string &what, const char *why)
{
	std::printf("ok %d - %s # SKIP %s\n", ++lines, what.c_str(), why);
}

std::string random_bytes(size_t n, unsigned seed)
{
	std::mt19937_64 random(seed);
	std::string bytes(n, '\0');
	for (char &c : bytes)
		c = static_cast<char>(random());
	return bytes;
}

// Driver calls used only by this program.
struct Driver : Cuda {
	int (*managed)(Address *, size_t, unsigned) = find("cuMemAllocManaged");
	int (*from_pool)(Address *, size_t, void *) = find("cuMemAllocAsync");
	int (*granularity)(size_t *, const void *, int) = find("cuMemGetAllocationGranularity");
	int (*create)(unsigned long long *, size_t, const void *, unsigned long long) = find("cuMemCreate");
	int (*reserve)(Address *, size_t, size_t, Address, unsigned long long) = find("cuMemAddressReserve");
	int (*map)(Address, size_t, size_t, unsigned long long, unsigned long long) = find("cuMemMap");
	int (*access)(Address, size_t, const void *, size_t) = find("cuMemSetAccess");
	int (*stream)(void **, unsigned) = find("cuStreamCreate");
	int (*sync)(void *) = find("cuStreamSynchronize");
	int (*fill)(Address, unsigned char, size_t, void *) = find("cuMemsetD8Async");
	int (*copy)(Address, Address, size_t) = find("cuMemcpy");
	int (*call)(void *, void (*)(void *), void *) = find("cuLaunchHostFunc");
	int (*capture)(void *, int) = find("cuStreamBeginCapture_v2");
	int (*captured)(void *, void **) = find("cuStreamEndCapture");
	int (*instantiate)(void **, void *, unsigned long long) = find("cuGraphInstantiateWithFlags");
	int (*launch)(void *, void *) = find("cuGraphLaunch");
	int (*drop)(void *) = find("cuGraphExecDestroy");
	int (*drop_graph)(void *) = find("cuGraphDestroy");
	int (*count)(int *) = find("cuDeviceGetCount");

	// Two pieces of physical memory mapped next to each other, like PyTorch's expandable segments. nullptr: not
	// supported.
	char *mapped(size_t size)
	{
		struct Location {
			int type, id;
		};
		struct {
			int type, handles;
			Location location;
			void *other;
			unsigned char flags[8];
		} prop = {1, 0, {1, 0}, nullptr, {}};
		struct {
			Location location;
			int flags;
		} desc = {{1, 0}, 3};
		size_t unit = 0;
		if (granularity(&unit, &prop, 0))
			return nullptr;
		const size_t half = (size / 2 + unit - 1) / unit * unit;
		Address at = 0;
		if (reserve(&at, 2 * half, 0, 0, 0))
			return nullptr;
		for (int i = 0; i < 2; i++) {
			unsigned long long physical = 0;
			if (create(&physical, half, &prop, 0) ||
			    map(at + static_cast<size_t>(i) * half, half, 0, physical, 0))
				return nullptr;
		}
		return access(at, 2 * half, &desc, 1) ? nullptr : reinterpret_cast<char *>(at);
	}
	// For any kind of memory.
	std::string see(const char *from, size_t n)
	{
		std::string all(n, '\0');
		must(!copy(reinterpret_cast<Address>(all.data()), reinterpret_cast<Address>(from), n), "cuMemcpy");
		return all;
	}
	void write(char *to, const std::string &bytes)
	{
		must(!copy(reinterpret_cast<Address>(to), reinterpret_cast<Address>(bytes.data()), bytes.size()) &&
			     !settle(),
		     "cuMemcpy");
	}
};

class Families
{
public:
	Families(const char *library, const char *path) : lib_(library), bytes_(random_bytes(file_size, 1))
	{
		cached_ = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		must(cached_ >= 0, path);
		restore();
		const int direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
		files_.push_back({"page cache", lib_.file(cached_)});
		if (direct >= 0)
			files_.push_back({"O_DIRECT", lib_.file(direct)});
		void *stream = nullptr;
		must(!cuda_.stream(&stream, 1), "cuStreamCreate");
		stream_ = stream;
	}

	void all()
	{
		constexpr size_t size = 20 * mib;
		beside_a_capture(); // first, while the library has no pinned memory yet
		memory("cuMemAlloc", cuda_.memory(size), size);
		Address at = 0;
		memory("cuMemAllocManaged", cuda_.managed(&at, size, 1) ? nullptr : reinterpret_cast<char *>(at), size);
		memory("cuMemAllocAsync",
		       cuda_.from_pool(&at, size, nullptr) || cuda_.sync(nullptr) ? nullptr :
										    reinterpret_cast<char *>(at),
		       size);
		memory("cuMemMap, two pieces", cuda_.mapped(size), size);
		void *host = nullptr;
		memory("cuMemHostAlloc", cuda_.pinned(&host, size, 1) ? nullptr : static_cast<char *>(host), size);
		memory("malloc", static_cast<char *>(std::malloc(size)), size);
		second_device();
		vectors();
		batches();
		streams();
		graph();
		forked();
		std::printf("1..%d\n", lines);
	}

private:
	struct File {
		const char *kind;
		CUfileHandle_t handle;
	};

	void restore()
	{
		must(pwrite(cached_, bytes_.data(), bytes_.size(), 0) == static_cast<ssize_t>(bytes_.size()), "pwrite");
	}
	std::string content(size_t at, size_t n) const
	{
		std::string all(n, '\0');
		all.resize(static_cast<size_t>(
			std::max<ssize_t>(pread(cached_, all.data(), n, static_cast<off_t>(at)), 0)));
		return all;
	}

	// Reads and writes of all sizes, at a base and inside, registered and not. Bytes around them must not change.
	void memory(const std::string &kind, char *at, size_t size)
	{
		if (!at) {
			skip(kind, "the driver has none");
			return;
		}
		struct Shape {
			size_t n, from, to;
		};
		const Shape shapes[] = {{1, 0, 0},           {4096, 4096, 8192},          {70001, 1001, 333},
					{mib, mib, 2 * mib}, {17 * mib + 511, 512, 4096}, {file_size, 20 * mib, 0}};
		const std::string before(size, 'z');
		for (const bool registered : {false, true}) {
			if (registered)
				tell(!lib_.add_buffer(at, size, 0).err, kind + ": registered");
			for (const File &file : files_) {
				bool right = true;
				for (const Shape &shape : shapes) {
					// Registered: a base and an offset. Otherwise a pointer into the middle.
					cuda_.write(at, before);
					const size_t n = std::min({shape.n, file_size - shape.from, size - shape.to});
					const ssize_t got = lib_.read(file.handle, registered ? at : at + shape.to, n,
								      static_cast<off_t>(shape.from),
								      registered ? static_cast<off_t>(shape.to) : 0);
					const std::string after = cuda_.see(at, size);
					right &= got == static_cast<ssize_t>(n) &&
						 !after.compare(shape.to, n, bytes_, shape.from, n) &&
						 (!shape.to || after.find_first_not_of('z') >= shape.to) &&
						 after.find_first_not_of('z', shape.to + n) == std::string::npos;
				}
				tell(right, kind + ", " + file.kind + (registered ? ", registered" : "") + ": reads");
				right = true;
				for (const Shape &shape : shapes) {
					const size_t n = std::min({shape.n, file_size - shape.from, size - shape.to});
					const std::string what = random_bytes(n, static_cast<unsigned>(shape.n));
					cuda_.write(at + shape.to, what);
					const ssize_t got = lib_.write(file.handle, registered ? at : at + shape.to, n,
								       static_cast<off_t>(shape.from),
								       registered ? static_cast<off_t>(shape.to) : 0);
					right &= got == static_cast<ssize_t>(n) && content(shape.from, n) == what &&
						 content(0, shape.from) == bytes_.substr(0, shape.from) &&
						 content(shape.from + n, file_size) == bytes_.substr(shape.from + n);
					restore();
				}
				tell(right, kind + ", " + file.kind + (registered ? ", registered" : "") + ": writes");
			}
			if (registered)
				tell(!forget_buffer_(at).err, kind + ": deregistered");
		}
	}

	// From a thread whose current context is the first device's.
	void second_device()
	{
		int devices = 0, number = 0;
		void *context = nullptr;
		if (cuda_.count(&devices) || devices < 2) {
			skip("a second device", "there is one");
			return;
		}
		must(!cuda_.device(&number, 1) && !cuda_.retain(&context, number) && !cuda_.current(context),
		     "no second context");
		char *const there = cuda_.memory(5 * mib);
		cuda_.enter();
		const ssize_t got = lib_.read(files_[0].handle, there, 5 * mib, 77, 0);
		tell(got == 5 * mib && cuda_.see(there, 5 * mib) == bytes_.substr(77, 5 * mib), "a second device");
	}

	void vectors()
	{
		decltype(&cuFileReadv) readv, writev;
		readv = reinterpret_cast<decltype(readv)>(dlsym(lib_.self, "cuFileReadv"));
		writev = reinterpret_cast<decltype(writev)>(dlsym(lib_.self, "cuFileWritev"));
		if (!readv || !writev) {
			skip("vectors", "this library has none");
			return;
		}
		char *const at = cuda_.memory(8 * mib);
		std::vector<CUfileIOVec_t> vector = {{at + 5 * mib, 100}, {at, 3 * mib}, {at + 4 * mib, 4097}};
		const size_t n = 100 + 3 * mib + 4097;
		for (const File &file : files_) {
			const ssize_t got = readv(file.handle, vector.data(), vector.size(), 1000, 0);
			tell(got == static_cast<ssize_t>(n) && cuda_.see(at + 5 * mib, 100) + cuda_.see(at, 3 * mib) +
									       cuda_.see(at + 4 * mib, 4097) ==
								       bytes_.substr(1000, n),
			     std::string("vectors, ") + file.kind + ": read");
			const std::string what = random_bytes(3 * mib, 7);
			cuda_.write(at, what);
			const ssize_t put = writev(file.handle, vector.data(), vector.size(), 5000, 0);
			tell(put == static_cast<ssize_t>(n) && content(5100, 3 * mib) == what,
			     std::string("vectors, ") + file.kind + ": written");
			restore();
		}
	}

	// A reused handle; polled as programs do, with minimum 0 and timeout zero, and finally waited for.
	void batches()
	{
		constexpr unsigned n = 64;
		char *const at = cuda_.memory(n * 65536);
		CUfileBatchHandle_t id = nullptr;
		must(!lib_.set_up(&id, n).err, "cuFileBatchIOSetUp");
		for (const File &file : files_)
			for (int round = 0; round < 3; round++) {
				cuda_.write(at, std::string(n * 65536, 'z'));
				std::vector<CUfileIOParams_t> ios(n);
				for (unsigned i = 0; i < n; i++) {
					ios[i] = {};
					ios[i].mode = CUFILE_BATCH;
					ios[i].fh = file.handle;
					ios[i].cookie = &ios[i];
					ios[i].opcode = CUFILE_READ;
					ios[i].u.batch = {at,
							  (i % 2 ? i * 300000 : i * 294912) +
								  static_cast<off_t>(round) * 4096,
							  static_cast<off_t>(i) * 65536, 65536u - i % 3};
				}
				bool right = !lib_.submit(id, n, ios.data(), 0).err;
				unsigned done = 0;
				std::vector<int> seen(n);
				while (right && done < n) {
					CUfileIOEvents_t events[n];
					unsigned some = n;
					right = !lib_.status(id, round == 2 ? n - done : 0, &some, events, nullptr).err;
					for (unsigned i = 0; right && i < some; i++) {
						const size_t which = static_cast<size_t>(
							static_cast<CUfileIOParams_t *>(events[i].cookie) - ios.data());
						right = which < n && !seen[which]++ &&
							events[i].status == CUFILE_COMPLETE &&
							events[i].ret == ios[which].u.batch.size;
					}
					done += some;
				}
				for (unsigned i = 0; right && i < n; i++) {
					const size_t size = ios[i].u.batch.size;
					right = cuda_.see(at + i * 65536, 65536) ==
						bytes_.substr(static_cast<size_t>(ios[i].u.batch.file_offset), size) +
							std::string(65536 - size, 'z');
				}
				tell(right, std::string("a batch, ") + file.kind + ", round " + std::to_string(round));
			}
	}

	int read_async(char *at, void *stream)
	{
		return read_async_(files_[0].handle, at, &size_, &from_, &to_, &result_, static_cast<CUstream>(stream))
			.err;
	}

	void streams()
	{
		char *const at = cuda_.memory(4 * mib);
		for (void *stream : {stream_, static_cast<void *>(nullptr)}) {
			const std::string name = stream ? "a stream" : "the default stream";
			// The I/O is ordered with the operations before and after it in the stream.
			size_ = 3 * mib, from_ = 1234, to_ = 100, result_ = 4711;
			cuda_.fill(reinterpret_cast<Address>(at), 'a', 4 * mib, stream);
			bool right = !read_async(at, stream);
			cuda_.fill(reinterpret_cast<Address>(at) + 1000, 'b', 1000, stream);
			must(!cuda_.sync(stream), "cuStreamSynchronize");
			right &= result_ == 3 * mib &&
				 cuda_.see(at, 4 * mib) ==
					 std::string(100, 'a') + bytes_.substr(1234, 900) + std::string(1000, 'b') +
						 bytes_.substr(3134, 3 * mib - 1900) + std::string(mib - 100, 'a');
			tell(right, name + ": a read in its order");
			size_ = 2 * mib, from_ = 4096, to_ = 0, result_ = 4711;
			cuda_.fill(reinterpret_cast<Address>(at), 'c', 4 * mib, stream);
			right = !write_async_(files_[0].handle, at, &size_, &from_, &to_, &result_,
					      static_cast<CUstream>(stream))
					 .err;
			cuda_.fill(reinterpret_cast<Address>(at), 'd', 4 * mib, stream);
			must(!cuda_.sync(stream), "cuStreamSynchronize");
			tell(right && result_ == 2 * mib && content(4096, 2 * mib) == std::string(2 * mib, 'c'),
			     name + ": a write in its order");
			restore();
			parameters(at, stream, name);
		}
	}

	// Parameters are read when the stream gets to the I/O; those declared fixed are read at the call.
	void parameters(char *at, void *stream, const std::string &name)
	{
		for (const unsigned flags : {0U, static_cast<unsigned>(CU_FILE_STREAM_FIXED_FILE_OFFSET)}) {
			if (flags && stream_register_(static_cast<CUstream>(stream), flags).err) {
				skip(name + ": fixed parameters", "not of this stream");
				continue;
			}
			std::atomic<bool> go{false};
			size_ = 1000, from_ = 10, to_ = 100, result_ = 4711;
			cuda_.call(
				stream,
				[](void *wait) {
					while (!*static_cast<std::atomic<bool> *>(wait))
						usleep(100);
				},
				&go);
			bool right = !read_async(at, stream);
			size_ = 50, from_ = 7, to_ = 9;
			right &= result_ == 4711;
			go = true;
			must(!cuda_.sync(stream), "cuStreamSynchronize");
			tell(right && result_ == 50 && cuda_.see(at + 9, 50) == bytes_.substr(flags ? 10 : 7, 50),
			     name + (flags ? ": a fixed offset" : ": parameters of their time"));
			// The stream must be deregistered: registering it twice fails, and the next kind of memory uses
			// it again.
			if (flags)
				must(!stream_deregister_(static_cast<CUstream>(stream)).err, "cuFileStreamDeregister");
		}
	}

	void graph()
	{
		char *const at = cuda_.memory(mib);
		void *graph = nullptr, *exec = nullptr, *stream = nullptr;
		must(!cuda_.stream(&stream, 1), "cuStreamCreate");
		size_ = 5000, from_ = 0, to_ = 0;
		must(!cuda_.capture(stream, 1), "cuStreamBeginCapture");
		const int error = read_async(at, stream);
		if (cuda_.captured(stream, &graph) || error) {
			skip("inside a graph", "this library refuses it");
			return;
		}
		must(!cuda_.instantiate(&exec, graph, 0), "cuGraphInstantiate");
		bool right = true;
		for (off_t round = 0; round < 3; round++) {
			from_ = round * 70000;
			result_ = 4711;
			must(!cuda_.launch(exec, stream) && !cuda_.sync(stream), "cuGraphLaunch");
			right &= result_ == 5000 &&
				 cuda_.see(at, 5000) == bytes_.substr(static_cast<size_t>(from_), 5000);
		}
		tell(right, "inside a graph that is launched three times");
		cuda_.drop(exec);
		cuda_.drop_graph(graph);
	}

	// While another stream is captured in the mode that forbids synchronizing and allocating calls to all threads.
	void beside_a_capture()
	{
		char *const at = cuda_.memory(file_size);
		void *graph = nullptr;
		must(!cuda_.capture(stream_, 0), "cuStreamBeginCapture");
		bool right = true;
		for (const File &file : files_) {
			right &= lib_.read(file.handle, at, 4096, 0, 0) == 4096;
			right &= lib_.write(file.handle, at, 4096, 0, 0) == 4096;
			std::thread([&] {
				void *context = nullptr;
				int number = 0;
				must(!cuda_.device(&number, 0) && !cuda_.retain(&context, number) &&
					     !cuda_.current(context),
				     "no context");
				right &= lib_.read(file.handle, at, file_size, 0, 0) == static_cast<ssize_t>(file_size);
			}).join();
		}
		const bool kept = !cuda_.captured(stream_, &graph);
		tell(right && kept && cuda_.see(at, file_size) == bytes_, "beside the capture of a stream");
		if (kept)
			cuda_.drop_graph(graph);
		restore();
	}

	void forked()
	{
		char *const at = cuda_.memory(4096);
		std::fflush(stdout);
		const pid_t pid = fork();
		if (!pid) {
			const int error = lib_.open().err;
			_exit(error == CU_FILE_DRIVER_NOT_INITIALIZED &&
					      lib_.read(files_[0].handle, at, 4096, 0, 0) < 0 ?
				      0 :
				      1);
		}
		int status = -1;
		waitpid(pid, &status, 0);
		tell(status == 0, "after fork the child gets errors");
		tell(lib_.read(files_[0].handle, at, 4096, 0, 0) == 4096 &&
			     cuda_.see(at, 4096) == bytes_.substr(0, 4096),
		     "and the parent goes on");
	}

	Driver cuda_;
	Library lib_;
	const std::string bytes_;
	int cached_;
	std::vector<File> files_;
	void *stream_;
	decltype(&cuFileReadAsync) read_async_ = lib_.find("cuFileReadAsync");
	decltype(&cuFileWriteAsync) write_async_ = lib_.find("cuFileWriteAsync");
	decltype(&cuFileStreamRegister) stream_register_ = lib_.find("cuFileStreamRegister");
	decltype(&cuFileStreamDeregister) stream_deregister_ = lib_.find("cuFileStreamDeregister");
	decltype(&cuFileBufDeregister) forget_buffer_ = lib_.find("cuFileBufDeregister");
	// Parameters of an I/O in a stream.
	size_t size_ = 0;
	off_t from_ = 0, to_ = 0;
	ssize_t result_ = 0;
};

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		die("families LIBCUFILE FILE");
	Families(argv[1], argv[2]).all();
	return bad ? 1 : 0;
}
