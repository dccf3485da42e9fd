// SPDX-License-Identifier: MIT
//
// Bad input: every request here is wrong in one way. Each must end with the documented errno and reason and change
// nothing. Afterwards the pool must be full again and a correct request must work.
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <vector>

#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;

constexpr uint64_t buf_len = 64 * 1024;
int dev, file;
uint32_t provider_id, buf;

void expect(const char *what, int err, int want, uint32_t reason = 0, uint32_t want_reason = 0)
{
	report(err == -want && reason == want_reason, what,
	       "errno " + std::to_string(-err) + " reason " + std::to_string(reason) + ", want " +
		       std::to_string(want) + " " + std::to_string(want_reason));
}

/// A correct request, for the caller to corrupt.
peerdma_io good() { return raw::io(file, buf, 0, 0, 4096); }

void bad_io(const char *what, unsigned long cmd, peerdma_io req, int want, uint32_t want_reason)
{
	int err = raw::call(dev, cmd, req);
	if (req.out_done || req.out_direct || req.out_near || req.out_host)
		report(false, what, "it says that bytes moved");
	else
		expect(what, err, want, req.out_reason, want_reason);
}

void bad_read(const char *what, int want, uint32_t want_reason, const std::function<void(peerdma_io &)> &spoil)
{
	auto req = good();
	spoil(req);
	bad_io(what, PEERDMA_READ, req, want, want_reason);
}

void bad_fd(const char *what, int fd, int want, uint32_t want_reason, unsigned long cmd = PEERDMA_READ)
{
	auto req = good();
	req.fd = fd;
	bad_io(what, cmd, req, want, want_reason);
	if (fd >= 0)
		::close(fd);
}

void numbers()
{
	bad_read("length 0", EINVAL, PEERDMA_REASON_LEN_ZERO, [](auto &r) { r.len = 0; });
	bad_read("file offset near the end of 64 bits", EINVAL, PEERDMA_REASON_OVERFLOW,
		 [](auto &r) { r.file_off = -4096ULL; });
	bad_read("file offset + length past 63 bits", EINVAL, PEERDMA_REASON_OVERFLOW,
		 [](auto &r) { r.file_off = (1ULL << 63) - 4096; });
	bad_read("buffer offset + length past 64 bits", EINVAL, PEERDMA_REASON_OVERFLOW,
		 [](auto &r) { r.buf_off = -4096ULL; });
	bad_read("length past 63 bits", EINVAL, PEERDMA_REASON_OVERFLOW, [](auto &r) { r.len = -4096ULL; });
	bad_read("one block past the buffer", EINVAL, PEERDMA_REASON_BUF_RANGE, [](auto &r) { r.buf_off = buf_len; });
	bad_read("across the end of the buffer", EINVAL, PEERDMA_REASON_BUF_RANGE, [](auto &r) {
		r.buf_off = buf_len - 4096;
		r.len = 8192;
	});
	const auto strictly = [](auto &r) -> auto &
	{
		r.flags = PEERDMA_IO_NO_BOUNCE;
		return r;
	};
	bad_read("no bounce: unaligned file offset", EINVAL, PEERDMA_REASON_FILE_ALIGN,
		 [&](auto &r) { strictly(r).file_off = 1; });
	bad_read("no bounce: unaligned length", EINVAL, PEERDMA_REASON_FILE_ALIGN,
		 [&](auto &r) { strictly(r).len = 4095; });
	bad_read("no bounce: unaligned buffer offset", EINVAL, PEERDMA_REASON_BUF_ALIGN,
		 [&](auto &r) { strictly(r).buf_off = 1; });
	bad_read("unknown flag", EOPNOTSUPP, 0, [](auto &r) { r.flags = 1U << 31; });
	bad_read("reserved member not 0", EINVAL, 0, [](auto &r) { r.__reserved = 1; });
	bad_read("buffer id 0", ENOENT, 0, [](auto &r) { r.buf_id = 0; });
	bad_read("buffer id that nobody has", ENOENT, 0, [](auto &r) { r.buf_id = 0x7fffffff; });

	auto req = raw::io(file, buf, 1ULL << 40, 0, 4096);
	int err = raw::call(dev, PEERDMA_READ, req);
	report(!err && !req.out_done && req.out_reason == PEERDMA_REASON_END_OF_FILE,
	       "reading past the end of the file: 0 bytes, and why");
}

