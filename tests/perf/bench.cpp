// SPDX-License-Identifier: MIT
//
// bench main|all|exact|far|METRIC FILE DISK BDF: the cost of operations, in a guest whose clock counts instructions.
// FILE is on an ext4 on DISK, 64 MiB and written; BDF is the published device. Prints one line each:
//
//   count METRIC SIZE INSTRUCTIONS    per operation. main selects the metrics of make check; far reads FILE over a
//                                     network with both ends in this guest, and METRIC_all counts all processes of it
//   exact COUNT SIZE NUMBER           per operation: calls and allocations of the kernel instead of their cost
//   absent METRIC SIZE REASON         this kernel does not support it
//
// A new metric is a function that returns an Op, and a line in the table at the end.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <liburing.h>
#include <map>
#include <memory>
#include <sched.h>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <utility>
#include <vector>

#include "../tools/raw.hpp"

namespace
{

constexpr uint64_t KiB = 1024, MiB = 1024 * KiB;
constexpr uint64_t SPAN = 16 * MiB; // of the file, and the largest size
constexpr unsigned DEPTH = 32;

/// This kernel does not support the metric.
struct Absent : std::runtime_error {
	using std::runtime_error::runtime_error;
};

/// run is counted, after is not.
struct Op {
	std::function<void()> run;
	std::function<void()> after = [] {};
	uint64_t per_run = 1; // operations in one run
};

void must(bool good, const char *what)
{
	if (!good)
		raw::die(what);
}

char *map(int fd, uint64_t len, const char *what)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *at = ::mmap(nullptr, len, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (at == MAP_FAILED)
		throw Absent(what + std::string(": ") + std::strerror(errno));
	return static_cast<char *>(at);
}

/// Host memory as on a machine that has been up for some time: neighboring pages are rarely contiguous in physical
/// memory. Right after a boot their order is random, and it affects the cost of I/O.
char *host_memory(uint64_t len)
{
	const uint64_t pages = len / 4096, step = 1021; // a prime that does not divide the number of pages
	char *at = map(-1, len, "host memory");
	// EINVAL: a kernel without huge pages.
	must(!::madvise(at, len, MADV_NOHUGEPAGE) || errno == EINVAL, "madvise");
	for (uint64_t i = 0; i < pages; i++)
		at[i * step % pages * 4096] = 1;
	return at;
}

/// State that is opened once.
struct Bench {
	std::string disk, bdf;
	int dev = raw::open_device();
	uint32_t provider_id = raw::provider(dev).out_provider_id;
	uint32_t buf_id = raw::alloc(dev, provider_id, SPAN).out_buf_id;
	int file, cached, block;
	uint32_t file_id = 0, block_id = 0; // of the registered files
	char *host = host_memory(SPAN);
	char *bar = nullptr;
	uint64_t turn = 0;
	uint64_t host_bytes = 0; // bytes through host memory, by the module's counter

	Bench(const std::string &path, std::string disk_path, std::string address)
		: disk(std::move(disk_path)), bdf(std::move(address)), file(::open(path.c_str(), O_RDWR | O_DIRECT)),
		  cached(::open(path.c_str(), O_RDONLY)), block(::open(disk.c_str(), O_RDONLY | O_DIRECT))
	{
		must(buf_id && file >= 0 && cached >= 0 && block >= 0, "bench");
		file_id = raw::add_file(dev, file);
		block_id = raw::add_file(dev, block);
		must(file_id && block_id, "register files");
		forget();
	}

	/// The device's memory in this process, by the kernel's own p2pmem interface.
	char *device_memory()
	{
		if (!bar) {
			int fd = ::open(("/sys/bus/pci/devices/" + bdf + "/p2pmem/allocate").c_str(), O_RDWR);
			if (fd < 0)
				throw Absent("p2pmem/allocate: " + std::string(std::strerror(errno)));
			bar = map(fd, SPAN, "mmap of p2pmem/allocate");
			::close(fd);
		}
		return bar;
	}

	/// Direct I/O on a range with cached pages takes another, longer path.
	void forget() const { must(!::posix_fadvise(cached, 0, 0, POSIX_FADV_DONTNEED), "fadvise"); }

