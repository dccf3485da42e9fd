// SPDX-License-Identifier: MIT
//
// access look FILE START LEN: as a user: nothing that the device node returns, nor any path read from the standard
// input,
//     may contain a kernel address or an address in [START, START + LEN), the BAR.
// access tell START LEN: checks only the paths.
// access move FILE SCRATCH: through the library: FILE (1 MiB) into a buffer and from there into SCRATCH, all direct.
// access rights DOMAIN BDF BAR: prints in one line what an open device node allows.
// access ids: another process's buffer and files, by number, by ring and by mmap.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <liburing.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/tap.hpp"
#include "peerdma.hpp"

namespace
{

using tap::need;

uint64_t bar_start, bar_len;

/// With five-level page tables the kernel's half begins at ff00000000000000. Small negative numbers are errnos. A value
/// with 32 upper one bits is two halves of which one is -1.
bool is_address(uint64_t v)
{
	const bool kernel = v >= 0xff00000000000000 && v < -4096ULL && (v >> 32 != 0xffffffff || v >> 31 & 1);
	return kernel || (v >= bar_start && v < bar_start + bar_len);
}

/// Parses each run of hexadecimal digits as hexadecimal and as decimal.
bool text_has_address(const std::string &text)
{
	for (size_t at = 0; at < text.size();) {
		size_t end = at;
		while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])))
			end++;
		const std::string digits = text.substr(at, end - at);
		if (digits.size() >= 8 && digits.size() <= 20 &&
		    ((digits.size() <= 16 && is_address(std::strtoull(digits.c_str(), nullptr, 16))) ||
		     (digits.find_first_not_of("0123456789") == std::string::npos &&
		      is_address(std::strtoull(digits.c_str(), nullptr, 10)))))
			return true;
		at = std::max(end, at + 1);
	}
	return false;
}

std::string slurp(const std::string &path)
{
	std::ifstream in(path);
	return {std::istreambuf_iterator<char>(in), {}};
}

/// Checks the members of a struct that can hold an address.
void said(const char *what, std::initializer_list<__u64> members)
{
	tap::report(std::none_of(members.begin(), members.end(), is_address), std::string(what) + " tells no address");
}

/// Checks the paths read from the standard input. Returns how many of them had contents.
size_t paths_tell_none()
{
	size_t files = 0;
	for (std::string name; std::getline(std::cin, name);) {
		const std::string text = slurp(name);
		files += !text.empty();
		if (text_has_address(text))
			tap::report(false, name + " tells no address", text.substr(0, 2000));
	}
	return files;
}

void look(const char *path)
{
	int dev = raw::open_device(), file = raw::open_file(path, O_RDONLY);
	tap::report(text_has_address("x " + std::to_string(bar_start + 4096) + " y") &&
			    text_has_address("at ffff888012345678.") && text_has_address("=ff11000012345678\n") &&
			    !text_has_address("0000:04:00.0 4096 12345678"),
		    "what an address looks like");
	auto info = raw::sized<peerdma_info>();
	raw::call(dev, PEERDMA_INFO, info);
	said("PEERDMA_INFO", {info.out_features});
	const auto provider = raw::provider(dev);
	said("PEERDMA_PROVIDER_QUERY", {provider.out_bar_offset, provider.out_len, provider.out_available});
	raw::alloc(dev, provider.out_provider_id, 4096); // moves the next buffer away from the start
	const auto buf = raw::alloc(dev, provider.out_provider_id, 8192);
	tap::report(buf.out_buf_id && buf.out_bar_offset < bar_len, "a place in the BAR is counted from its start");
	said("PEERDMA_BUF_ALLOC", {buf.len, buf.out_bar_offset, buf.out_mmap_offset});
	auto query = raw::sized<peerdma_file_query>();
	query.fd = file;
	query.provider_id = provider.out_provider_id;
	raw::call(dev, PEERDMA_FILE_QUERY, query);
	tap::report(!text_has_address(std::string(query.out_leaf_name) + " " + query.out_fs_name + " " +
				      query.out_refused_name),
		    "PEERDMA_FILE_QUERY tells no address");
	auto io = raw::io(file, buf.out_buf_id, 0, 0, 8192);
	tap::report(!raw::call(dev, PEERDMA_READ, io) && raw::straight(io) == 8192,
		    "a user of the group reads directly");
	said("PEERDMA_READ", {io.out_done, io.out_direct, io.out_near, io.out_host});
	tap::report(!text_has_address(slurp("/proc/self/fdinfo/" + std::to_string(dev))), "fdinfo tells none");
	const size_t files = paths_tell_none();
	tap::report(files > 10, std::to_string(files) + " readable files and outputs of commands tell none");
	::close(dev);
}

