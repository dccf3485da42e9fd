// SPDX-License-Identifier: MIT
//
// meanwhile DIR SMALL: a file changes while it is read and written. DIR is on a filesystem with some free space, SMALL
// the top of one with little. The reference is the behavior of pread(2) and pwrite(2) with O_DIRECT.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <liburing.h>
#include <linux/fs.h>
#include <memory>
#include <random>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/tap.hpp"

namespace
{

using namespace std::chrono_literals;
using tap::report;

constexpr uint64_t kib = 1024, page = 4 * kib, buf_len = 4096 * kib, file_max = 1024 * kib;
constexpr uint8_t untouched = 0xa5;
int dev;
uint32_t buf;
uint8_t *map;

/// The byte at an offset of any file here.
uint8_t byte_at(uint64_t off) { return uint8_t((off * 0x9e3779b97f4a7c15ULL) >> 56 | 1); }

std::vector<uint8_t> bytes_at(uint64_t off, uint64_t len)
{
	std::vector<uint8_t> bytes(len);
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = byte_at(off + i);
	return bytes;
}

bool right(const uint8_t *bytes, uint64_t off, uint64_t len)
{
	const auto want = bytes_at(off, len);
	return !std::memcmp(bytes, want.data(), len);
}

/// A file that is removed on destruction.
class File
{
public:
	explicit File(const std::string &path, int flags = 0)
		: path_(path), fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | flags, 0600))
	{
		if (fd < 0)
			raw::die(path);
	}
	~File()
	{
		::close(fd);
		::unlink(path_.c_str());
	}
	File(const File &) = delete;
	File &operator=(const File &) = delete;

	bool fill(uint64_t from, uint64_t to) const
	{
		const auto bytes = bytes_at(from, to - from);
		return ::pwrite(fd, bytes.data(), bytes.size(), off_t(from)) == ssize_t(bytes.size());
	}
	uint64_t size() const
	{
		struct stat stat;
		::fstat(fd, &stat);
		return uint64_t(stat.st_size);
	}

private:
	std::string path_;

public:
	int fd;
};

/// Returns out_done or -errno.
int64_t move(unsigned long cmd, int fd, uint64_t off, uint64_t len, uint64_t buf_off = 0)
{
	auto req = raw::io(fd, buf, off, buf_off, len);
	const int err = raw::call(dev, cmd, req);
	return err ? err : int64_t(req.out_done);
}

/// Reads the whole file and a page more while its length changes. The bytes read must be right and other bytes
/// unchanged. If the file is cut meanwhile, the kernel may have stored zeros behind the new end.
bool reads_well(int fd, uint64_t least, bool cut)
{
	constexpr uint64_t asked = file_max + page, looked = asked + page;
	std::memset(map, untouched, looked);
	const int64_t got = move(PEERDMA_READ, fd, 0, asked);
	if (got < int64_t(least) || got > int64_t(file_max)) {
		std::printf("# %ld bytes came, want at least %lu\n", long(got), least);
		return false;
	}
	const auto want = bytes_at(0, uint64_t(got));
	const std::vector<uint8_t> bytes(map, map + looked);
	for (uint64_t i = 0; i < looked; i++) {
		if (bytes[i] == (i < uint64_t(got) ? want[i] : untouched))
			continue;
		if (cut && i >= uint64_t(got) && i < asked && (!bytes[i] || bytes[i] == byte_at(i)))
			continue;
		std::printf("# byte %lu is 0x%02x, %ld bytes came\n", i, bytes[i], long(got));
		return false;
	}
	return true;
}

void grows(const std::string &dir)
{
	File file(dir + "/grows");
	std::atomic<uint64_t> size{0};
	bool wrote = true;
	std::thread writer([&] {
		std::mt19937 random(1);
		while (size < file_max && wrote) {
			const uint64_t to = std::min(file_max, size + 1 + random() % (5 * page));
			wrote = file.fill(size, to);
			size = to;
			std::this_thread::sleep_for(4ms);
		}
	});
	int reads = 0;
	bool good = true;
	while (good && size < file_max) {
		good = reads_well(file.fd, size, false);
		reads++;
	}
	writer.join();
	report(good && wrote && reads > 3 && reads_well(file.fd, file_max, false),
	       "a file that grows: what was there comes, and nothing else",
	       std::to_string(reads) + " reads, writing " + (wrote ? "worked" : "failed"));
}