	/// The next place in the file.
	uint64_t next(uint64_t size) { return turn++ * size % SPAN; }
};

// --- Metrics

Op direct(Bench &b, uint64_t size, unsigned long cmd, int file, uint32_t flags = PEERDMA_IO_FILE_ID)
{
	return {[&b, size, cmd, file, flags] {
		auto req = raw::io(file, b.buf_id, b.next(size), 0, size);
		req.flags = flags;
		must(!raw::call(b.dev, cmd, req) && req.out_done == size, "direct");
		b.host_bytes += req.out_host + req.out_near;
	}};
}

Op odirect_read(Bench &b, uint64_t size, int fd, char *to)
{
	return {[&b, size, fd, to] { must(::pread(fd, to, size, b.next(size)) == ssize_t(size), "pread"); }};
}

Op direct_read(Bench &b, uint64_t size) { return direct(b, size, PEERDMA_READ, b.file_id); }
Op direct_read_fd(Bench &b, uint64_t size) { return direct(b, size, PEERDMA_READ, b.file, 0); }
Op direct_write(Bench &b, uint64_t size) { return direct(b, size, PEERDMA_WRITE, b.file_id); }
Op direct_read_raw(Bench &b, uint64_t size) { return direct(b, size, PEERDMA_READ, b.block_id); }
Op host_odirect_read(Bench &b, uint64_t size) { return odirect_read(b, size, b.file, b.host); }
Op host_odirect_read_raw(Bench &b, uint64_t size) { return odirect_read(b, size, b.block, b.host); }

Op host_odirect_write(Bench &b, uint64_t size)
{
	return {[&b, size] { must(::pwrite(b.file, b.host, size, b.next(size)) == ssize_t(size), "pwrite"); }};
}

Op p2pmem_mmap_read(Bench &b, uint64_t size)
{
	char *bar = b.device_memory();
	if (::pread(b.file, bar, size, 0) != ssize_t(size))
		throw Absent(std::string("pread: ") + std::strerror(errno));
	return odirect_read(b, size, b.file, bar);
}

Op bounce_read(Bench &b, uint64_t size)
{
	char *bar = b.device_memory();
	return {[&b, bar, size] {
		must(::pread(b.file, b.host, size, b.next(size)) == ssize_t(size), "pread");
		std::memcpy(bar, b.host, size);
	}};
}

/// A ring with the file, the module's device and the host memory registered. A batch has DEPTH requests.
class Ring
{
	io_uring ring{};

public:
	enum File { DISK_FILE, DISK, DEVICE };

	explicit Ring(const Bench &b)
	{
		iovec all{b.host, SPAN};
		const int files[] = {b.file, b.block, b.dev};
		must(!io_uring_queue_init(DEPTH, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN),
		     "ring");
		must(!io_uring_register_files(&ring, files, 3), "register files");
		must(!io_uring_register_buffers(&ring, &all, 1), "register buffers");
	}
	Ring(const Ring &) = delete;
	Ring &operator=(const Ring &) = delete;
	~Ring() { io_uring_queue_exit(&ring); }

	io_uring_sqe *fixed_read(File from, char *to, unsigned size, uint64_t at)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read_fixed(sqe, from, to, size, at, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
		return sqe;
	}

	/// first and second: the two words of cmd[].
	io_uring_sqe *command(const Bench &b, File file, uint32_t op, uint64_t second, unsigned size, uint64_t first)
	{
		const peerdma_uring_io io = {first, second};
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, DEVICE, nullptr, size, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
		sqe->cmd_op = op;
		sqe->addr = uint64_t(PEERDMA_IO_FILE_ID) << 32 | b.buf_id;
		sqe->file_index = file == DISK ? b.block_id : b.file_id;
		std::memcpy(sqe->cmd, &io, sizeof(io));
		return sqe;
	}

