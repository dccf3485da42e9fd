// SPDX-License-Identifier: MIT
//
// proxy FILE DEVICE: mmap of buffers. FILE holds 4 MiB of pattern:1; DEVICE is the provider's folder in sysfs, which is
// unbound in the end. The host checks the memory's real contents.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../tools/raw.hpp"
#include "../../tools/sigbus.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;

constexpr size_t page = 4096, buf_len = 256 * page;
const char *const scratch = "/tmp/proxy.bytes";
int dev;
uint32_t provider_id;
std::string device;

// --- Buffers and mappings

struct Buffer {
	uint32_t id;
	uint64_t at, offset;
};

Buffer allocate(int fd = dev, uint64_t len = buf_len)
{
	auto req = raw::alloc(fd, provider_id, len);
	if (!req.out_buf_id)
		raw::die("buffer");
	return {req.out_buf_id, req.out_bar_offset, req.out_mmap_offset};
}

char *map(const Buffer &buf, size_t first = 0, size_t len = buf_len, int fd = dev)
{
	return raw::map(fd, buf.offset + first, len);
}

bool host_has(const Buffer &buf, uint64_t off, uint64_t len, const std::string &source, uint64_t source_off = 0)
{
	return tap::gpu_is(buf.at + off, len, source, source_off);
}

/// The first len bytes of a pattern(1) source.
std::vector<char> bytes_of(const std::string &source, size_t len)
{
	std::vector<char> bytes(len);
	if (!host::run("rm -f " + std::string(scratch) + "; pattern fill " + scratch + " 0 " + std::to_string(len) +
		       " " + source))
		raw::die("pattern");
	std::ifstream(scratch, std::ios::binary).read(bytes.data(), std::streamsize(len));
	return bytes;
}

// --- io_uring

struct Ring {
	io_uring ring;
	Ring()
	{
		if (io_uring_queue_init(64, &ring, 0))
			raw::die("io_uring");
	}
	~Ring() { io_uring_queue_exit(&ring); }

	void queue(bool write, int fd, char *at, unsigned len, uint64_t off)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		if (write)
			io_uring_prep_write(sqe, fd, at, len, off);
		else
			io_uring_prep_read(sqe, fd, at, len, off);
	}

	/// Number of n requests that moved exactly len bytes; others gets one of the other results.
	int wait(int n, int len, int *others = nullptr)
	{
		int whole = 0;
		while (n--) {
			io_uring_cqe *cqe = nullptr;
			while (io_uring_wait_cqe(&ring, &cqe))
				;
			whole += cqe->res == len;
			if (cqe->res != len && others)
				*others = cqe->res;
			io_uring_cqe_seen(&ring, cqe);
		}
		return whole;
	}
};

int open_direct(const char *path) { return raw::open_file(path, O_RDWR | O_DIRECT); }

// --- The tests

void processor()
{
	// Keeps the buffer away from the BAR's start, where a wrong offset of 0 would go unnoticed.
	Buffer hole = allocate(dev, page), buf = allocate();
	char *all = map(buf);
	host::run("host fill gpu0 " + std::to_string(buf.at) + " " + std::to_string(buf_len) + " pattern:5");
	report(!std::memcmp(all, bytes_of("pattern:5", buf_len).data(), buf_len), "the CPU loads what the host stored");
	const auto bytes = bytes_of("pattern:6", buf_len);
	std::memcpy(all, bytes.data(), buf_len);
	report(host_has(buf, 0, buf_len, "pattern:6"), "the host finds what the CPU stored");

	char *part = map(buf, 3 * page, 2 * page);
	std::memset(part, 0x5a, 2 * page);
	report(!std::memcmp(part, all + 3 * page, 2 * page) && host_has(buf, 3 * page, 2 * page, "byte:90") &&
		       host_has(buf, 0, 3 * page, "pattern:6") && host_has(buf, 5 * page, page, "pattern:6", 5 * page),
	       "a part of it is that part");
	::munmap(part, 2 * page);
	report(::munmap(all + page, page) == 0 && all[2 * page] == bytes[2 * page] && all[8] == bytes[8],
	       "a hole in a mapping leaves both sides");
	::munmap(all, buf_len);
	report(!raw::destroy(dev, hole.id) && !raw::destroy(dev, buf.id), "what is mapped no more is destroyed");
}

