// SPDX-License-Identifier: MIT
//
// import DRIVE WHAT [ARGS]: other exporters' dma-bufs as buffers, attached with the drive, a PCI address. The exporter
// is tests/kmod/expstand.c unless stated otherwise. foreign.hpp has the tests for all such memory. The host compares.
//
//   moves static|dynamic linear|scattered|page   every use of a buffer, by each way; page: starts at a page inside a
//   frame
//   late                       waits for memory that is still being moved
//   troubles                   faulty exporters; all must be refused, except those that move the memory to its final
//                              place
//   numbers                    invalid arguments
//   once                       the same memory cannot be imported twice, nor exported again
//   refused REASON ERRNO       a valid import must be refused so
//   beside REASON ERRNO        the same while another process has memory of the same GPU
//   revocable REASON ERRNO     a revocable dma-buf must be refused so; one that its exporter cannot revoke must work
//   host REASON ERRNO          host memory of the kernel's own exporter
//   ours REASON ERRNO          a dma-buf of a buffer of another open file
//   vfio REASON ERRNO GROUP    a dma-buf of vfio-pci, with its group
//   moved                      the exporter revokes it under a read: it waits, and later accesses fail
//   races ROUNDS               concurrent revocation, destruction, close and reads
//   keep static|dynamic FILE   imports, reports it, reads until the buffer is gone, and waits to be killed
#include <atomic>
#include <chrono>
#include <functional>
#include <linux/udmabuf.h>
#include <linux/vfio.h>
#include <memory>
#include <thread>
#include <vector>

#include "../../kmod/expstand.h"
#include "foreign.hpp"

