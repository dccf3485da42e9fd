// SPDX-License-Identifier: MIT
//
// readback FOLDER make: makes files in FOLDER: some that a drive can fill alone, some for which the CPU has to store
// bytes.
//
// readback FOLDER: reads each file into a buffer by each way. What the CPU stores must be read back, and nothing else.
// CALLS of readback.ko counts the read-backs. The files must have been made before the filesystem was mounted.
#include <fstream>
#include <sys/stat.h>

#include "../../tools/tap.hpp"
#include "../../tools/ways.hpp"

namespace
{

using tap::report;
using ways::Way;

constexpr uint64_t block = 4096, len = 16 * block;
constexpr int rounds = 16; // a read that is preempted during submission is read back needlessly
const char *const calls_path = "/sys/kernel/debug/readback/calls";

uint64_t number_in(const std::string &path, const std::string &after)
{
	std::ifstream in(path);
	uint64_t n = 0;
	for (std::string word; !after.empty() && in >> word && word != after;)
		;
	if (!(in >> n))
		raw::die(path);
	return n;
}

/// True if the kernel counts I/O for this thread; needs CONFIG_TASK_IO_ACCOUNTING.
bool counts_reads() { return !::access("/proc/thread-self/io", R_OK); }
uint64_t bytes_read() { return counts_reads() ? number_in("/proc/thread-self/io", "read_bytes:") : 0; }

class File
{
public:
	explicit File(const std::string &path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600))
	{
		if (fd_ < 0 || ::ftruncate(fd_, len))
			raw::die(path);
	}
	~File()
	{
		if (::fsync(fd_))
			raw::die("fsync");
		::close(fd_);
	}
	File(const File &) = delete;
	File &operator=(const File &) = delete;

	void write(uint64_t at)
	{
		char bytes[block];
		ways::fill(bytes, 1, at, block);
		if (::pwrite(fd_, bytes, block, off_t(at)) != ssize_t(block))
			raw::die("pwrite");
	}
	void reserve()
	{
		if (::fallocate(fd_, 0, 0, len))
			raw::die("fallocate");
	}

private:
	int fd_;
};

int make(const std::string &folder)
{
	File dense(folder + "/dense"), hole(folder + "/hole"), unwritten(folder + "/unwritten");
	File half(folder + "/half"), scattered(folder + "/scattered");
	unwritten.reserve();
	for (uint64_t at = 0; at < len; at += block) {
		dense.write(at);
		if (at < len / 2)
			half.write(at);
		if (at / block % 2) // more extents than fit into an ext4 inode
			scattered.write(at);
	}
	return 0;
}

/// Number of read-backs during one read.
uint64_t read_backs(ways::Mover &mover, Way way, uint64_t bytes = len)
{
	const uint64_t before = number_in(calls_path, "");
	const auto answer = mover.move(way, {false, 0, 0, bytes});
	if (answer.err || answer.bytes() != bytes)
		raw::die("the read");
	return number_in(calls_path, "") - before;
}

constexpr Way all_ways[] = {Way::fd, Way::id, Way::ring_id, Way::worker, Way::pieces, Way::pieces_worker};

void dense(ways::Mover &mover)
{
	for (const Way way : all_ways) {
		const std::string what = std::string("all is on the drive, ") + ways::name(way) + ": is not read back";
		const bool in_pieces = way == Way::pieces || way == Way::pieces_worker;
		const uint64_t reads = rounds * (in_pieces ? len / ways::Mover::piece : 1);
		uint64_t n = 0;
		for (int i = 0; i < rounds; i++)
			n += read_backs(mover, way);
		if (counts_reads())
			report(n < reads, what, std::to_string(n) + " of " + std::to_string(reads));
		else
			tap::skip(what, "a kernel without CONFIG_TASK_IO_ACCOUNTING");
	}
}

void stored(ways::Mover &mover, const char *name)
{
	for (const Way way : all_ways) {
		const uint64_t n = read_backs(mover, way);
		report(n, std::string(name) + ", " + ways::name(way) + ": is read back", std::to_string(n) + " times");
	}
}

/// As many bytes of metadata as the hole has. By ioctl, because a nonblocking request reads no metadata.
void behind_metadata(ways::Mover &mover)
{
	const uint64_t before = bytes_read(), n = read_backs(mover, Way::fd, 2 * block), read = bytes_read() - before;
	const char *const what = "a hole and a block, and as much metadata is read as the hole is long";
	if (counts_reads())
		report(read == 2 * block, what, std::to_string(read));
	else
		tap::skip(what, "a kernel without CONFIG_TASK_IO_ACCOUNTING");
	report(n, "a hole and a block, behind metadata: is read back");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 3 && !std::strcmp(argv[2], "make"))
		return make(argv[1]);
	if (argc != 2)
		return 2;
	const std::string folder = std::string(argv[1]) + "/";
	const int dev = raw::open_device();
	const uint32_t provider = raw::provider(dev).out_provider_id;
	const auto with = [&](const char *name) { return ways::Mover(dev, provider, folder + name, len); };
	auto first = with("dense");
	dense(first);
	auto scattered = with("scattered");
	behind_metadata(scattered);
	stored(scattered, "every other block a hole");
	auto hole = with("hole"), half = with("half"), unwritten = with("unwritten");
	stored(hole, "a hole");
	stored(half, "half of it a hole");
	stored(unwritten, "an unwritten extent");
	return tap::end();
}
