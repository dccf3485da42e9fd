// SPDX-License-Identifier: MIT
//
// nodes own NODE OWN OTHER FILE SCRATCH DOMAIN BDF: an open NODE reaches provider OWN and not provider OTHER, which is
// the
//     function at DOMAIN and BDF.
// nodes all OWN OTHER FILE: /dev/peerdma reaches both.
// nodes stay NODE OWN FILE: allocates a buffer through NODE and reports it. After a line of the standard input: checks
//     what is left of it. After another: must reach nothing of a later provider.
// nodes opens PATH: 0, or the errno of open(2).
// nodes modes NODE OWN FILE SCRATCH: the rights of a descriptor opened for reading or writing only, after it was passed
// on.
// nodes storm: opens nodes, allocates and closes until the standard input ends; prints how many buffers it had.
// nodes import NODE OWN DRIVE_DOMAIN DRIVE_BDF: a dma-buf of the stand-in exporter's, by NODE and by /dev/peerdma.
#include <algorithm>
#include <fcntl.h>
#include <iostream>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <vector>

#include "../../kmod/expstand.h"
#include "../../tools/command.hpp"
#include "../../tools/descriptor.hpp"
#include "../../tools/tap.hpp"

namespace
{

using raw::open_file, tap::report;

constexpr uint64_t len = 1 << 20;

uint32_t number(const char *text, int base = 0) { return uint32_t(std::strtoul(text, nullptr, base)); }

std::string error(int rc) { return std::to_string(rc); }

/// The ids of the providers that a walk finds.
std::vector<uint32_t> walk(int dev)
{
	std::vector<uint32_t> found;
	auto query = raw::sized<peerdma_provider_query>();
	for (; !raw::call(dev, PEERDMA_PROVIDER_QUERY, query); query.provider_id = query.out_provider_id + 1)
		found.push_back(query.out_provider_id);
	return found;
}

uint32_t count(int dev)
{
	auto info = raw::sized<peerdma_info>();
	raw::call(dev, PEERDMA_INFO, info);
	return info.out_nproviders;
}

int explain(int dev, int file, uint32_t provider)
{
	auto query = raw::sized<peerdma_file_query>();
	query.fd = file;
	query.provider_id = provider;
	const int rc = raw::call(dev, PEERDMA_FILE_QUERY, query);
	return rc ? rc : -int(query.out_errno);
}

std::string slurp(int file)
{
	std::string bytes(len, '\0');
	if (::pread(file, bytes.data(), len, 0) != ssize_t(len))
		raw::die("pread");
	return bytes;
}

/// The buffer's bytes, read by the CPU.
std::string bytes_of(int dev, const peerdma_buf_alloc &buf)
{
	char *at = raw::map(dev, buf, PROT_READ);
	std::string bytes(at, len);
	::munmap(at, len);
	return bytes;
}

int move(int dev, unsigned long cmd, int file, uint32_t buf)
{
	auto io = raw::io(file, buf, 0, 0, len);
	const int rc = raw::call(dev, cmd, io);
	return rc ? rc : io.out_direct == len ? 0 : -EIO;
}

/// The same with a struct longer than the module's, which takes a different code path.
int move_long(int dev, unsigned long cmd, int file, uint32_t buf)
{
	struct {
		peerdma_io io;
		uint64_t more;
	} req = {raw::io(file, buf, 0, 0, len), 0};
	req.io.size = sizeof(req);
	return raw::call(dev, cmd, req);
}

/// The same through a ring: 0 or the errno of its completion.
int ring(int dev, uint32_t op, int file, uint32_t buf)
{
	const peerdma_uring_seg seg = {0, 0, len, 0};
	const bool many = op == PEERDMA_URING_READV || op == PEERDMA_URING_WRITEV;
	const uint32_t wanted = many ? 1 : len;
	const int res = raw::run_command(dev, op, buf, raw::add_file(dev, file), wanted,
					 {many ? reinterpret_cast<uintptr_t>(&seg) : 0, 0});
	return res < 0 ? res : res == int(wanted) ? 0 : -EIO;
}

int publish(int dev, uint32_t domain, uint32_t bdf)
{
	auto req = raw::sized<peerdma_publish>();
	req.pci_domain = domain;
	req.pci_bdf = bdf;
	req.bar = 2;
	return raw::call(dev, PEERDMA_PUBLISH, req);
}

int export_of(int dev, uint32_t buf)
{
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buf;
	req.len = 4096;
	const int rc = raw::call(dev, PEERDMA_BUF_EXPORT, req);
	if (!rc)
		::close(req.out_fd);
	return rc;
}

int own(char **argv)
{
	const int dev = open_file(argv[2]), file = open_file(argv[5], O_RDONLY), scratch = open_file(argv[6], O_RDWR);
	const uint32_t mine = number(argv[3]), other = number(argv[4]);
	report(walk(dev) == std::vector{mine} && count(dev) == 1, "one provider is there",
	       std::to_string(walk(dev).size()) + " " + std::to_string(count(dev)));
	raw::alloc(dev, other, len);
	report(errno == ENOENT, "nothing of another one is allocated", error(errno));
	report(explain(dev, file, other) == -ENOENT, "no file is explained for it", error(explain(dev, file, other)));
	report(publish(dev, number(argv[7], 16), number(argv[8])) == -EPERM, "nothing is published",
	       error(publish(dev, number(argv[7], 16), number(argv[8]))));

	const auto buf = raw::alloc(dev, mine, len);
	report(buf.out_buf_id && !explain(dev, file, mine), "its own is allocated and explained");
	const std::string want = slurp(file);
	int rc = move(dev, PEERDMA_READ, file, buf.out_buf_id);
	report(!rc && bytes_of(dev, buf) == want, "a read is direct, and right byte by byte", error(rc));
	rc = move(dev, PEERDMA_WRITE, scratch, buf.out_buf_id);
	report(!rc && slurp(scratch) == want, "so is a write", error(rc));
	const auto second = raw::alloc(dev, mine, len);
	rc = ring(dev, PEERDMA_URING_READ, file, second.out_buf_id);
	report(!rc && bytes_of(dev, second) == want, "and a command of a ring", error(rc));
	rc = export_of(dev, second.out_buf_id);
	report(!rc || rc == -EOPNOTSUPP, "a dma-buf as by /dev/peerdma", error(rc));
	return 0;
}

int all(char **argv)
{
	const int dev = raw::open_device(), file = open_file(argv[4], O_RDONLY);
	const uint32_t one = number(argv[2]), other = number(argv[3]);
	report(walk(dev) == std::vector{std::min(one, other), std::max(one, other)} && count(dev) == 2,
	       "/dev/peerdma: both are there");
	report(raw::alloc(dev, one, len).out_buf_id && raw::alloc(dev, other, len).out_buf_id,
	       "/dev/peerdma: both are allocated of");
	report(!explain(dev, file, one) && !explain(dev, file, other), "/dev/peerdma: both are explained");
	return 0;
}

void next_line()
{
	std::string line;
	std::getline(std::cin, line);
}

int stay(char **argv)
{
	const int dev = open_file(argv[2]), file = open_file(argv[4], O_RDONLY);
	const uint32_t mine = number(argv[3]);
	const auto buf = raw::alloc(dev, mine, len);
	if (!buf.out_buf_id)
		raw::die("buffer");
	std::cout << "here" << std::endl;
	next_line();
	auto io = raw::io(file, buf.out_buf_id, 0, 0, len);
	std::cout << raw::call(dev, PEERDMA_READ, io) << ' ' << io.out_reason;
	raw::alloc(dev, mine, len);
	std::cout << ' ' << -errno << ' ' << explain(dev, file, mine) << ' ' << walk(dev).size() << ' ' << count(dev)
		  << ' ' << raw::destroy(dev, buf.out_buf_id) << std::endl;
	next_line();
	std::cout << walk(dev).size() << ' ' << count(dev) << ' ';
	const int main = raw::open_device();
	std::cout << walk(main).size() << std::endl;
	next_line();
	return 0;
}

/// The descriptor as another process receives it.
int pass_on(int fd)
{
	int pair[2];
	if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		raw::die("socketpair");
	const int got = descriptor::send(pair[0], fd) ? descriptor::receive(pair[1]) : -1;
	if (got < 0)
		raw::die("SCM_RIGHTS");
	::close(pair[0]);
	::close(pair[1]);
	return got;
}

int maps(int dev, const peerdma_buf_alloc &buf, int prot)
{
	void *at = ::mmap(nullptr, len, prot, MAP_SHARED, dev, off_t(buf.out_mmap_offset));
	if (at == MAP_FAILED)
		return -errno;
	::munmap(at, len);
	return 0;
}

int registers(int dev)
{
	auto req = raw::sized<peerdma_buf_register>();
	req.pci_vendor = 0x10de;
	req.len = req.addr = 65536;
	return raw::call(dev, PEERDMA_BUF_REGISTER, req);
}

int imports(int dev)
{
	auto req = raw::sized<peerdma_buf_import>();
	req.fd = -1;
	req.len = 65536;
	return raw::call(dev, PEERDMA_BUF_IMPORT, req);
}

/// Runs in another process, which has only the descriptor that was passed on.
template <class Body> void elsewhere(Body body)
{
	std::fflush(stdout);
	const pid_t child = ::fork();
	if (!child) {
		body();
		std::fflush(stdout);
		::_exit(0);
	}
	int status;
	::waitpid(child, &status, 0);
	if (status)
		report(false, "the other process ends well", error(status));
}

void refused(int rc, const std::string &what, int want = -EBADF) { report(rc == want, what, error(rc)); }

void reading_only(const char *node, uint32_t provider, int file, int scratch)
{
	const int opened = open_file(node, O_RDONLY), dev = pass_on(opened);
	report(walk(dev) == std::vector{provider} && count(dev) == 1 && !explain(dev, file, provider),
	       "O_RDONLY: asks");
	const auto buf = raw::alloc(dev, provider, len);
	refused(-errno, "O_RDONLY: allocates nothing");
	refused(registers(dev), "O_RDONLY: registers nothing");
	refused(imports(dev), "O_RDONLY: imports nothing");
	refused(publish(dev, 0, 0), "O_RDONLY: publishes nothing");
	refused(raw::destroy(dev, 1), "O_RDONLY: destroys nothing");
	refused(export_of(dev, 1), "O_RDONLY: exports nothing");
	refused(move(dev, PEERDMA_READ, file, 1), "O_RDONLY: reads into nothing");
	refused(move_long(dev, PEERDMA_READ, file, 1), "O_RDONLY: nor with a longer struct");
	refused(ring(dev, PEERDMA_URING_READ, file, 1), "O_RDONLY: nor by a ring");
	refused(ring(dev, PEERDMA_URING_READV, file, 1), "O_RDONLY: nor by pieces of one");
	refused(move(dev, PEERDMA_WRITE, scratch, 1), "O_RDONLY: writing is of a buffer, and there is none", -ENOENT);
	refused(maps(dev, buf, PROT_READ | PROT_WRITE), "O_RDONLY: no mapping to be stored to", -EACCES);
}

void writing_only(const char *node, uint32_t provider, int file, int scratch)
{
	const int opened = open_file(node, O_WRONLY);
	const auto buf = raw::alloc(opened, provider, len);
	const std::string before = slurp(scratch);
	report(buf.out_buf_id, "O_WRONLY: allocates");
	const int dev = pass_on(opened);
	elsewhere([&] {
		report(!move(dev, PEERDMA_READ, file, buf.out_buf_id), "O_WRONLY: fills a buffer");
		report(!ring(dev, PEERDMA_URING_READ, file, buf.out_buf_id), "O_WRONLY: by a ring as well");
		refused(move(dev, PEERDMA_WRITE, scratch, buf.out_buf_id), "O_WRONLY: writes none of it to a file");
		refused(move_long(dev, PEERDMA_WRITE, scratch, buf.out_buf_id), "O_WRONLY: nor with a longer struct");
		refused(ring(dev, PEERDMA_URING_WRITE, scratch, buf.out_buf_id), "O_WRONLY: nor by a ring");
		refused(ring(dev, PEERDMA_URING_WRITEV, scratch, buf.out_buf_id), "O_WRONLY: nor by pieces of one");
		refused(export_of(dev, buf.out_buf_id), "O_WRONLY: exports nothing");
		refused(maps(dev, buf, PROT_READ), "O_WRONLY: maps nothing", -EACCES);
		refused(maps(dev, buf, PROT_WRITE), "O_WRONLY: not to be stored to either", -EACCES);
	});
	report(slurp(scratch) == before, "O_WRONLY: the file is as it was");
	report(!raw::destroy(dev, buf.out_buf_id), "O_WRONLY: destroys");
}

void both(const char *node, uint32_t provider, int file, int scratch)
{
	const int opened = open_file(node, O_RDWR);
	const auto buf = raw::alloc(opened, provider, len);
	const int dev = pass_on(opened);
	elsewhere([&] {
		report(!move(dev, PEERDMA_READ, file, buf.out_buf_id) && bytes_of(dev, buf) == slurp(file),
		       "O_RDWR: fills a buffer and maps it");
		report(!move(dev, PEERDMA_WRITE, scratch, buf.out_buf_id) && slurp(scratch) == slurp(file),
		       "O_RDWR: writes it to a file");
		report(!ring(dev, PEERDMA_URING_WRITEV, scratch, buf.out_buf_id), "O_RDWR: by a ring as well");
		const int again = open_file("/proc/self/fd/" + std::to_string(dev), O_RDWR);
		refused(move(again, PEERDMA_READ, file, buf.out_buf_id),
			"opened anew it is another file, with buffers of its own", -ENOENT);
	});
}

int modes(char **argv)
{
	const uint32_t provider = number(argv[3]);
	const int file = open_file(argv[4], O_RDONLY), scratch = open_file(argv[5], O_RDWR);
	reading_only(argv[2], provider, file, scratch);
	writing_only(argv[2], provider, file, scratch);
	both(argv[2], provider, file, scratch);
	return 0;
}

int storm()
{
	std::cout << "here" << std::endl;
	unsigned long had = 0;
	pollfd in = {0, POLLIN, 0};
	while (!::poll(&in, 1, 0)) {
		for (uint32_t id = 1; id < 40; id++) {
			const int dev = ::open(("/dev/peerdma" + std::to_string(id)).c_str(), O_RDWR | O_CLOEXEC);
			if (dev < 0)
				continue;
			had += !!raw::alloc(dev, id, 65536).out_buf_id;
			::close(dev);
		}
	}
	std::cout << had << std::endl;
	return 0;
}

peerdma_buf_import bring(int dev, int fd, char **drive)
{
	auto req = raw::sized<peerdma_buf_import>();
	req.fd = fd;
	req.pci_domain = number(drive[0], 16);
	req.pci_bdf = number(drive[1]);
	req.len = 65536;
	errno = -raw::call(dev, PEERDMA_BUF_IMPORT, req);
	return req;
}

int import(char **argv)
{
	const int stand = open_file("/dev/expstand", O_RDWR), dev = open_file(argv[2]), main = raw::open_device();
	exp_make made = {16 * 65536, 65536, 0, EXP_LINEAR, EXP_NONE, -1};
	if (::ioctl(stand, EXP_MAKE, &made))
		raw::die("EXP_MAKE");
	auto req = bring(dev, made.out_fd, argv + 4);
	report(errno == ENOENT && !req.out_buf_id && !req.out_reason, "another function's dma-buf is refused",
	       error(errno) + " " + std::to_string(req.out_reason));
	req = bring(main, made.out_fd, argv + 4);
	report(req.out_buf_id, "by /dev/peerdma it is imported", error(errno) + " " + std::to_string(req.out_reason));
	report(walk(dev) == std::vector{number(argv[3])}, "and its provider is not seen by the other's node");
	const std::string node = "/dev/peerdma" + std::to_string(req.out_provider_id);
	const int its = ::open(node.c_str(), O_RDWR | O_CLOEXEC);
	report(its >= 0, "its provider has a node", node);
	exp_make more = {18 * 65536, 65536, 0, EXP_LINEAR, EXP_NONE, -1};
	if (::ioctl(stand, EXP_MAKE, &more))
		raw::die("EXP_MAKE");
	const auto second = bring(its, more.out_fd, argv + 4);
	report(second.out_buf_id && second.out_provider_id == req.out_provider_id, "by that more of it is imported",
	       error(errno) + " " + std::to_string(second.out_reason));
	bring(dev, more.out_fd, argv + 4);
	report(errno == ENOENT || errno == EBUSY, "and still none by the other's", error(errno));
	raw::destroy(its, second.out_buf_id);
	raw::destroy(main, req.out_buf_id);
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 1 ? argv[1] : "";
	if (what == "own" && argc == 9)
		return own(argv);
	if (what == "all" && argc == 5)
		return all(argv);
	if (what == "stay" && argc == 5)
		return stay(argv);
	if (what == "opens" && argc == 3)
		return std::printf("%d\n", ::open(argv[2], O_RDWR) < 0 ? errno : 0), 0;
	if (what == "modes" && argc == 6)
		return modes(argv);
	if (what == "storm")
		return storm();
	if (what == "import" && argc == 6)
		return import(argv);
	return 2;
}
