// SPDX-License-Identifier: MIT
//
// Near-GPU routing on two real GPUs without the module: libcufile's own code and the real CUDA driver. The kernel is
// replaced by pread and a copy, as a drive that reaches one GPU and not the other. Shows that bytes arrive through the
// other GPU, completely and nowhere else, on real GPUs; measures no speed.
//   peer_gpu_bounce FILE        FILE is overwritten
#include <atomic>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "cufile/api/library.hpp"
#include "cufile/platform/real_dependencies.hpp"
#include "gpu.hpp"

namespace
{

constexpr size_t MiB = 1 << 20;
constexpr size_t file_size = 48 * MiB + 1234, memory_size = 64 * MiB;

unsigned number, failures;

void check(const std::string &what, bool good)
{
	std::printf("%sok %u - %s\n", good ? "" : "not ", ++number, what.c_str());
	failures += !good;
}

// Every eight bytes encode their position.
std::string pattern(size_t size, uint64_t salt)
{
	std::string bytes(size, '\0');
	for (size_t i = 0; i < size; i++)
		bytes[i] = static_cast<char>(((i / 8) * 0x9e3779b97f4a7c15u + salt) >> (8 * (i % 8)));
	return bytes;
}

// Replaces the kernel: memory of any device can be registered, and the drive reaches one device.
class Drive final : public cufile::PeerdmaClient
{
public:
	Drive(Cuda &cuda, int reached) : cuda_(cuda), reached_(reached) {}

	int look_up(const void *, cufile::BufferLocation &) override { return -ENOENT; }
	int pin(const void *address, uint64_t size, cufile::BufferLocation &location, uint32_t &reason) override
	{
		cufile::Memory memory;
		reason = 0;
		// Whole frames of 64 KiB are registered, so the last byte of the first frame must be device memory.
		if (cufile::real_cuda().look_up(static_cast<const char *>(address) + 65535, memory) ||
		    memory.kind != cufile::Memory::Kind::device)
			return -EINVAL;
		location = {};
		location.buffer = reinterpret_cast<struct peerdma_buf *>(const_cast<void *>(address));
		location.size = size;
		location.provider = static_cast<uint32_t>(memory.device) + 1;
		location.device = 0;
		registered++;
		return 0;
	}
	int import_cuda(const void *, uint64_t, const std::string &, cufile::BufferLocation &, uint32_t &) override
	{
		return -EOPNOTSUPP;
	}
	int import_foreign(const void *, uint64_t, cufile::BufferLocation &, uint32_t &) override { return -ENOENT; }
	void release(struct peerdma_buf *) override { registered--; }
	int open_file(struct peerdma_buf *, int fd, struct peerdma_file **out) override
	{
		*out = reinterpret_cast<struct peerdma_file *>(new int(fd));
		return 0;
	}
	void close_file(struct peerdma_file *file) override { delete reinterpret_cast<int *>(file); }
	int explain(struct peerdma_file *, uint32_t provider, struct peerdma_explanation &out) override
	{
		const bool reaches = provider == static_cast<uint32_t>(reached_) + 1;
		out.route = reaches ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_POSIX;
		out.reason = reaches ? PEERDMA_REASON_NONE : PEERDMA_REASON_DISTANCE;
		out.dio_mem_align = 4;
		out.dio_offset_align = 512;
		return 0;
	}
	int64_t read(struct peerdma_file *file, const cufile::BufferLocation &location, uint64_t size, uint64_t offset,
		     struct peerdma_io_result &result) override
	{
		if (location.provider != static_cast<uint32_t>(reached_) + 1)
			return -EINVAL;
		std::string bytes(size, '\0');
		const int64_t n = pread(fd(file), bytes.data(), size, static_cast<off_t>(offset));
		if (n < 0)
			return -errno;
		bytes.resize(static_cast<size_t>(n));
		cuda_.put(memory(location), bytes);
		result.route = PEERDMA_ROUTE_DIRECT;
		return n;
	}
	int64_t write(struct peerdma_file *file, const cufile::BufferLocation &location, uint64_t size, uint64_t offset,
		      struct peerdma_io_result &result) override
	{
		if (location.provider != static_cast<uint32_t>(reached_) + 1)
			return -EINVAL;
		const std::string bytes = cuda_.bytes(memory(location), size);
		const int64_t n = pwrite(fd(file), bytes.data(), size, static_cast<off_t>(offset));
		result.route = PEERDMA_ROUTE_DIRECT;
		return n < 0 ? -errno : n;
	}
	const char *reason_text(uint32_t) override { return "the drive is far away"; }
	int preferred(uint32_t &) override { return -ENOTUNIQ; }

	std::atomic<int> registered{0};

private:
	static int fd(struct peerdma_file *file) { return *reinterpret_cast<int *>(file); }
	static char *memory(const cufile::BufferLocation &location)
	{
		return reinterpret_cast<char *>(location.buffer) + location.offset;
	}

	Cuda &cuda_;
	const int reached_;
};

class Pair
{
public:
	Pair(Cuda &cuda, const char *path, int far, int near)
		: cuda_(cuda), path_(path), numa_(near), drive_(cuda, near)
	{
		int device = 0;
		must(!cuda.device(&device, far) && !cuda.retain(&context_, device), "no second GPU");
		enter();
		fd_ = open(path, O_RDWR | O_CLOEXEC);
		must(fd_ >= 0, path);
		CUfileDescr_t descr = {};
		descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
		descr.handle.fd = fd_;
		must(!library_.register_file(&fh_, &descr).err, "cuFileHandleRegister");
		memory_ = cuda.memory(memory_size);
	}
	~Pair()
	{
		library_.deregister_file(fh_);
		while (library_.driver.use_count())
			library_.driver.close();
		check("nothing stays registered", !drive_.registered);
		close(fd_);
	}
	Pair(const Pair &) = delete;
	Pair &operator=(const Pair &) = delete;