	/// Waits for the last of n completions, each of which must have the result want.
	void run(unsigned n, int want)
	{
		must(io_uring_submit_and_wait(&ring, n) == int(n), "submit");
		io_uring_cqe *cqe;
		unsigned head, seen = 0;
		io_uring_for_each_cqe(&ring, head, cqe)
		{
			must(cqe->res == want, "completion");
			seen++;
		}
		must(seen == n, "completions");
		io_uring_cq_advance(&ring, seen);
	}
};

/// DEPTH reads of SIZE to host memory, at offsets that are STRIDE apart.
Op uring_batch(Bench &b, Ring::File file, uint64_t size, uint64_t stride)
{
	auto ring = std::make_shared<Ring>(b);
	return {[&b, ring, file, size, stride] {
			for (unsigned i = 0; i < DEPTH; i++)
				ring->fixed_read(file, b.host + i * size, size, i * stride);
			ring->run(DEPTH, int(size));
		},
		[] {}, DEPTH};
}

/// The same to a buffer, with a command for each read.
Op ring_batch(Bench &b, Ring::File file, uint64_t size)
{
	auto ring = std::make_shared<Ring>(b);
	return {[&b, ring, file, size] {
			for (unsigned i = 0; i < DEPTH; i++)
				ring->command(b, file, PEERDMA_URING_READ, i * size, size, i * 2 * size);
			ring->run(DEPTH, int(size));
		},
		[] {}, DEPTH};
}

/// The same with one command for all.
Op ring_vector(Bench &b, Ring::File file, uint64_t size)
{
	auto ring = std::make_shared<Ring>(b);
	auto segs = std::make_shared<std::vector<peerdma_uring_seg>>(DEPTH);
	for (unsigned i = 0; i < DEPTH; i++)
		(*segs)[i] = {i * 2 * size, i * size, uint32_t(size), 0};
	return {[&b, ring, file, segs] {
			ring->command(b, file, PEERDMA_URING_READV, 0, DEPTH,
				      reinterpret_cast<uintptr_t>(segs->data()));
			ring->run(1, DEPTH);
		},
		[] {}, DEPTH};
}

Op uring_host_fixed_read_qd32(Bench &b, uint64_t size) { return uring_batch(b, Ring::DISK_FILE, size, 2 * size); }
Op uring_host_fixed_read_qd32_raw(Bench &b, uint64_t size) { return uring_batch(b, Ring::DISK, size, 2 * size); }
Op ring_direct_read_qd32(Bench &b, uint64_t size) { return ring_batch(b, Ring::DISK_FILE, size); }
Op ring_direct_read_qd32_raw(Bench &b, uint64_t size) { return ring_batch(b, Ring::DISK, size); }
Op ring_direct_readv_32(Bench &b, uint64_t size) { return ring_vector(b, Ring::DISK_FILE, size); }
Op ring_direct_readv_32_raw(Bench &b, uint64_t size) { return ring_vector(b, Ring::DISK, size); }

Op buf_alloc_with(Bench &b, uint64_t size, uint32_t flags)
{
	auto id = std::make_shared<uint32_t>();
	return {[&b, id, size, flags] {
			*id = raw::alloc(b.dev, b.provider_id, size, flags).out_buf_id;
			must(*id, "buffer");
		},
		[&b, id] {
			// Some kernels return the pages only a moment later.
			auto before = raw::provider(b.dev).out_available;
			must(!raw::destroy(b.dev, *id), "destroy");
			for (int i = 0; i < 1000 && raw::provider(b.dev).out_available == before; i++)
				::usleep(1000);
		}};
}

Op buf_alloc(Bench &b, uint64_t size) { return buf_alloc_with(b, size, 0); }

/// Without zeroing, which only root may request.
Op buf_alloc_unzeroed(Bench &b, uint64_t size) { return buf_alloc_with(b, size, PEERDMA_BUF_NO_ZERO); }

/// The cost of entering and leaving the module.
Op ioctl_info(Bench &b, uint64_t)
{
	return {[&b] {
		auto req = raw::sized<peerdma_info>();
		must(!raw::call(b.dev, PEERDMA_INFO, req), "info");
	}};
}

/// The same, and the cost of finding a file's route.
Op file_query(Bench &b, uint64_t)
{
	return {[&b] {
		auto req = raw::sized<peerdma_file_query>();
		req.fd = b.file;
		req.provider_id = b.provider_id;
		must(!raw::call(b.dev, PEERDMA_FILE_QUERY, req) && !req.out_errno, "query");
	}};
}

// The cost for other users of a disk without request merging.

std::string of_disk(const Bench &b, const char *attribute)
{
	return "/sys/block/" + b.disk.substr(b.disk.rfind('/') + 1) + "/" + attribute;
}

/// Sets /sys/block/DISK/queue/nomerges until it is destroyed.
class NoMerges
{
	std::string path;

public:
	NoMerges(const Bench &b, int value) : path(of_disk(b, "queue/nomerges")) { std::ofstream(path) << value; }
	NoMerges(const NoMerges &) = delete;
	NoMerges &operator=(const NoMerges &) = delete;
	~NoMerges() { std::ofstream(path) << 0; }
};

Op with_merges(Op op, Bench &b, int nomerges)
{
	auto setting = std::make_shared<NoMerges>(b, nomerges);
	op.run = [setting, run = std::move(op.run)] { run(); };
	return op;
}

Op buffered(Bench &b, uint64_t size)
{
	return {[&b, size] {
			for (uint64_t at = 0; at < size; at += 128 * KiB)
				must(::pread(b.cached, b.host, 128 * KiB, at) == ssize_t(128 * KiB), "read");
		},
		[&b] { b.forget(); }};
}

Op merge_on_uring_adjacent(Bench &b, uint64_t size)
{
	return with_merges(uring_batch(b, Ring::DISK_FILE, size, size), b, 0);
}
Op merge_off_uring_adjacent(Bench &b, uint64_t size)
{
	return with_merges(uring_batch(b, Ring::DISK_FILE, size, size), b, 2);
}
Op merge_on_buffered_read(Bench &b, uint64_t size) { return with_merges(buffered(b, size), b, 0); }
Op merge_off_buffered_read(Bench &b, uint64_t size) { return with_merges(buffered(b, size), b, 2); }

// --- Counting

uint64_t instructions()
{
	timespec now;
	::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint64_t median(std::vector<uint64_t> of)
{
	std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
	return of[of.size() / 2];
}

/// The number of times this thread has slept.
uint64_t sleeps()
{
	rusage usage;
	::getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/// The median over many runs, few of which contain a timer tick. Whether the emulated drive completes before the thread
/// sleeps depends on the host: if some runs slept, only those count.
uint64_t count(const Op &op, unsigned times)
{
	std::vector<uint64_t> slept, awake;
	for (unsigned i = 0; i < times / 4 + 2; i++) {
		op.run();
		op.after();
	}
	for (unsigned i = 0; i < times; i++) {
		uint64_t before = sleeps();
		uint64_t start = instructions();
		op.run();
		uint64_t sum = instructions() - start;
		(sleeps() > before ? slept : awake).push_back(sum);
		op.after();
	}
	return median(slept.size() > times / 10 ? slept : awake);
}

struct Metric {
	const char *name;
	Op (*make)(Bench &, uint64_t size);
	std::vector<uint64_t> sizes;
	std::vector<uint64_t> main; // sizes that make check uses
};

const std::vector<uint64_t> SIZES{4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, 512 * KiB, MiB, 4 * MiB, SPAN};
const std::vector<uint64_t> MAIN{4 * KiB, 64 * KiB, 512 * KiB, MiB};

const std::vector<Metric> METRICS{
	{"direct_read", direct_read, SIZES, MAIN},
	{"direct_write", direct_write, SIZES, MAIN},
	{"host_odirect_read", host_odirect_read, SIZES, MAIN},
	{"host_odirect_write", host_odirect_write, SIZES, {4 * KiB}},
	{"p2pmem_mmap_read", p2pmem_mmap_read, SIZES, {}},
	{"bounce_read", bounce_read, SIZES, {}},
	{"direct_read_fd", direct_read_fd, {4 * KiB}, {4 * KiB}},
	{"direct_read_raw", direct_read_raw, SIZES, MAIN},
	{"host_odirect_read_raw", host_odirect_read_raw, SIZES, MAIN},
	{"uring_host_fixed_read_qd32", uring_host_fixed_read_qd32, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"ring_direct_read_qd32", ring_direct_read_qd32, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"ring_direct_readv_32", ring_direct_readv_32, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"uring_host_fixed_read_qd32_raw", uring_host_fixed_read_qd32_raw, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"ring_direct_read_qd32_raw", ring_direct_read_qd32_raw, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"ring_direct_readv_32_raw", ring_direct_readv_32_raw, {4 * KiB, 64 * KiB}, {4 * KiB, 64 * KiB}},
	{"buf_alloc", buf_alloc, {MiB, 4 * MiB, 16 * MiB, 64 * MiB, 256 * MiB}, {MiB, 64 * MiB}},
	{"buf_alloc_unzeroed", buf_alloc_unzeroed, {MiB, 16 * MiB, 256 * MiB}, {}},
	{"ioctl_info", ioctl_info, {0}, {0}},
	{"file_query", file_query, {0}, {0}},
	{"merge_on_uring_adjacent", merge_on_uring_adjacent, {4 * KiB}, {}},
	{"merge_off_uring_adjacent", merge_off_uring_adjacent, {4 * KiB}, {}},
	{"merge_on_buffered_read", merge_on_buffered_read, {SPAN}, {}},
	{"merge_off_buffered_read", merge_off_buffered_read, {SPAN}, {}},
};

/// Metrics of a FILE on xfs.
const std::vector<Metric> OF_XFS{
	{"direct_read_xfs", direct_read, {4 * KiB, MiB}, {}},
	{"host_odirect_read_xfs", host_odirect_read, {4 * KiB, MiB}, {}},
	{"direct_write_xfs", direct_write, {4 * KiB, MiB}, {}},
	{"host_odirect_write_xfs", host_odirect_write, {4 * KiB}, {}},
};

void count_all(Bench &b, const std::string &what)
{
	const bool main = what == "main", xfs = what == "xfs";
	const uint64_t reading = count({[] {}}, 500);
	for (const Metric &metric : xfs ? OF_XFS : METRICS)
		for (uint64_t size : main ? metric.main : metric.sizes) {
			if (!main && !xfs && what != "all" && what != metric.name)
				break;
			unsigned times = size <= 64 * KiB ? 300 : size <= MiB ? 60 : 15;
			try {
				Op op = metric.make(b, size);
				b.turn = 0;
				uint64_t sum = count(op, times) - reading;
				std::printf("count %s %llu %llu\n", metric.name, 1ULL * size,
					    1ULL * (sum / op.per_run));
			} catch (const Absent &why) {
				std::printf("absent %s %llu %s\n", metric.name, 1ULL * size, why.what());
			}
			std::fflush(stdout);
		}
}

// --- Over a network

/// The instructions of each process so far, including kernel threads, without this one. Interrupts while the CPU is
/// idle belong to no process.
std::map<pid_t, uint64_t> everybody()
{
	std::map<pid_t, uint64_t> ran;
	for (const auto &entry : std::filesystem::directory_iterator("/proc")) {
		const pid_t pid = std::atoi(entry.path().filename().c_str());
		clockid_t clock;
		timespec now;
		if (pid > 0 && pid != ::getpid() && !::clock_getcpuclockid(pid, &clock) &&
		    !::clock_gettime(clock, &now))
			ran[pid] = uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
	}
	return ran;
}

/// Means instead of medians: the state of the other processes at the start of an operation is random.
void count_far(Bench &b, const char *name, Op (*make)(Bench &, uint64_t), uint64_t size)
{
	const unsigned times = size <= 64 * KiB ? 128 : 24;
	const Op op = make(b, size);
	for (unsigned i = 0; i < 4; i++)
		op.run();
	auto before = everybody();
	const uint64_t start = instructions();
	for (unsigned i = 0; i < times; i++)
		op.run();
	const uint64_t own = instructions() - start;
	uint64_t all = own;
	for (const auto &[pid, ran] : everybody())
		all += ran - before[pid];
	std::printf("count %s %llu %llu\n", name, 1ULL * size, 1ULL * (own / times));
	std::printf("count %s_all %llu %llu\n", name, 1ULL * size, 1ULL * (all / times));
	std::fflush(stdout);
}

void far_all(Bench &b)
{
	for (uint64_t size : {4 * KiB, 64 * KiB, MiB}) {
		count_far(b, "direct_read", direct_read, size);
		count_far(b, "host_odirect_read", host_odirect_read, size);
		count_far(b, "bounce_read", bounce_read, size);
	}
}

// --- Counters of the kernel

struct Stat {
	uint64_t commands, merges;
};

Stat stat_of(const Bench &b, bool write)
{
	std::ifstream in(of_disk(b, "stat"));
	std::vector<uint64_t> fields;
	for (uint64_t value; in >> value;)
		fields.push_back(value);
	must(fields.size() >= 8, "stat");
	return write ? Stat{fields[4], fields[5]} : Stat{fields[0], fields[1]};
}

/// Counts the kernel allocations of this thread while it exists, by trace events.
class Allocations
{
	const std::string tracing = "/sys/kernel/tracing/";
	const std::vector<std::string> events{"kmem/kmalloc", "kmem/kmem_cache_alloc", "kmem/mm_page_alloc"};

	void set(const std::string &name, const std::string &value) const
	{
		std::ofstream out(tracing + name);
		out << value << std::flush;
		must(bool(out), name.c_str());
	}

public:
	Allocations()
	{
		set("trace", "");
		set("buffer_size_kb", "4096");
		for (const auto &event : events) {
			set("events/" + event + "/filter", "common_pid == " + std::to_string(::getpid()));
			set("events/" + event + "/enable", "1");
		}
	}
	Allocations(const Allocations &) = delete;
	Allocations &operator=(const Allocations &) = delete;
	~Allocations()
	{
		for (const auto &event : events)
			std::ofstream(tracing + "events/" + event + "/enable") << 0;
	}

	uint64_t seen() const
	{
		std::ifstream in(tracing + "per_cpu/cpu0/stats");
		for (std::string line; std::getline(in, line);) {
			std::istringstream words(line);
			std::string key;
			uint64_t value;
			if (words >> key >> value && key == "entries:")
				return value;
		}
		raw::die("per_cpu/cpu0/stats");
	}
};

void print_exact(const std::string &name, uint64_t size, uint64_t sum, unsigned times)
{
	std::printf("exact %s %llu %g\n", name.c_str(), 1ULL * size, double(sum) / times);
}

void exact(Bench &b, const char *name, Op (*make)(Bench &, uint64_t), uint64_t size, bool write)
{
	constexpr unsigned RUNS = 64;
	Op op = make(b, size);
	const unsigned times = RUNS * op.per_run;
	auto repeat = [&op] {
		for (unsigned i = 0; i < RUNS; i++) {
			op.run();
			op.after();
		}
	};
	repeat();
	b.host_bytes = 0;
	Stat before = stat_of(b, write);
	repeat();
	Stat after = stat_of(b, write);
	print_exact(name + std::string(".commands"), size, after.commands - before.commands, times);
	print_exact(name + std::string(".merges"), size, after.merges - before.merges, times);
	print_exact(name + std::string(".host_bytes"), size, b.host_bytes, times);
	Allocations allocations;
	const uint64_t start = allocations.seen();
	repeat();
	// Rounded, because a timer tick may allocate too.
	print_exact(name + std::string(".allocations"), size, (allocations.seen() - start + times / 2) / times, 1);
}

void exact_all(Bench &b)
{
	for (uint64_t size : {4 * KiB, 64 * KiB, MiB, 4 * MiB}) {
		exact(b, "direct_read", direct_read, size, false);
		exact(b, "direct_write", direct_write, size, true);
		if (size <= 64 * KiB) // larger sizes: the number of commands depends on the layout of their pages
			exact(b, "host_odirect_read", host_odirect_read, size, false);
	}
	exact(b, "uring_host_fixed_read_qd32", uring_host_fixed_read_qd32, 4 * KiB, false);
	exact(b, "ring_direct_read_qd32", ring_direct_read_qd32, 4 * KiB, false);
	exact(b, "ring_direct_readv_32", ring_direct_readv_32, 4 * KiB, false);
	exact(b, "merge_on_uring_adjacent", merge_on_uring_adjacent, 4 * KiB, false);
	exact(b, "merge_off_uring_adjacent", merge_off_uring_adjacent, 4 * KiB, false);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 5) {
		std::fprintf(stderr, "usage: bench main|all|xfs|exact|far|METRIC FILE DISK BDF\n");
		return 2;
	}
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	must(!::sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
	Bench bench(argv[2], argv[3], argv[4]);
	if (!std::strcmp(argv[1], "exact"))
		exact_all(bench);
	else if (!std::strcmp(argv[1], "far"))
		far_all(bench);
	else
		count_all(bench, argv[1]);
	return 0;
}