void refusals()
{
	Buffer buf = allocate();
	int other = raw::open_device(), read_only = ::open("/dev/peerdma", O_RDONLY);
	auto refuse = [&](const char *what, size_t len, int prot, int flags, int fd, uint64_t off) {
		errno = 0;
		const bool none = ::mmap(nullptr, len, prot, flags, fd, off_t(off)) == MAP_FAILED;
		report(none && errno == EINVAL, std::string(what) + " is EINVAL");
	};
	refuse("a private mapping", page, PROT_READ | PROT_WRITE, MAP_PRIVATE, dev, buf.offset);
	refuse("a private mapping to read", page, PROT_READ, MAP_PRIVATE, dev, buf.offset);
	refuse("an executable mapping", page, PROT_READ | PROT_EXEC, MAP_SHARED, dev, buf.offset);
	refuse("a page more than there is", buf_len + page, PROT_READ, MAP_SHARED, dev, buf.offset);
	refuse("the page behind it", page, PROT_READ, MAP_SHARED, dev, buf.offset + buf_len);
	refuse("a mapping that ends behind it", 2 * page, PROT_READ, MAP_SHARED, dev, buf.offset + buf_len - page);
	refuse("the page before it", page, PROT_READ, MAP_SHARED, dev, buf.offset - page);
	refuse("offset 0", page, PROT_READ, MAP_SHARED, dev, 0);
	refuse("a buffer that is not there", page, PROT_READ, MAP_SHARED, dev, 77ULL << 39);
	refuse("an id past 24 bits", page, PROT_READ, MAP_SHARED, dev, buf.offset | 1ULL << 63);
	refuse("another open file's buffer", page, PROT_READ, MAP_SHARED, other, buf.offset);
	::close(other);

	char *at = map(buf);
	report(::mprotect(at, page, PROT_READ | PROT_EXEC) && errno == EACCES, "nor is it made executable later");
	report(::madvise(at, buf_len, MADV_DODUMP) != 0, "nor part of a core dump");
	::munmap(at, buf_len);
	raw::destroy(dev, buf.id);

	report(!raw::alloc(read_only, provider_id, page).out_buf_id && errno == EBADF,
	       "a file open for reading can have no buffer");
	::close(read_only);

	auto req = raw::sized<peerdma_buf_alloc>();
	req.size = offsetof(peerdma_buf_alloc, out_mmap_offset);
	req.provider_id = provider_id;
	req.len = page;
	req.out_mmap_offset = 42;
	report(!raw::call(dev, PEERDMA_BUF_ALLOC, req) && req.out_buf_id && req.out_mmap_offset == 42,
	       "a caller that knows the shorter struct is served");
	raw::destroy(dev, req.out_buf_id);
}

bool smaps_have(const char *at, const std::vector<std::string> &flags)
{
	std::ifstream smaps("/proc/self/smaps");
	char start[32];
	std::snprintf(start, sizeof(start), "%lx-", reinterpret_cast<unsigned long>(at));
	bool mine = false;
	for (std::string line; std::getline(smaps, line);) {
		mine |= !line.rfind(start, 0);
		if (!mine || line.rfind("VmFlags:", 0))
			continue;
		for (const auto &flag : flags)
			if ((line + " ").find(" " + flag + " ") == std::string::npos)
				return false;
		return true;
	}
	return false;
}