	void enter() const { must(!cuda_.current(context_), "cuCtxSetCurrent"); }

	void reads(const std::string &file, unsigned seed)
	{
		std::mt19937_64 random(seed);
		const std::string before(memory_size, 'x');
		bool good = true;
		for (int i = 0; i < 60 && good; i++) {
			const size_t size = i % 3 ? 1 + random() % (20 * MiB) : 1 + random() % 8192;
			const size_t from = random() % file_size, to = random() % (memory_size - size);
			cuda_.put(memory_, before);
			const ssize_t n = library_.router.transfer(fh_, memory_, size, static_cast<off_t>(from),
								   static_cast<off_t>(to), false);
			const size_t expected = std::min(size, file_size - from);
			std::string wanted = before;
			wanted.replace(to, expected, file, from, expected);
			good = n == static_cast<ssize_t>(expected) && cuda_.bytes(memory_, memory_size) == wanted;
			if (!good)
				std::printf("# %zu bytes at %zu to %zu: %zd\n", size, from, to, n);
		}
		check("60 reads, every byte of 64 MiB the one that it should be", good);
	}

	void writes(std::string &file, unsigned seed)
	{
		std::mt19937_64 random(seed);
		bool good = true;
		for (int i = 0; i < 40 && good; i++) {
			const size_t size = i % 3 ? 1 + random() % (20 * MiB) : 1 + random() % 8192;
			const size_t at = random() % (file_size - size), from = random() % (memory_size - size);
			const std::string bytes = pattern(memory_size, random());
			cuda_.put(memory_, bytes);
			good = library_.router.transfer(fh_, memory_, size, static_cast<off_t>(at),
							static_cast<off_t>(from), true) == static_cast<ssize_t>(size);
			file.replace(at, size, bytes, from, size);
		}
		std::ifstream in(path_, std::ios::binary);
		const std::string now{std::istreambuf_iterator<char>(in), {}};
		check("40 writes, every byte of the file the one that it should be", good && now == file);
	}

	void threads(const std::string &file)
	{
		constexpr unsigned n = 12;
		constexpr size_t each = 4 * MiB;
		std::atomic<unsigned> right{0};
		cuda_.put(memory_, std::string(memory_size, 'x'));
		std::vector<std::thread> all;
		for (unsigned i = 0; i < n; i++)
			all.emplace_back([&, i] {
				const auto at = static_cast<off_t>(i * each);
				right += library_.router.transfer(fh_, memory_, each, at, at, false) == each;
			});
		for (auto &thread : all)
			thread.join();
		check("12 threads at a time, each its own bytes",
		      right == n && !cuda_.bytes(memory_, n * each).compare(0, n * each, file, 0, n * each));
	}

	void counted() const
	{
		peerdma_cufile_counts counts = {};
		peerdma_cufile_route route = {};
		library_.router.accounting().counts(counts);
		const int rc = library_.router.explain(fh_, memory_, MiB, 0, 0, route);
		uint64_t not_direct = 0;
		for (int why = PEERDMA_CUFILE_WHY_NONE + 1; why < PEERDMA_CUFILE_NR_WHYS; why++)
			not_direct += counts.bytes[why];
		std::printf("# %llu I/Os, %llu bytes by way of GPU %d\n",
			    static_cast<unsigned long long>(counts.near_ios),
			    static_cast<unsigned long long>(counts.near_bytes), numa_);
		check("all went by the peer_gpu, and explain says so", !rc && route.route == PEERDMA_ROUTE_NEAR &&
									       counts.near_ios == 112 &&
									       counts.near_bytes == not_direct);
	}

private:
	Cuda &cuda_;
	const char *const path_;
	const int numa_;
	Drive drive_;
	mutable cufile::Library library_{{cufile::real_system(), cufile::real_cuda(), drive_}};
	CUfileHandle_t fh_ = nullptr;
	void *context_ = nullptr;
	char *memory_ = nullptr;
	int fd_ = -1;
};

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2) {
		std::fprintf(stderr, "usage: peer_gpu FILE\n");
		return 2;
	}
	Cuda cuda;
	int count = 0;
	int (*devices)(int *) = cuda.find("cuDeviceGetCount");
	must(!devices(&count), "cuDeviceGetCount");
	if (count < 2) {
		std::printf("1..0 # SKIP one GPU\n");
		return 0;
	}
	must(cufile::real_cuda().load(), "the CUDA driver");
	const std::string config = std::string(argv[1]) + ".json";
	std::ofstream(config) << R"({"properties": {"rdma_dynamic_routing": true}})";
	setenv("CUFILE_ENV_PATH_JSON", config.c_str(), 1);
	for (int far = 0; far < 2; far++) {
		std::printf("# GPU %d by way of GPU %d\n", far, 1 - far);
		std::string file = pattern(file_size, static_cast<uint64_t>(far));
		std::ofstream(argv[1], std::ios::binary) << file;
		Pair pair(cuda, argv[1], far, 1 - far);
		pair.reads(file, 1 + static_cast<unsigned>(far));
		pair.writes(file, 3 + static_cast<unsigned>(far));
		pair.threads(file);
		pair.counted();
	}
	std::remove(config.c_str());
	std::printf("1..%u\n", number);
	return failures != 0;
}