void shrinks(const std::string &dir)
{
	File file(dir + "/shrinks");
	std::atomic<bool> stop{false};
	bool wrote = file.fill(0, file_max);
	std::thread cutter([&] {
		std::mt19937 random(2);
		while (!stop && wrote) {
			const uint64_t at = random() % file_max;
			wrote = !::ftruncate(file.fd, off_t(at)) && file.fill(at, file_max);
		}
	});
	bool good = true;
	for (int i = 0; good && i < 60; i++)
		good = reads_well(file.fd, 0, true);
	stop = true;
	cutter.join();
	report(good && wrote, "a file that is cut and filled again: only bytes of it come");
}

/// Fills the filesystem except for `room` bytes, which are left for a write.
void leave_room(const std::string &small, const File &ballast, uint64_t room)
{
	File keeps(small + "/room");
	if (::fallocate(keeps.fd, 0, 0, off_t(room)))
		raw::die("room");
	for (uint64_t step = 1024 * kib, at = 0; step >= page;) {
		if (::fallocate(ballast.fd, 0, off_t(at), off_t(step)))
			step /= 2;
		else
			at += step;
	}
	::fsync(ballast.fd);
}

void no_space(const std::string &small)
{
	const auto bytes = bytes_at(0, buf_len);
	std::memcpy(map, bytes.data(), buf_len);
	void *aligned = std::aligned_alloc(page, buf_len);
	std::memcpy(aligned, bytes.data(), buf_len);
	int64_t ours[3] = {}, theirs[3] = {};
	bool good = true;
	for (bool us : {true, false}) {
		File ballast(small + "/ballast");
		leave_room(small, ballast, 1024 * kib);
		File file(small + "/full", us ? 0 : O_DIRECT);
		int64_t *got = us ? ours : theirs;
		const auto write = [&](uint64_t off, uint64_t len) {
			if (us)
				return move(PEERDMA_WRITE, file.fd, off, len);
			const ssize_t ret = ::pwrite(file.fd, aligned, len, off_t(off));
			return ret < 0 ? -int64_t(errno) : int64_t(ret);
		};
		got[0] = write(0, buf_len);
		got[1] = write(buf_len, page);
		got[2] = int64_t(file.size());
		if (!us)
			continue;
		// Bytes reported as written must be there, and the filesystem must be intact.
		std::vector<uint8_t> back(file.size());
		good = ::pread(file.fd, back.data(), back.size(), 0) == ssize_t(back.size()) &&
		       right(back.data(), 0, uint64_t(std::max<int64_t>(got[0], 0)));
	}
	std::free(aligned);
	report(good && (ours[0] < 0 ? ours[0] == -ENOSPC : ours[0] < int64_t(buf_len)),
	       "no room half way: short or ENOSPC, and what was written is there", std::to_string(ours[0]));
	report(std::equal(ours, ours + 3, theirs), "as pwrite(2) with O_DIRECT has it",
	       "first, second, size: " + std::to_string(ours[0]) + " " + std::to_string(ours[1]) + " " +
		       std::to_string(ours[2]) + ", pwrite " + std::to_string(theirs[0]) + " " +
		       std::to_string(theirs[1]) + " " + std::to_string(theirs[2]));
	File again(small + "/again");
	report(move(PEERDMA_WRITE, again.fd, 0, file_max) == int64_t(file_max), "with room again it works again");
}