void files(const char *dir)
{
	int pipes[2], sockets[2];

	bad_fd("fd -1", -1, EBADF, 0);
	int closed = ::dup(file);
	::close(closed);
	auto req = good();
	req.fd = closed;
	bad_io("closed fd", PEERDMA_READ, req, EBADF, 0);
	bad_fd("write-only fd, reading", ::open((std::string(dir) + "/scratch").c_str(), O_WRONLY | O_CREAT, 0600),
	       EBADF, PEERDMA_REASON_FD_MODE);
	bad_fd("read-only fd, writing", ::open((std::string(dir) + "/scratch").c_str(), O_RDONLY), EBADF,
	       PEERDMA_REASON_FD_MODE, PEERDMA_WRITE);
	const int append = ::open((std::string(dir) + "/scratch").c_str(), O_WRONLY | O_APPEND);
	req.fd = append;
	req.flags = PEERDMA_IO_NO_BOUNCE;
	bad_io("no bounce: O_APPEND", PEERDMA_WRITE, req, EINVAL, PEERDMA_REASON_APPEND);
	::close(append);
	bad_fd("O_PATH fd", ::open(dir, O_PATH), EBADF, 0);
	bad_fd("directory", ::open(dir, O_RDONLY | O_DIRECTORY), EISDIR, PEERDMA_REASON_FILE_TYPE);
	if (::pipe(pipes) || ::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		raw::die("pipe");
	bad_fd("pipe", pipes[0], ESPIPE, PEERDMA_REASON_FILE_TYPE);
	bad_fd("socket", sockets[0], ESPIPE, PEERDMA_REASON_FILE_TYPE);
	bad_fd("/dev/zero", ::open("/dev/zero", O_RDWR), ESPIPE, PEERDMA_REASON_FILE_TYPE);
	bad_fd("/dev/peerdma itself", ::dup(dev), ESPIPE, PEERDMA_REASON_FILE_TYPE);
	bad_fd("tmpfs file", ::open("/tmp", O_TMPFILE | O_RDWR, 0600), EXDEV, PEERDMA_REASON_FILESYSTEM);
	bad_fd("memfd", ::memfd_create("memfd", 0), EXDEV, PEERDMA_REASON_FILESYSTEM);
	bad_fd("/proc file", ::open("/proc/self/maps", O_RDONLY), EXDEV, PEERDMA_REASON_FILESYSTEM);
	bad_fd("9p file", ::open("/bin/true", O_RDONLY), EXDEV, PEERDMA_REASON_FILESYSTEM);
}

void structs()
{
	struct {
		peerdma_io io;
		uint64_t later[4];
	} longer{};

	longer.io = good();
	longer.io.size = sizeof(longer);
	expect("longer struct, zeros at its end, is accepted", raw::call(dev, PEERDMA_READ, longer.io), 0);
	longer.later[3] = 1;
	longer.io.size = sizeof(longer);
	expect("longer struct with something at its end", raw::call(dev, PEERDMA_READ, longer.io), E2BIG);

	auto req = good();
	for (uint32_t size : {0U, 4U, 8U, uint32_t(sizeof(req)) - 1}) {
		req.size = size;
		expect(("struct of " + std::to_string(size) + " bytes").c_str(), raw::call(dev, PEERDMA_READ, req),
		       EINVAL);
	}
	req.size = 1 << 20;
	expect("struct of 1 MiB", raw::call(dev, PEERDMA_READ, req), E2BIG);
	expect("unknown ioctl number", raw::call(dev, _IO(PEERDMA_IOC_TYPE, 200), req), ENOTTY);
	expect("another driver's ioctl", raw::call(dev, _IO('T', 0), req), ENOTTY);
	errno = 0;
	expect("null pointer", ::ioctl(dev, PEERDMA_READ, nullptr) ? -errno : 0, EFAULT);

	auto *map =
		static_cast<char *>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	::munmap(map + 4096, 4096);
	auto *edge = reinterpret_cast<peerdma_io *>(map + 4096 - sizeof(peerdma_io) / 2);
	req = good();
	std::memcpy(static_cast<void *>(edge), &req, sizeof(req) / 2);
	expect("struct that runs into an unmapped page", raw::call(dev, PEERDMA_READ, *edge), EFAULT);

	auto *alloc = reinterpret_cast<peerdma_buf_alloc *>(map);
	*alloc = raw::sized<peerdma_buf_alloc>();
	alloc->provider_id = provider_id;
	alloc->len = 4096;
	::mprotect(map, 4096, PROT_READ);
	expect("allocation whose answer cannot be written", raw::call(dev, PEERDMA_BUF_ALLOC, *alloc), EFAULT);
	::munmap(map, 4096);
}

void buffers()
{
	auto check = [](const char *what, uint32_t id, uint64_t len, int want, uint32_t reason) {
		auto req = raw::alloc(dev, id, len);
		expect(what, -errno, want, req.out_reason, reason);
		if (!errno)
			raw::destroy(dev, req.out_buf_id);
	};
	check("buffer of length 0", provider_id, 0, EINVAL, PEERDMA_REASON_LEN_ZERO);
	check("buffer of 5000 bytes", provider_id, 5000, EINVAL, PEERDMA_REASON_PAGE_ALIGN);
	check("buffer past 63 bits", provider_id, 1ULL << 63, EINVAL, PEERDMA_REASON_OVERFLOW);
	check("buffer of 1 TiB", provider_id, 1ULL << 40, ENOMEM, 0);
	check("buffer on provider 0", 0, 4096, ENOENT, 0);
	auto reserved = raw::sized<peerdma_buf_alloc>();
	reserved.provider_id = provider_id;
	reserved.len = 4096;
	reserved.__reserved = 1;
	expect("buffer, reserved member not 0", raw::call(dev, PEERDMA_BUF_ALLOC, reserved), EINVAL);
	check("buffer on a provider that is not there", provider_id + 1000, 4096, ENOENT, 0);
	expect("destroying id 0", raw::destroy(dev, 0), ENOENT);
	expect("destroying what is not there", raw::destroy(dev, 0x7fffffff), ENOENT);

	auto mine = raw::alloc(dev, provider_id, 4096);
	expect("destroying a buffer", raw::destroy(dev, mine.out_buf_id), 0);
	expect("destroying it again", raw::destroy(dev, mine.out_buf_id), ENOENT);

	// Ids are small numbers that repeat across open files. An id is valid only on the file that returned it.
	int other = raw::open_device();
	auto req = good();
	expect("another open file's buffer id", raw::call(other, PEERDMA_READ, req), ENOENT);
	expect("destroying another open file's buffer", raw::destroy(other, buf), ENOENT);
	::close(other);
}

void exports()
{
	auto check = [](const char *what, int want, uint32_t reason,
			const std::function<void(peerdma_buf_export &)> &spoil) {
		auto req = raw::sized<peerdma_buf_export>();
		req.buf_id = buf;
		req.len = buf_len;
		spoil(req);
		const int err = raw::call(dev, PEERDMA_BUF_EXPORT, req);
		if (err && req.out_fd >= 0)
			report(false, what, "a descriptor with an error");
		else
			expect(what, err, want, req.out_reason, reason);
		if (!err)
			::close(req.out_fd);
	};
	check("exporting a buffer", 0, 0, [](auto &) {});
	check("exporting no bytes", EINVAL, PEERDMA_REASON_LEN_ZERO, [](auto &r) { r.len = 0; });
	check("exporting from inside a page", EINVAL, PEERDMA_REASON_PAGE_ALIGN, [](auto &r) {
		r.off = 512;
		r.len = 4096;
	});
	check("exporting half a page", EINVAL, PEERDMA_REASON_PAGE_ALIGN, [](auto &r) { r.len = 2048; });
	check("exporting past the end", EINVAL, PEERDMA_REASON_BUF_RANGE, [](auto &r) { r.off = 4096; });
	check("exporting behind the end", EINVAL, PEERDMA_REASON_BUF_RANGE, [](auto &r) {
		r.off = buf_len;
		r.len = 4096;
	});
	check("exporting, offset + length past 64 bits", EINVAL, PEERDMA_REASON_OVERFLOW,
	      [](auto &r) { r.off = -4096ULL; });
	check("exporting buffer id 0", ENOENT, 0, [](auto &r) { r.buf_id = 0; });
	check("exporting a buffer that nobody has", ENOENT, 0, [](auto &r) { r.buf_id = 0x7fffffff; });
	check("exporting, reserved member not 0", EINVAL, 0, [](auto &r) { r.__reserved = 1; });
	// Out members are not written on an error: -1 is the old value.
	check("exporting, unknown flag", EOPNOTSUPP, 0, [](auto &r) {
		r.flags = 1;
		r.out_fd = -1;
	});
	const int other = raw::open_device();
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buf;
	req.len = buf_len;
	expect("exporting another open file's buffer", raw::call(other, PEERDMA_BUF_EXPORT, req), ENOENT);
	::close(other);
	if (raw::call(dev, PEERDMA_BUF_EXPORT, req))
		raw::die("export");
	errno = 0;
	void *map = ::mmap(nullptr, buf_len, PROT_READ, MAP_SHARED, req.out_fd, 0);
	expect("a dma-buf is not mapped", map == MAP_FAILED ? -errno : 0, EINVAL);
	bad_fd("a dma-buf as a file", req.out_fd, ESPIPE, PEERDMA_REASON_FILE_TYPE); // this closes it too
	rlimit was, none;
	::getrlimit(RLIMIT_NOFILE, &was);
	none = was;
	none.rlim_cur = 0;
	::setrlimit(RLIMIT_NOFILE, &none);
	check("exporting without a free descriptor", EMFILE, 0, [](auto &) {});
	::setrlimit(RLIMIT_NOFILE, &was);
}

void others()
{
	auto query = raw::sized<peerdma_file_query>();
	query.fd = -1;
	query.provider_id = provider_id;
	expect("explain of fd -1", raw::call(dev, PEERDMA_FILE_QUERY, query), EBADF);
	query = raw::sized<peerdma_file_query>();
	query.fd = file;
	query.provider_id = provider_id;
	query.__reserved = 1;
	expect("explain, reserved member not 0", raw::call(dev, PEERDMA_FILE_QUERY, query), EINVAL);
	query = raw::sized<peerdma_file_query>();
	query.fd = file;
	query.provider_id = 12345;
	expect("explain for a provider that is not there", raw::call(dev, PEERDMA_FILE_QUERY, query), ENOENT);

	peerdma_provider_query none;
	std::memset(&none, 0xff, sizeof(none));
	none.size = sizeof(none);
	none.flags = 0;
	none.provider_id = 0x7fffffff;
	expect("the provider behind the last", raw::call(dev, PEERDMA_PROVIDER_QUERY, none), ENOENT);
	report(!none.out_provider_id && !none.out_len && !none.out_pci_device, "and nothing is said of it");

	auto publish = raw::sized<peerdma_publish>();
	publish.pci_bdf = 0xffff;
	expect("publishing a function that is not there", raw::call(dev, PEERDMA_PUBLISH, publish), ENODEV);
	publish.pci_bdf = 0x10000;
	expect("publishing a bus that cannot be", raw::call(dev, PEERDMA_PUBLISH, publish), EINVAL);
	publish.__reserved = 1;
	publish.pci_bdf = 0xffff;
	expect("publishing, reserved member not 0", raw::call(dev, PEERDMA_PUBLISH, publish), EINVAL);
	publish.__reserved = 0;
	publish.pci_bdf = 0; // the host bridge, which none of our drivers owns
	int err = raw::call(dev, PEERDMA_PUBLISH, publish);
	expect("publishing a device that is not bound here", err, EINVAL, publish.out_reason, PEERDMA_REASON_NOT_BOUND);
	auto provider = raw::provider(dev);
	publish.pci_domain = provider.out_pci_domain;
	publish.pci_bdf = provider.out_pci_bdf;
	publish.bar = provider.out_bar;
	expect("publishing twice", raw::call(dev, PEERDMA_PUBLISH, publish), EEXIST);

	pid_t child = ::fork();
	if (!child) {
		// Without the capability, through a descriptor that was opened with it.
		if (::setgid(65534) || ::setuid(65534))
			::_exit(1);
		err = raw::call(dev, PEERDMA_PUBLISH, publish);
		::_exit(err == -EPERM && ::open("/dev/peerdma", O_RDWR) < 0 && errno == EACCES ? 0 : 2);
	}
	int status = 0;
	::waitpid(child, &status, 0);
	report(WIFEXITED(status) && !WEXITSTATUS(status),
	       "an unprivileged process may neither publish nor open the device node");
}

void tell_driver(const char *what, const std::string &name)
{
	const int fd = ::open((std::string("/sys/bus/pci/drivers/peerdma/") + what).c_str(), O_WRONLY);
	if (fd < 0 || ::write(fd, name.data(), name.size()) != ssize_t(name.size()))
		raw::die(what);
	::close(fd);
}

/// The module itself refuses ranges that cannot be published; the command refuses them earlier. Leaves nothing
/// published.
void ranges()
{
	const auto provider = raw::provider(dev);
	const uint32_t bdf = provider.out_pci_bdf;
	char name[16];
	std::snprintf(name, sizeof(name), "%04x:%02x:%02x.%x", provider.out_pci_domain & 0xffff, bdf >> 8 & 0xff,
		      bdf >> 3 & 0x1f, bdf & 7);
	tell_driver("unbind", name);
	tell_driver("bind", name);
	auto publish = [&](const char *what, uint32_t bar, uint64_t off, uint64_t len, int want, uint32_t reason) {
		auto req = raw::sized<peerdma_publish>();
		req.pci_domain = provider.out_pci_domain;
		req.pci_bdf = bdf;
		req.bar = bar;
		req.bar_offset = off;
		req.len = len;
		const int err = raw::call(dev, PEERDMA_PUBLISH, req);
		expect(what, err, want, req.out_reason, reason);
	};
	const uint32_t bar = provider.out_bar;
	const uint64_t end = provider.out_bar_offset + provider.out_len, step = 2 << 20;
	publish("a BAR that no function has", 6, 0, 0, EINVAL, PEERDMA_REASON_BAR_RANGE);
	publish("a BAR that this one has not", 5, 0, 0, EINVAL, PEERDMA_REASON_BAR_RANGE);
	publish("a range behind the BAR", bar, end, 0, EINVAL, PEERDMA_REASON_BAR_RANGE);
	publish("a range that is longer than the BAR", bar, step, end, EINVAL, PEERDMA_REASON_BAR_RANGE);
	publish("a range that overflows", bar, step, -4096ULL, EINVAL, PEERDMA_REASON_BAR_RANGE);
	publish("a range that begins at odd places", bar, 4096, step, EINVAL, PEERDMA_REASON_RANGE_ALIGN);
	publish("a range of odd length", bar, 0, step + 4096, EINVAL, PEERDMA_REASON_RANGE_ALIGN);
	publish("and then a good one", bar, step, step, 0, 0);
	tell_driver("unbind", name);
}

} // namespace

// abi FILE DIR: FILE can be read directly and has at least a block; DIR is on the same filesystem.
int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	dev = raw::open_device();
	file = raw::open_file(argv[1], O_RDONLY);
	provider_id = raw::provider(dev).out_provider_id;
	buf = raw::buffer(dev, buf_len).out_buf_id;
	const uint64_t available = raw::provider(dev).out_available;

	numbers();
	files(argv[2]);
	structs();
	buffers();
	exports();
	others();

	report(raw::provider(dev).out_available == available, "nothing was lost: the pool is as full as before");
	auto req = good();
	int err = raw::call(dev, PEERDMA_READ, req);
	report(!err && req.out_done == 4096 && raw::straight(req) == 4096, "a right request still works");
	ranges();
	return tap::end();
}