int move(const char *from, const char *to)
{
	constexpr uint64_t len = 1 << 20;
	auto device = need(peerdma::Device::open(), "device");
	auto gpu = need(device.find(""), "provider");
	auto in = need(device.open_file(from, O_RDONLY), from), out = need(device.open_file(to, O_RDWR), to);
	auto buffer = need(device.create_buffer(gpu.id, len), "buffer");
	const auto read = need(in.read(buffer, 0, len, 0), "read");
	const auto written = need(out.write(buffer, 0, len, 0), "write");
	const bool same = slurp(from) == slurp(to).substr(0, len);
	std::printf("%s %llu %llu\n", same ? "same" : "different", static_cast<unsigned long long>(read.direct),
		    static_cast<unsigned long long>(written.direct));
	return 0;
}

int rights(char **argv)
{
	int dev = ::open("/dev/peerdma", O_RDWR);
	std::printf("open %d", dev < 0 ? errno : 0);
	if (dev < 0)
		return std::puts(""), 0;
	auto publish = raw::sized<peerdma_publish>();
	publish.pci_domain = uint32_t(std::strtoul(argv[2], nullptr, 16));
	publish.pci_bdf = uint32_t(std::strtoul(argv[3], nullptr, 16));
	publish.bar = uint32_t(std::atoi(argv[4]));
	std::printf(" publish %d", -raw::call(dev, PEERDMA_PUBLISH, publish));
	int err = peerdma_provider_unpublish(publish.pci_domain, publish.pci_bdf, 0);
	std::printf(" unpublish %d", -err);
	const uint32_t provider = raw::provider(dev).out_provider_id;
	raw::alloc(dev, provider, 4096);
	std::printf(" alloc %d", errno);
	raw::alloc(dev, provider, 4096, PEERDMA_BUF_NO_ZERO);
	std::printf(" unzeroed %d\n", errno);
	return 0;
}

/// Runs one command with these words in cmd[]; returns its result.
int ring_command(int dev, uint32_t op, uint32_t buf, uint32_t file_id, uint32_t len, const peerdma_uring_io &io)
{
	io_uring ring;
	if (io_uring_queue_init(4, &ring, 0))
		return -ENOSYS;
	io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	raw::command(sqe, dev, op, buf, file_id, len, io);
	io_uring_cqe *cqe = nullptr;
	if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_wait_cqe(&ring, &cqe))
		return -EIO;
	const int res = cqe->res;
	io_uring_queue_exit(&ring);
	return res;
}

int ring_read(int dev, uint32_t buf, uint32_t file_id)
{
	return ring_command(dev, PEERDMA_URING_READ, buf, file_id, 4096, {});
}

/// A command of one piece.
int ring_readv(int dev, uint32_t buf, uint32_t file_id)
{
	peerdma_uring_seg seg = {0, 0, 4096, 0};
	return ring_command(dev, PEERDMA_URING_READV, buf, file_id, 1, {reinterpret_cast<uintptr_t>(&seg), 0});
}

/// Moves a page at the same offset in the buffer and the file.
int by_id(int dev, unsigned long cmd, uint32_t file_id, uint32_t buf, uint64_t off = 0)
{
	auto io = raw::io(int(file_id), buf, off, off, 4096);
	io.flags = PEERDMA_IO_FILE_ID;
	const int err = raw::call(dev, cmd, io);
	return err ? err : raw::straight(io) == 4096 ? 0 : -EIO;
}