int64_t ring_write(io_uring *ring, int fd, uint64_t off, uint32_t len)
{
	io_uring_sqe *sqe = io_uring_get_sqe(ring);
	raw::command(sqe, dev, PEERDMA_URING_WRITE, buf, raw::add_file(dev, fd), len, {off, 0});
	io_uring_cqe *cqe = nullptr;
	if (io_uring_submit(ring) != 1 || io_uring_wait_cqe(ring, &cqe))
		return -EIO;
	const int64_t res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

void frozen(const std::string &dir)
{
	File file(dir + "/frozen"), other(dir + "/frozen.ring");
	int top = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY);
	bool good = file.fill(0, file_max) && other.fill(0, file_max);
	std::memcpy(map, bytes_at(0, file_max).data(), file_max);
	std::atomic<int> writes{0}, ring_writes{0}, wrong{0};
	std::atomic<bool> stop{false};
	std::thread by_ioctl([&] {
		for (; !stop; writes++)
			wrong += move(PEERDMA_WRITE, file.fd, uint64_t(writes) % 16 * 64 * kib + writes % 2,
				      16 * page) != int64_t(16 * page);
	});
	std::thread by_ring([&] {
		io_uring ring;
		if (io_uring_queue_init(4, &ring, 0))
			raw::die("io_uring");
		for (; !stop; ring_writes++)
			wrong += ring_write(&ring, other.fd, 0, 16 * page) != int64_t(16 * page);
		io_uring_queue_exit(&ring);
	});
	while (writes < 3 || ring_writes < 3)
		std::this_thread::sleep_for(1ms);
	good = good && !::ioctl(top, FIFREEZE, 0);
	std::this_thread::sleep_for(200ms); // let requests end that had entered the filesystem before the freeze
	const int before = writes, ring_before = ring_writes;
	// Reads continue, into another part of the buffer.
	const int64_t got = move(PEERDMA_READ, file.fd, 0, 16 * page, buf_len / 2);
	std::this_thread::sleep_for(300ms);
	const bool still = writes == before && ring_writes == ring_before;
	const bool thawed = !::ioctl(top, FITHAW, 0);
	for (int i = 0; i < 500 && (writes < before + 3 || ring_writes < ring_before + 3); i++)
		std::this_thread::sleep_for(10ms);
	const bool again = writes >= before + 3 && ring_writes >= ring_before + 3;
	stop = true;
	by_ioctl.join();
	by_ring.join();
	::close(top);
	report(good && still && got == int64_t(16 * page), "a frozen filesystem: writes wait, reads do not");
	report(thawed && again && !wrong, "thawed: none failed, all go on");
}

void on_alarm(int) {}

void signals(const std::string &dir)
{
	File file(dir + "/signals");
	bool good = file.fill(0, file_max);
	struct sigaction action = {};
	action.sa_handler = on_alarm; // without SA_RESTART
	::sigaction(SIGALRM, &action, nullptr);
	const itimerval often = {{0, 500}, {0, 500}}, never = {};
	::setitimer(ITIMER_REAL, &often, nullptr);
	for (int i = 0; i < 100 && good; i++) {
		const bool write = i % 3 == 0;
		good = move(write ? PEERDMA_WRITE : PEERDMA_READ, file.fd, uint64_t(i % 7), file_max - 7) ==
		       int64_t(file_max - 7);
	}
	::setitimer(ITIMER_REAL, &never, nullptr);
	report(good, "signals that do not kill leave requests whole");
}

uint64_t available() { return raw::provider(dev).out_available; }

/// Children with four threads that read and write at full speed, killed at random moments.
void killed(const std::string &dir)
{
	File file(dir + "/killed");
	bool good = file.fill(0, file_max);
	::fsync(file.fd);
	const uint64_t before = available();
	std::mt19937 random(3);
	for (int round = 0; round < 12 && good; round++) {
		const pid_t child = ::fork();
		if (!child) {
			const int mine = raw::open_device();
			const auto own = raw::alloc(mine, raw::provider(mine).out_provider_id, file_max);
			std::vector<std::thread> threads;
			for (unsigned t = 0; t < 4; t++)
				threads.emplace_back([&, t] {
					// Each thread has a quarter of the file and writes back what it read.
					for (uint64_t i = 0;; i++) {
						const uint64_t at = t * 256 * kib + i % 3, len = 256 * kib - 3;
						auto io = raw::io(file.fd, own.out_buf_id, at, at, len);
						if (!raw::call(mine, PEERDMA_READ, io))
							raw::call(mine, PEERDMA_WRITE, io);
					}
				});
			::pause();
		}
		std::this_thread::sleep_for(std::chrono::milliseconds(20 + random() % 60));
		::kill(child, SIGKILL);
		int status = 0;
		good = ::waitpid(child, &status, 0) == child && WIFSIGNALED(status);
	}
	for (int i = 0; i < 100 && available() != before; i++)
		std::this_thread::sleep_for(20ms);
	std::vector<uint8_t> back(file_max);
	report(good && available() == before, "12 processes killed in the middle of it end, and their memory is back");
	report(::pread(file.fd, back.data(), file_max, 0) == ssize_t(file_max) && right(back.data(), 0, file_max),
	       "and the file holds what it held");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	dev = raw::open_device();
	const auto alloc = raw::buffer(dev, buf_len);
	buf = alloc.out_buf_id;
	map = reinterpret_cast<uint8_t *>(raw::map(dev, alloc));

	grows(argv[1]);
	shrinks(argv[1]);
	no_space(argv[2]);
	frozen(argv[1]);
	signals(argv[1]);
	killed(argv[1]);
	return tap::end();
}