namespace
{

using namespace foreign;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t page = 4096;
uint32_t drive_domain, drive_bdf;

bool parse(const char *address, uint32_t &domain, uint32_t &bdf)
{
	unsigned bus, device, function;
	if (std::sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
		return false;
	bdf = bus << 8 | device << 3 | function;
	return true;
}

/// Creates a dma-buf of the exporter.
int make(uint32_t dynamic, uint32_t layout = EXP_LINEAR, uint32_t trouble = EXP_NONE, uint64_t off = first * frame,
	 uint64_t size = len)
{
	const Fd stand(::open("/dev/expstand", O_RDWR | O_CLOEXEC));
	exp_make req = {off, size, dynamic, layout, trouble, -1};
	if (stand < 0 || ::ioctl(stand, EXP_MAKE, &req))
		raw::die("/dev/expstand");
	return req.out_fd;
}

bool take(int fd)
{
	const Fd stand(::open("/dev/expstand", O_RDWR | O_CLOEXEC));
	return !::ioctl(stand, EXP_MOVE, fd);
}

peerdma_buf_import bring(int dev, int fd, uint64_t off = 0, uint64_t size = len)
{
	auto req = raw::sized<peerdma_buf_import>();
	req.fd = fd;
	req.pci_domain = drive_domain;
	req.pci_bdf = drive_bdf;
	req.off = off;
	req.len = size;
	errno = -raw::call(dev, PEERDMA_BUF_IMPORT, req);
	return req;
}

int number(const std::string &what) { return guest::debug_number("expstand", what); }

/// -1: the exporter is not loaded.
bool none(const char *what) { return number(what) <= 0; }

/// The exporter has all memory back and counted no violation.
bool all_given_back()
{
	return guest::within(5s, [] { return none("attached") && none("mapped") && none("pinned"); }) && none("wrong");
}

std::string state()
{
	std::string all;
	for (const char *what : {"attached", "pinned", "mapped", "wrong"})
		all += std::string(what) + " " + std::to_string(number(what)) + " ";
	return all;
}

std::string said(const peerdma_buf_import &req)
{
	return std::to_string(errno) + " reason " + std::to_string(req.out_reason);
}

void refused(const std::string &what, const peerdma_buf_import &req, uint32_t reason, int error)
{
	report(!req.out_buf_id && req.out_reason == reason && errno == error, what + ": refused, and why", said(req));
	report(all_given_back(), what + ": nothing is kept", state());
}

void refuse(const std::string &what, const Fd &fd, uint32_t reason, int error, uint64_t off = 0, uint64_t size = len)
{
	const Fd dev(raw::open_device());
	refused(what, bring(dev, fd, off, size), reason, error);
}

int beside(uint32_t reason, int error)
{
	const Fd dev(raw::open_device()), fd(make(0, EXP_LINEAR, EXP_NONE, (first + frames) * frame));
	const auto req = bring(dev, fd);
	report(!req.out_buf_id && req.out_reason == reason && errno == error, "it is refused, and why", said(req));
	report(guest::within(5s, [] { return number("mapped") == 1; }), "and not kept", state());
	return 0;
}

int moves(bool dynamic, const std::string &layout)
{
	scattered = layout == "scattered";
	const uint64_t before = layout == "page" ? page : 0;
	const Fd dev(raw::open_device());
	peerdma_buf_import req;
	{
		const Fd fd(make(dynamic, scattered ? EXP_SCATTERED : EXP_LINEAR, EXP_NONE, first * frame - before,
				 len + 2 * before));
		req = bring(dev, fd, before);
	}
	report(req.out_buf_id && number("mapped") == 1 && (number("pinned") > 0) == dynamic, "it is imported",
	       said(req) + ", " + state());
	if (!req.out_buf_id)
		return 0;
	const auto provider = raw::provider(dev);
	report(provider.out_provider_id == req.out_provider_id && !provider.out_available,
	       "its GPU is a provider with nothing to allocate");
	use(dev, req.out_buf_id, req.out_mmap_offset);
	auto again = raw::sized<peerdma_buf_export>();
	again.buf_id = req.out_buf_id;
	again.len = len;
	const int err = raw::call(dev, PEERDMA_BUF_EXPORT, again);
	report(err == -EOPNOTSUPP && again.out_reason == PEERDMA_REASON_IMPORT_EXPORT && again.out_fd == -1,
	       "it is not exported again", std::to_string(err));
	report(!raw::destroy(dev, req.out_buf_id) && all_given_back(), "it is given back", state());
	auto query = raw::sized<peerdma_provider_query>();
	report(guest::within(1s, [&] { return raw::call(dev, PEERDMA_PROVIDER_QUERY, query) == -ENOENT; }),
	       "and its provider is gone");
	return 0;
}

int late()
{
	const Fd dev(raw::open_device()), soon(make(0, EXP_LINEAR, EXP_SOON));
	const auto begin = Clock::now();
	const auto req = bring(dev, soon);
	const auto took = Clock::now() - begin;
	report(req.out_buf_id && took > 150ms, "what is on its way is waited for", said(req));
	raw::destroy(dev, req.out_buf_id);
	refuse("what does not arrive", Fd(make(0, EXP_LINEAR, EXP_LATE)), PEERDMA_REASON_VENDOR_BUSY, EBUSY);
	return 0;
}

int troubles()
{
	struct Case {
		const char *what;
		uint32_t dynamic, layout, trouble, reason;
		int error;
	};
	const Case cases[] = {
		{"pieces of less than 64 KiB", 0, EXP_PIECES, 0, PEERDMA_REASON_IMPORT_PIECES, EOPNOTSUPP},
		{"host memory", 0, EXP_HOST, 0, PEERDMA_REASON_IMPORT_HOST, EOPNOTSUPP},
		{"its last frame is host memory", 0, EXP_LAST_HOST, 0, PEERDMA_REASON_IMPORT_HOST, EOPNOTSUPP},
		{"its last frame is nowhere", 0, EXP_LAST_NOWHERE, 0, PEERDMA_REASON_VENDOR_NOT_BAR, EOPNOTSUPP},
		{"its last frame is not published", 0, EXP_LAST_BEYOND, 0, PEERDMA_REASON_VENDOR_UNPUBLISHED,
		 EOPNOTSUPP},
		{"the same frame twice", 0, EXP_LAST_TWICE, 0, PEERDMA_REASON_VENDOR_BUSY, EBUSY},
		{"a table that is too short", 0, EXP_SHORT, 0, PEERDMA_REASON_IMPORT_TABLE, EOPNOTSUPP},
		{"an empty table", 0, EXP_EMPTY, 0, PEERDMA_REASON_IMPORT_TABLE, EOPNOTSUPP},
		{"no attaching", 0, 0, EXP_NO_ATTACH, PEERDMA_REASON_IMPORT_REFUSED, EOPNOTSUPP},
		{"no mapping", 0, 0, EXP_NO_MAP, PEERDMA_REASON_IMPORT_REFUSED, EOPNOTSUPP},
		{"no mapping, though pinned", 1, 0, EXP_NO_MAP, PEERDMA_REASON_IMPORT_REFUSED, EOPNOTSUPP},
		{"only to be read", 0, 0, EXP_READ_ONLY, PEERDMA_REASON_FD_MODE, EBADF},
		{"it never pins", 1, 0, EXP_NO_PIN, PEERDMA_REASON_IMPORT_REFUSED, EOPNOTSUPP},
		{"host memory, pinned", 1, EXP_HOST, 0, PEERDMA_REASON_IMPORT_HOST, EOPNOTSUPP},
		{"it moves to host memory when it is pinned", 1, 0, EXP_LEAVES_IN_PIN, PEERDMA_REASON_IMPORT_HOST,
		 EOPNOTSUPP},
		{"it moves while it is mapped", 1, 0, EXP_MOVES_IN_MAP, PEERDMA_REASON_VENDOR_FREED, ENODEV},
	};
	for (const Case &one : cases)
		refuse(one.what, Fd(make(one.dynamic, one.layout, one.trouble)), one.reason, one.error);
	refuse("all of it is nowhere", Fd(make(0, EXP_LAST_NOWHERE, EXP_NONE, first * frame, frame)),
	       PEERDMA_REASON_VENDOR_NOT_BAR, EOPNOTSUPP, 0, frame);
	for (uint32_t trouble : {EXP_MOVES_IN_ATTACH, EXP_MOVES_IN_PIN, EXP_REVOKES}) {
		const Fd dev(raw::open_device()), fd(make(1, EXP_LINEAR, trouble));
		const auto req = bring(dev, fd);
		report(req.out_buf_id, "it moves to where it stays, or will only later", said(req));
		raw::destroy(dev, req.out_buf_id);
		report(all_given_back(), "and is given back", state());
	}
	return 0;
}

int numbers()
{
	const Fd dev(raw::open_device()), fd(make(0)), file(open_file(pattern_file));
	auto wrong = [&](const char *what, const peerdma_buf_import &req, uint32_t reason, int error) {
		report(!req.out_buf_id && req.out_reason == reason && errno == error, what, said(req));
	};
	wrong("no descriptor", bring(dev, -1), PEERDMA_REASON_NONE, EBADF);
	wrong("a descriptor of something else", bring(dev, file), PEERDMA_REASON_IMPORT_NOT_DMABUF, EINVAL);
	wrong("no length", bring(dev, fd, 0, 0), PEERDMA_REASON_LEN_ZERO, EINVAL);
	wrong("a part of a page", bring(dev, fd, 512, frame), PEERDMA_REASON_VENDOR_ALIGN, EINVAL);
	wrong("a part of a frame", bring(dev, fd, 0, frame + page), PEERDMA_REASON_VENDOR_ALIGN, EINVAL);
	wrong("beyond its end", bring(dev, fd, page, len), PEERDMA_REASON_BUF_RANGE, EINVAL);
	wrong("far beyond", bring(dev, fd, 1ULL << 62, frame), PEERDMA_REASON_BUF_RANGE, EINVAL);
	wrong("beyond all numbers", bring(dev, fd, frame, uint64_t(-65536)), PEERDMA_REASON_OVERFLOW, EINVAL);
	const uint32_t drive = drive_bdf;
	drive_bdf = 0xfffff;
	wrong("no address of a device", bring(dev, fd), PEERDMA_REASON_NONE, EINVAL);
	drive_bdf = 0xffff;
	wrong("no such device", bring(dev, fd), PEERDMA_REASON_IMPORT_DEVICE, EOPNOTSUPP);
	drive_bdf = drive;
	parse(std::getenv("GPU"), drive_domain, drive_bdf);
	wrong("the memory's own device", bring(dev, fd), PEERDMA_REASON_IMPORT_DEVICE, EOPNOTSUPP);
	drive_bdf = 0; // the host bridge
	wrong("a device without a driver", bring(dev, fd), PEERDMA_REASON_IMPORT_DEVICE, EOPNOTSUPP);
	drive_bdf = drive;
	report(all_given_back(), "nothing is kept", state());
	return 0;
}

int once()
{
	const Fd dev(raw::open_device()), other(raw::open_device()), fd(make(0, EXP_SCATTERED)),
		file(open_file(pattern_file));
	const auto req = bring(dev, fd, 0, len / 2);
	auto second = bring(other, fd, 2 * frame, 4 * frame);
	report(req.out_buf_id && !second.out_buf_id && errno == EBUSY &&
		       second.out_reason == PEERDMA_REASON_VENDOR_BUSY,
	       "a part of it a second time is refused", said(second));
	second = bring(other, fd, len / 2, len / 2);
	report(second.out_buf_id && second.out_provider_id == req.out_provider_id, "what is beside it is not");
	scattered = true;
	auto io = raw::io(file, second.out_buf_id, len / 2, 0, len / 2);
	const int err = raw::call(other, PEERDMA_READ, io);
	report(!err && io.out_direct == len / 2 && holds(len / 2, len / 2, "pattern:1", len / 2),
	       "and is that part of the memory", std::to_string(err));
	const auto made = raw::alloc(dev, req.out_provider_id, page);
	report(errno == EOPNOTSUPP && made.out_reason == PEERDMA_REASON_VENDOR_MEMORY, "none of it is allocated");
	raw::destroy(dev, req.out_buf_id);
	raw::destroy(other, second.out_buf_id);
	report(all_given_back() && bring(dev, fd).out_buf_id, "it can be imported again", state());
	return 0;
}

int revocable(uint32_t reason, int error)
{
	for (uint32_t dynamic : {0, 1})
		refuse("what may be taken back", Fd(make(dynamic, EXP_LINEAR, EXP_REVOKES)), reason, error);
	const Fd dev(raw::open_device()), fd(make(1)), file(open_file(pattern_file));
	const auto req = bring(dev, fd);
	report(req.out_buf_id && !take(fd) && errno == EBUSY, "what may not be taken back stays", said(req));
	auto io = raw::io(file, req.out_buf_id, 0, 0, len);
	report(!raw::call(dev, PEERDMA_READ, io) && holds(0, len, "pattern:1"), "and is read into");
	raw::destroy(dev, req.out_buf_id);
	report(all_given_back() && take(fd), "until it is given back", state());
	return 0;
}

/// The kernel's own exporter of host memory.
int host_memory(uint32_t reason, int error)
{
	const Fd memory(::memfd_create("host", MFD_ALLOW_SEALING)), maker(::open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
	if (maker < 0 || ::ftruncate(memory, off_t(len)) || ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK))
		raw::die("/dev/udmabuf");
	udmabuf_create create = {};
	create.memfd = uint32_t(int(memory));
	create.size = len;
	refuse("host memory of udmabuf", Fd(::ioctl(maker, UDMABUF_CREATE, &create)), reason, error);
	return 0;
}

int ours(uint32_t reason, int error)
{
	const Fd dev(raw::open_device());
	const auto buf = raw::alloc(dev, raw::provider(dev).out_provider_id, len);
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buf.out_buf_id;
	req.len = len;
	if (!buf.out_buf_id || raw::call(dev, PEERDMA_BUF_EXPORT, req))
		raw::die("export");
	refuse("a buffer of ours", Fd(req.out_fd), reason, error);
	report(!raw::destroy(dev, buf.out_buf_id), "which goes as usual");
	return 0;
}

// The host's headers may be too old for these.
struct vfio_dma_buf {
	uint32_t region_index, open_flags, flags, nr_ranges;
	uint64_t offset, length;
};

struct vfio_feature {
	uint32_t argsz, flags;
	vfio_dma_buf dma_buf;
};

/// Opens the group's device without an IOMMU, and a dma-buf of its BAR 2.
int vfio(uint32_t reason, int error, const std::string &gpu, const std::string &group_path)
{
	constexpr uint32_t feature_get = 1 << 16, feature_dma_buf = 11;
	const Fd iommufd(::open("/dev/iommu", O_RDWR | O_CLOEXEC)),
		group(::open(group_path.c_str(), O_RDWR | O_CLOEXEC));
	int container = iommufd;
	if (iommufd < 0 || group < 0 || ::ioctl(group, VFIO_GROUP_SET_CONTAINER, &container) ||
	    ::ioctl(container, VFIO_SET_IOMMU, 8 /* VFIO_NOIOMMU_IOMMU */))
		raw::die(group_path);
	const Fd device(::ioctl(group, VFIO_GROUP_GET_DEVICE_FD, gpu.c_str()));
	if (device < 0)
		raw::die("VFIO_GROUP_GET_DEVICE_FD");
	vfio_feature feature = {
		sizeof(vfio_feature), feature_get | feature_dma_buf, {2, O_RDWR | O_CLOEXEC, 0, 1, 0, len}};
	const int fd = ::ioctl(device, VFIO_DEVICE_FEATURE, &feature);
	report(fd >= 0, "vfio-pci exports it", std::to_string(errno));
	if (fd >= 0)
		refuse("memory of vfio-pci", Fd(fd), reason, error);
	return 0;
}

int moved()
{
	const Fd dev(raw::open_device()), fd(make(1));
	const auto req = bring(dev, fd);
	lost_case(dev, req.out_buf_id, "expstand", "who takes it", [&] { return take(fd); });
	report(all_given_back(), "it is given back", state());
	report(take(fd) && !raw::destroy(dev, req.out_buf_id), "what is left of it is destroyed");
	return 0;
}

/// The order of the threads differs from round to round.
int races(int rounds)
{
	const Fd file(open_file(pattern_file));
	bool poisoned = true;
	int n = 0, dead = 0;
	for (int i = 0; i < rounds; i++) {
		auto dev = std::make_unique<Fd>(raw::open_device());
		const Fd fd(make(1));
		std::atomic<uint32_t> id = 0;
		bool taken = false;
		Race race;
		// In every other round the revocation hits the import itself.
		auto import = [&] { id = bring(*dev, fd).out_buf_id; };
		if (i % 2)
			race.add(i * 29 % 400, import);
		else
			import();
		race.add_readers(*dev, file, id);
		race.add(i * 37 % 3000, [&] { taken = take(fd); });
		race.add(i * 53 % 3000, [&] { raw::destroy(*dev, id); });
		race.run();
		n += id != 0;
		dead += taken;
		if (taken && i % 4 == 0)
			poisoned = poisoned && holds(0, len, poison);
		dev.reset();
		if (!all_given_back())
			break;
	}
	report(n >= rounds / 2 && dead == rounds, "each round is one",
	       std::to_string(n) + " imported, taken in " + std::to_string(dead));
	report(poisoned, "nothing comes after the memory is another's");
	report(all_given_back(), "all is given back", state());
	return 0;
}

int keep(bool dynamic, const char *name)
{
	const Fd dev(raw::open_device()), file(open_file(name, O_RDONLY));
	peerdma_buf_import req;
	{
		const Fd fd(make(dynamic));
		req = bring(dev, fd);
	}
	std::printf("%s\n", req.out_buf_id ? "imported" : "not imported");
	std::fflush(stdout);
	for (;;) {
		auto io = raw::io(file, req.out_buf_id, 0, 0, len);
		if (raw::call(dev, PEERDMA_READ, io) == -ENODEV)
			break;
	}
	std::printf("gone\n");
	std::fflush(stdout);
	::pause();
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 3 || !parse(argv[1], drive_domain, drive_bdf))
		return 2;
	const std::string what = argv[2];
	auto is = [&](const char *name, int args) { return what == name && argc == 3 + args; };
	auto arg = [&](int n) { return std::atoi(argv[n]); };
	const bool dynamic = argc > 3 && !std::strcmp(argv[3], "dynamic");

	if (is("moves", 2))
		return moves(dynamic, argv[4]);
	if (is("late", 0))
		return late();
	if (is("troubles", 0))
		return troubles();
	if (is("numbers", 0))
		return numbers();
	if (is("once", 0))
		return once();
	if (is("refused", 2)) {
		refuse("what is all right", Fd(make(0)), uint32_t(arg(3)), arg(4));
		return 0;
	}
	if (is("beside", 2))
		return beside(uint32_t(arg(3)), arg(4));
	if (is("revocable", 2))
		return revocable(uint32_t(arg(3)), arg(4));
	if (is("host", 2))
		return host_memory(uint32_t(arg(3)), arg(4));
	if (is("ours", 2))
		return ours(uint32_t(arg(3)), arg(4));
	if (is("vfio", 4))
		return vfio(uint32_t(arg(3)), arg(4), argv[5], argv[6]);
	if (is("moved", 0))
		return moved();
	if (is("races", 1))
		return races(arg(3));
	if (is("keep", 2))
		return keep(dynamic, argv[4]);
	return 2;
}