/// Numbers are small and repeat across processes. Another process tries this one's numbers on its own open file.
void ids(const char *path)
{
	int dev = raw::open_device(), file = ::open(path, O_RDONLY);
	const uint32_t provider = raw::provider(dev).out_provider_id;
	const auto buf = raw::alloc(dev, provider, 8192);
	const uint32_t file_id = raw::add_file(dev, file);
	tap::report(ring_read(dev, buf.out_buf_id, file_id) == 4096, "the owner's ring reads into the buffer");
	pid_t child = ::fork();
	if (!child) {
		int own = raw::open_device(), bad = 0;
		auto read = raw::io(file, buf.out_buf_id, 0, 0, 4096);
		bad |= (raw::call(own, PEERDMA_READ, read) != -ENOENT) << 0;
		bad |= (raw::call(own, PEERDMA_WRITE, read) != -ENOENT) << 1;
		bad |= (raw::destroy(own, buf.out_buf_id) != -ENOENT) << 2;
		auto remove = raw::sized<peerdma_destroy>();
		remove.id = file_id;
		bad |= (raw::call(own, PEERDMA_FILE_REMOVE, remove) != -ENOENT) << 3;
		void *at = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, own, off_t(buf.out_mmap_offset));
		bad |= (at != MAP_FAILED || errno != EINVAL) << 4;
		bad |= (ring_read(own, buf.out_buf_id, file_id) != -ENOENT) << 5;
		// The same numbers, now naming its own, shorter buffer.
		const auto mine = raw::alloc(own, provider, 4096);
		bad |= (mine.out_buf_id != buf.out_buf_id || mine.out_bar_offset == buf.out_bar_offset) << 6;
		at = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, own, off_t(buf.out_mmap_offset));
		bad |= (at != MAP_FAILED) << 7;
		const bool foreign = ring_read(own, mine.out_buf_id, file_id) != -ENOENT ||
				     ring_readv(own, mine.out_buf_id, file_id) != -ENOENT ||
				     by_id(own, PEERDMA_READ, file_id, mine.out_buf_id) != -ENOENT ||
				     by_id(own, PEERDMA_WRITE, file_id, mine.out_buf_id) != -ENOENT;
		::_exit(bad ? bad : foreign ? 255 : 0);
	}
	int status = 0;
	::waitpid(child, &status, 0);
	tap::report(WIFEXITED(status) && !WEXITSTATUS(status),
		    "another process's numbers are nothing: read, write, destroy, remove, mmap, ring",
		    "wrong: bits of " + std::to_string(WEXITSTATUS(status)));
	tap::report(WIFEXITED(status) && WEXITSTATUS(status) != 255,
		    "nor is its file, with a buffer of one's own: read, write, ring, pieces");
	tap::report(!by_id(dev, PEERDMA_READ, file_id, buf.out_buf_id, 4096) &&
			    ring_readv(dev, buf.out_buf_id, file_id) == 1,
		    "and the owner's are as they were");
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 1 ? argv[1] : "";
	if (what == "look" && argc == 5) {
		bar_start = std::strtoull(argv[3], nullptr, 0);
		bar_len = std::strtoull(argv[4], nullptr, 0);
		look(argv[2]);
		return tap::failures != 0;
	}
	if (what == "tell" && argc == 4) {
		bar_start = std::strtoull(argv[2], nullptr, 0);
		bar_len = std::strtoull(argv[3], nullptr, 0);
		return !paths_tell_none() || tap::failures;
	}
	if (what == "move" && argc == 4)
		return move(argv[2], argv[3]);
	if (what == "rights" && argc == 5)
		return rights(argv);
	if (what == "ids" && argc == 3) {
		ids(argv[2]);
		return tap::failures != 0;
	}
	std::fprintf(stderr, "usage: access look|tell|move|rights|ids ...\n");
	return 2;
}