void address_space()
{
	Buffer buf = allocate();
	char *at = map(buf);
	std::memset(at, 1, buf_len);
	report(smaps_have(at, {"sh", "dd", "de", "mm"}), "smaps: shared, not dumped, does not grow, of pages");

	report(!::madvise(at, buf_len, MADV_DONTNEED) && at[0] == 1 && at[buf_len - 1] == 1,
	       "after MADV_DONTNEED the same memory is there");

	pid_t child = ::fork();
	if (!child) {
		std::memset(at + page, 2, page); // a page that the parent has touched
		::madvise(at + 2 * page, page, MADV_DONTNEED);
		std::memset(at + 2 * page, 2, page); // and one that must be faulted in again
		::_exit(at[0] != 1);
	}
	int status = 0;
	::waitpid(child, &status, 0);
	report(!status && at[page] == 2 && at[2 * page] == 2 && host_has(buf, page, 2 * page, "byte:2"),
	       "a forked child shares it");

	report(::mremap(at, buf_len, 2 * buf_len, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT,
	       "mremap: no growing");
	char *room = static_cast<char *>(::mmap(nullptr, buf_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	void *moved = ::mremap(at, buf_len, buf_len, MREMAP_MAYMOVE | MREMAP_FIXED, room);
	report(moved == room && room[0] == 1 && room[page] == 2, "mremap: moved");
	::memset(room + 4 * page, 3, page);
	report(room[4 * page] == 3 && host_has(buf, 4 * page, page, "byte:3"), "and it is still the buffer");
	report(::mremap(room, buf_len, page, 0) == room && room[0] == 1, "mremap: shrunk");
	::munmap(room, page);
	raw::destroy(dev, buf.id);
}

void files(const char *path)
{
	Buffer buf = allocate();
	char *at = map(buf);
	int fd = open_direct(path);
	const off_t there = 2 << 20;

	report(::pread(fd, at, buf_len, page) == ssize_t(buf_len) && host_has(buf, 0, buf_len, "pattern:1", page),
	       "pread with O_DIRECT fills it");
	std::memcpy(at, bytes_of("pattern:7", buf_len).data(), buf_len);
	report(::pwrite(fd, at, buf_len, there) == ssize_t(buf_len) &&
		       host::run("pattern compare " + std::string(path) + " " + std::to_string(there) + " " +
				 std::to_string(buf_len) + " pattern:7"),
	       "pwrite with O_DIRECT takes from it");

	Ring ring;
	for (size_t off = 0; off < buf_len; off += 16 * page)
		ring.queue(false, fd, at + off, 16 * page, off);
	io_uring_submit(&ring.ring);
	report(ring.wait(16, 16 * page) == 16 && host_has(buf, 0, buf_len, "pattern:1"), "io_uring reads into it");
	ring.queue(true, fd, at, buf_len, there);
	io_uring_submit(&ring.ring);
	report(ring.wait(1, buf_len) == 1 &&
		       host::run("pattern compare " + std::string(path) + " " + std::to_string(there) + " " +
				 std::to_string(buf_len) + " pattern:1"),
	       "io_uring writes from it");
	iovec whole = {at, buf_len};
	report(io_uring_register_buffers(&ring.ring, &whole, 1) < 0,
	       "the kernel takes no P2PDMA page for a fixed buffer of io_uring");

	std::memset(at, 0, buf_len);
	for (size_t off = 0; off < buf_len; off += 16 * page)
		ring.queue(false, fd, at + off, 16 * page, page + off);
	io_uring_submit(&ring.ring);
	::munmap(at, buf_len);
	report(ring.wait(16, 16 * page) == 16 && host_has(buf, 0, buf_len, "pattern:1", page),
	       "reads that were under way arrive after munmap");
	::close(fd);
	raw::destroy(dev, buf.id);
}

void destroyed(const char *path)
{
	Buffer buf = allocate();
	char *at = map(buf);
	std::memset(at, 1, buf_len);
	int pipes[2];
	if (::pipe(pipes))
		raw::die("pipe");
	pid_t child = ::fork();
	if (!child) {
		char go;
		::close(pipes[1]);
		(void)!::read(pipes[0], &go, 1);
		::_exit(sigbus::given_at(at) && sigbus::given_at(at + buf_len - 1) ? 0 : 1);
	}
	int fd = open_direct(path), others = 0;
	Ring ring;
	for (size_t off = 0; off < buf_len; off += 16 * page)
		ring.queue(false, fd, at + off, 16 * page, off);
	io_uring_submit(&ring.ring);
	const bool gone = !raw::destroy(dev, buf.id);
	report(gone && sigbus::given_at(at) && sigbus::given_at(at + buf_len - 1),
	       "a destroyed buffer's mapping gives SIGBUS");
	const int whole = ring.wait(16, 16 * page, &others);
	report(whole == 16 || others == -EFAULT, "reads under way end, " + std::to_string(whole) + " of 16 whole");
	report(::pread(fd, at, page, 0) < 0 && errno == EFAULT, "a system call on it is EFAULT");
	::close(pipes[1]);
	int status = 1;
	::waitpid(child, &status, 0);
	report(!status, "so does a child's");

	Buffer next = allocate();
	char *fresh = map(next);
	fresh[0] = 9;
	report(next.id != buf.id && sigbus::given_at(at) && fresh[0] == 9,
	       "the next buffer has neither its id nor its mapping");
	::munmap(at, buf_len);
	report(fresh[0] == 9, "and keeps its own");
	::munmap(fresh, buf_len);
	raw::destroy(dev, next.id);
	::close(fd);

	// Closing does not unmap; the mapping keeps the open file.
	int closing = raw::open_device();
	buf = allocate(closing);
	at = map(buf, 0, buf_len, closing);
	::close(closing);
	at[0] = 4;
	report(!sigbus::given_at(at) && at[0] == 4 && host_has(buf, 0, 1, "byte:4"),
	       "a mapping outlives the descriptor");
	::munmap(at, buf_len);
}

/// Threads access the mapping while the buffer is destroyed: afterwards no access may succeed.
void raced()
{
	int late = 0;
	for (int round = 0; round < 40; round++) {
		Buffer buf = allocate(dev, 32 * page);
		char *at = map(buf, 0, 32 * page);
		std::atomic<bool> stop{false};
		std::thread toucher([&] {
			// Lets the kernel fault the page in, so that a failure raises no signal.
			int zero = ::open("/dev/zero", O_RDONLY);
			while (!stop) {
				for (size_t i = 0; i < 32; i++)
					(void)!::read(zero, at + i * page, 8);
				::madvise(at, 32 * page, MADV_DONTNEED);
			}
			::close(zero);
		});
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
		raw::destroy(dev, buf.id);
		for (size_t i = 0; i < 32; i++)
			late += !sigbus::given_at(at + i * page);
		stop = true;
		toucher.join();
		::munmap(at, 32 * page);
	}
	report(!late,
	       "40 buffers destroyed while a thread touches them: no page is left, found " + std::to_string(late));
}

uint64_t pool(const char *what)
{
	uint64_t bytes = 0;
	std::ifstream(device + "/p2pmem/" + what) >> bytes;
	return bytes;
}

bool pool_is_full()
{
	for (int i = 0; i < 100; i++) {
		if (pool("available") == pool("size"))
			return true;
		::usleep(50000);
	}
	return false;
}

void unbound()
{
	const char *const second = "/tmp/peerdma.second";
	struct stat node;
	::unlink(second);
	if (::stat("/dev/peerdma", &node) || ::mknod(second, S_IFCHR | 0600, node.st_rdev))
		raw::die("mknod");
	int through = ::open(second, O_RDWR);
	Buffer first = allocate(), other = allocate(through), third = allocate(through, page);
	char *at = map(first), *seen = map(other, 0, buf_len, through), *small = map(third, 0, page, through);
	at[0] = seen[0] = small[0] = 1;
	report(!raw::destroy(through, third.id) && sigbus::given_at(small) && seen[0] == 1,
	       "through a second device node: destroyed, SIGBUS");
	Buffer untouched = allocate();
	std::ofstream unbind(device + "/driver/unbind");
	unbind << device.substr(device.rfind('/') + 1) << std::flush;
	report(unbind.good() && sigbus::given_at(at), "unbound: SIGBUS");
	report(sigbus::given_at(seen) && sigbus::given_at(seen + buf_len - 1), "and through the second device node");
	report(::mmap(nullptr, page, PROT_READ, MAP_SHARED, dev, off_t(untouched.offset)) == MAP_FAILED &&
		       errno == ENODEV,
	       "what was not mapped yet is ENODEV");
	::munmap(at, buf_len);
	::munmap(seen, buf_len);
	::unlink(second);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	device = argv[2];
	sigbus::expect();
	dev = raw::open_device();
	provider_id = raw::provider(dev).out_provider_id;

	processor();
	refusals();
	address_space();
	files(argv[1]);
	destroyed(argv[1]);
	raced();
	report(pool_is_full(), "all memory is back in the pool");
	unbound();
	return tap::end();
}
