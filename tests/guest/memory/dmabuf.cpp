// SPDX-License-Identifier: MIT
//
// dmabuf GPU: exports buffers as dma-bufs to the driver of a device with a real DMA engine (tests/kmod/edu.c). The host
// fills and compares the GPU's memory: the device's bytes must be in place, and no others may change.
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../kmod/edu.h"
#include "../../tools/guest.hpp"
#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"

namespace
{

using guest::put, guest::within;
using tap::report;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds, std::chrono::seconds;
namespace fs = std::filesystem;

constexpr uint64_t kib = 1024, page = 4096, buf_len = 256 * kib;
std::string gpu;  // PCI address
bool pins, iommu; // features of this kernel and this topology

/// Whether an exporter can ask if an importer can be told of a revocation. Without that ours refuses to pin.
bool exporters_can_ask()
{
	std::ifstream symbols("/proc/kallsyms");
	for (std::string line; std::getline(symbols, line);)
		if (line.ends_with(" dma_buf_attach_revocable"))
			return true;
	return false;
}

std::string device() { return "/sys/bus/pci/devices/" + gpu; }

void same(const std::string &what, const std::string &want, const std::string &got)
{
	report(want == got, what, "want " + want + ", got " + got);
}

void same(const std::string &what, int64_t want, int64_t got) { same(what, std::to_string(want), std::to_string(got)); }

std::string get(const std::string &file)
{
	std::ifstream in(file);
	std::ostringstream all;
	all << in.rdbuf();
	return all.str();
}

/// True if a line matches.
bool has(const std::string &text, const std::string &pattern)
{
	return std::regex_search(text, std::regex(pattern, std::regex::multiline));
}

std::string kernel_log()
{
	constexpr int read_all = 3;
	std::string log(1 << 20, '\0');
	log.resize(size_t(std::max(::klogctl(read_all, log.data(), int(log.size())), 0)));
	return log;
}

bool logged(const std::string &pattern) { return has(kernel_log(), pattern); }

size_t times_logged(const std::string &text)
{
	size_t n = 0;
	const std::string log = kernel_log();
	for (size_t at = log.find(text); at != log.npos; at = log.find(text, at + 1))
		n++;
	return n;
}

const std::string exports = "/sys/kernel/debug/peerdma/exports", held = "/sys/kernel/debug/peerdma/held";

bool is_held(const std::string &pattern) { return has(get(held), pattern); }

bool load(const std::string &module)
{
	const int fd = ::open(module.c_str(), O_RDONLY | O_CLOEXEC);
	const bool good = !::syscall(SYS_finit_module, fd, "", 0) || errno == EEXIST;
	::close(fd);
	return good;
}

bool unload(const char *module) { return !::syscall(SYS_delete_module, module, O_NONBLOCK); }

bool pool_is_full() { return get(device() + "/p2pmem/available") == get(device() + "/p2pmem/size"); }

bool gives_back() { return within(seconds(5), pool_is_full); }

// --- Exporter and importer

/// A buffer with its own open file.
struct Buffer {
	int dev = raw::open_device();
	peerdma_buf_alloc got = raw::alloc(dev, raw::provider(dev).out_provider_id, buf_len);

	Buffer()
	{
		if (!got.out_buf_id)
			raw::die("buffer");
	}
	Buffer(const Buffer &) = delete;
	~Buffer() { close(); }
	void close()
	{
		if (dev >= 0)
			::close(dev);
		dev = -1;
	}
	int destroy() { return raw::destroy(dev, got.out_buf_id); }

	/// Fills the buffer from the host.
	bool fill(const std::string &source) const
	{
		return host::run("host fill gpu0 " + std::to_string(got.out_bar_offset) + " " +
				 std::to_string(buf_len) + " " + source);
	}
	bool is(uint64_t off, uint64_t len, const std::string &source, uint64_t source_off = 0) const
	{
		return !len || tap::gpu_is(got.out_bar_offset + off, len, source, source_off);
	}
	/// True if everything outside [off, off + len) still has its fill.
	bool rest_is(uint64_t off, uint64_t len, const std::string &source) const
	{
		return is(0, off, source) && is(off + len, buf_len - off - len, source, off + len);
	}
};

/// Returns a dma-buf or -errno.
int export_of(const Buffer &buffer, uint64_t off = 0, uint64_t len = buf_len)
{
	auto req = raw::sized<peerdma_buf_export>();
	req.buf_id = buffer.got.out_buf_id;
	req.off = off;
	req.len = len;
	const int err = raw::call(buffer.dev, PEERDMA_BUF_EXPORT, req);
	return err ? err : req.out_fd;
}

/// One importer. All calls return 0 or -errno.
class Importer
{
public:
	explicit Importer(int which = 0) : fd_(::open(("/dev/edu" + std::to_string(which)).c_str(), O_RDWR | O_CLOEXEC))
	{
		if (fd_ < 0)
			raw::die("/dev/edu");
	}
	Importer(const Importer &) = delete;
	~Importer() { close(); }
	void close()
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = -1;
	}

	int attach(int dmabuf, edu_way way = EDU_NOW)
	{
		return ::ioctl(fd_, EDU_ATTACH, (unsigned long)dmabuf << 8 | way) ? -errno : 0;
	}
	int pin() { return ::ioctl(fd_, EDU_PIN, 0) ? -errno : 0; }
	int map(uint32_t dir = 0)
	{
		mapped = {};
		mapped.dir = dir;
		return raw::call(fd_, EDU_MAP, mapped);
	}
	int unmap() { return ::ioctl(fd_, EDU_UNMAP, 0) ? -errno : 0; }
	int start(uint64_t off, uint32_t len, bool out)
	{
		edu_dma dma{off, len, 0, out, 0};
		return raw::call(fd_, EDU_START, dma);
	}
	void wait() { ::ioctl(fd_, EDU_WAIT, 0); }
	int move(uint64_t off, uint32_t len, bool out)
	{
		const int err = start(off, len, out);
		wait();
		return err;
	}
	int fence() { return ::ioctl(fd_, EDU_FENCE, 0) ? -errno : 0; }
	edu_state state()
	{
		edu_state state{};
		raw::call(fd_, EDU_STATE, state);
		return state;
	}

	edu_map mapped{}; // result of the last map()

private:
	int fd_;
};

/// An importer that has mapped a whole buffer, and pinned it on request; the dma-buf is closed.
struct Import : Importer {
	explicit Import(const Buffer &buffer, edu_way way = EDU_NOW, bool pinned = false)
	{
		const int fd = export_of(buffer);
		if (fd < 0 || attach(fd, way) || (pinned && pin()) || map())
			raw::die("import");
		::close(fd);
	}
};

// --- Bytes

void bytes()
{
	struct {
		uint64_t from, to;
		uint32_t len;
	} const pieces[] = {
		{0, buf_len - 2048, 2048},
		{buf_len - 1025, 0, 1025},
		{64 * kib + 4095, 128 * kib + 1, 3},
		{3 * page + 100, 5 * page + 2001, 4000},
	};
	Buffer from, to;
	Import reads(from), writes(to);

	same("all of a buffer is mapped", buf_len, reads.mapped.out_len);
	const uint64_t bar = std::stoull(get(device() + "/resource").substr(2 * 57), nullptr, 16);
	report((reads.mapped.out_addr != bar + from.got.out_bar_offset) == iommu,
	       iommu ? "an IOMMU is between: the address is another one" : "by the address of the BAR");
	for (const auto &piece : pieces) {
		const std::string what = std::to_string(piece.len) + " bytes from " + std::to_string(piece.from) +
					 " to " + std::to_string(piece.to);
		from.fill("pattern:1");
		to.fill("pattern:2");
		report(!reads.move(piece.from, piece.len, false) && !writes.move(piece.to, piece.len, true) &&
			       to.is(piece.to, piece.len, "pattern:1", piece.from),
		       what + " are where they belong");
		report(to.rest_is(piece.to, piece.len, "pattern:2") && from.is(0, buf_len, "pattern:1"),
		       what + ": nothing beside them has changed");
	}
	// Says why the lab's RDMA card has another engine: Documentation/fabrics.md.
	constexpr int runs = 9;
	const auto begin = std::chrono::steady_clock::now();
	for (int i = 0; i < runs; i++)
		reads.move(0, 4000, false);
	const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
	std::printf("# edu: 4000 bytes in %.1f ms, mean of %d\n", took.count() / runs, runs);
}

/// Whole pages at odd offsets, mapped for reading or for writing only.
void parts()
{
	constexpr uint64_t off = 15 * page, len = 3 * page, at = 2 * page + 1234;
	Buffer from, to;
	Importer reads, writes;
	const int out = export_of(from, off, len), in = export_of(to, off + page, len);
	from.fill("pattern:3");
	to.fill("pattern:4");
	same("a part, for reading", 0, reads.attach(out) ?: reads.map(1));
	same("another one, for writing", 0, writes.attach(in) ?: writes.map(2));
	same("no more than the part is mapped", len, writes.mapped.out_len);
	// It spans a 64 KiB boundary: two pieces, if the importer limits pieces to that size and an IOMMU does not join
	// them.
	report(reads.mapped.out_pieces <= 2 && (iommu || reads.mapped.out_pieces == 2), "in pieces that it takes",
	       std::to_string(reads.mapped.out_pieces));
	same("behind the part there is nothing", -EINVAL, reads.start(len, 1, false));
	report(!reads.move(at, 1500, false) && !writes.move(at, 1500, true) &&
		       to.is(off + page + at, 1500, "pattern:3", off + at) &&
		       to.rest_is(off + page + at, 1500, "pattern:4"),
	       "offsets count from the part's start");
	::close(out);
	::close(in);
}

/// Two concurrent mappings of the same memory.
void several()
{
	Buffer buffer;
	Import one(buffer), two(buffer);
	buffer.fill("pattern:5");
	report(!one.move(0, 512, false) && !two.move(page, 512, true) && buffer.is(page, 512, "pattern:5"),
	       "two importers of one buffer");
	same("one of them goes", 0, one.unmap());
	report(!two.move(2 * page, 512, true) && buffer.is(2 * page, 512, "pattern:5"), "and the other one goes on");
	same("it comes back", 0, one.map());
}

// --- Access rights

void refusals()
{
	Buffer buffer;
	const int fd = export_of(buffer);
	auto refused = [&](const std::string &what, edu_way way, int want, const std::string &why) {
		Importer importer;
		same(what, want, importer.attach(fd, way));
		report(logged("cannot import buffer .*: .*" + why), what + ": the log says why");
	};
	refused("importing statically", EDU_STATIC, -EOPNOTSUPP, "imports statically");
	refused("not for another device's memory", EDU_OWN, -EOPNOTSUPP, "does not take memory of another device");
	uint64_t counted = 2;
	if (pins) {
		refused("without hearing", EDU_DEAF, -EOPNOTSUPP, "cannot be revoked");
		counted++;
	}
	Importer pinner;
	same("attaching to pin", 0, pinner.attach(fd));
	same("pinning", pins ? 0 : -EOPNOTSUPP, pinner.pin());
	counted += !pins;
	const std::string info = get("/proc/self/fdinfo/" + std::to_string(buffer.dev));
	report(info.find("peerdma-refused-41:\t" + std::to_string(counted) + "\n") != info.npos,
	       "they are counted by reason", info);
	if (!iommu) {
		Importer far(1);
		same("a device without a route", -EXDEV, far.attach(fd));
		report(logged("cannot import buffer .*: the kernel knows no PCI route"), "the log says that");
	}
	::close(fd);
}

void cannot_map()
{
	Buffer buffer;
	Importer importer;
	const int fd = export_of(buffer);
	same("attached", 0, importer.attach(fd));
	if (!load(fs::path(std::getenv("LAB_MODULE")).parent_path() / "kmod/nomap.ko"))
		raw::die("nomap.ko");
	same("a mapping that fails", -EXDEV, importer.map());
	unload("nomap");
	same("and one that does not", 0, importer.map());
	::close(fd);
	same("destroying", 0, buffer.destroy());
	report(pool_is_full(), "neither has kept a page");
}

/// The importer would work on a copy in host memory that is never copied back.
void bounced()
{
	Buffer buffer;
	Importer importer;
	const int fd = export_of(buffer);
	same("attached", 0, importer.attach(fd));
	same("a mapping that is a copy in host memory", -EXDEV, importer.map());
	report(logged("cannot import buffer .*: (its mapping would be a copy in host memory|the device cannot map it)"),
	       "the log says so");
	::close(fd);
	same("destroying", 0, buffer.destroy());
	report(pool_is_full(), "no page is kept");
}

// --- Observability

void seen()
{
	Buffer buffer;
	const int whole = export_of(buffer), part = export_of(buffer, page, 2 * page);
	Importer one, two;
	if (one.attach(part) || one.map() || two.attach(whole))
		raw::die("import");
	const std::string info = get("/proc/self/fdinfo/" + std::to_string(buffer.dev)), list = get(exports);
	report(info.find("peerdma-exports:\t2\n") != info.npos &&
		       info.find("peerdma-export-mapped-bytes:\t8192\n") != info.npos,
	       "fdinfo counts dma-bufs, and bytes that are mapped", info);
	const std::string whose = "provider=[0-9]+ buffer=[0-9]+ file=[0-9]+ ", who = "device=[0-9a-f:.]+ ";
	report(has(list, "^export provider=[0-9]+ pci=" + gpu + " buffer=[0-9]+ file=[0-9]+ pid=" +
				 std::to_string(::getpid()) + " offset=4096 bytes=8192 revoked=0$") &&
		       has(list, "^importer " + whose + "offset=4096 " + who + "mapped=8192$") &&
		       has(list, "^importer " + whose + "offset=0 " + who + "mapped=0$"),
	       "debugfs names each, and who imports it", list);
	::close(whole);
	::close(part);
}

// --- Revocation

void is_over(Importer &importer, const std::string &what)
{
	const auto state = importer.state();
	report(state.out_told == 1 && !state.out_mapped, what + ": the importer was told and has let go",
	       "told " + std::to_string(state.out_told) + ", mapped " + std::to_string(state.out_mapped));
	report(!state.out_busy, what + ": and its device has ended");
	same(what + ": it can order no more DMA", -EINVAL, importer.start(0, 512, true));
	same(what + ": nor map anew", -ENODEV, importer.map());
}

/// DMA in flight when the buffer is destroyed must have ended when destroying returns.
void destroyed(edu_way way, const std::string &what, bool pinned = false)
{
	Buffer buffer;
	Import importer(buffer, way, pinned);
	const int fd = export_of(buffer);
	buffer.fill("byte:7");
	importer.move(0, 512, false);
	importer.start(page, 512, true);
	same(what + ": destroying", 0, buffer.destroy());
	report(pool_is_full(), what + ": and for the importer");
	is_over(importer, what);
	// The next owner of the memory must not see it change.
	buffer.fill("byte:9");
	Importer late;
	same(what + ": nobody new may attach", -ENODEV, late.attach(fd));
	std::this_thread::sleep_for(milliseconds(150));
	report(buffer.is(0, buf_len, "byte:9"), what + ": nothing is touched again");
	::close(fd);
}

/// Fences added after the invalidation are not waited for: any holder of the descriptor can add any fence.
void fences_come()
{
	Buffer buffer;
	Import importer(buffer, EDU_LATER);
	importer.start(page, 512, true);
	std::atomic<bool> over = false;
	int result = 1, added = 0;
	std::thread destroying([&] {
		result = buffer.destroy();
		over = true;
	});
	within(seconds(2), [&] { return importer.state().out_told || over; });
	// Enough to make the kernel reallocate the fence list.
	while (added < 64 && !over && !importer.fence())
		added++;
	const bool in_time = within(seconds(5), [&] { return over.load(); });
	importer.close(); // signals its fences
	destroying.join();
	report(in_time && !result && added > 8, "fences that come later are not waited for",
	       std::to_string(added) + " were added, destroying gave " + std::to_string(result) +
		       (in_time ? "" : " when they had gone"));
	report(gives_back(), "and all is given back");
}

/// An importer that never unmaps keeps its memory out of the pool, and is named.
void kept()
{
	Buffer buffer;
	Import importer(buffer, EDU_NEVER);
	buffer.fill("byte:7");
	importer.move(0, 512, false);
	const auto start = Clock::now();
	same("who never lets go: destroying", 0, buffer.destroy());
	report(Clock::now() - start < seconds(5), "who never lets go is not waited for for ever");
	report(logged("has not unmapped buffer [0-9]+ of pid " + std::to_string(::getpid()) + ", which was revoked"),
	       "it is named in the log");
	report(is_held("pid=" + std::to_string(::getpid()) + " bytes=262144 pages=64 references=1"),
	       "and the memory in debugfs", get(held));
	Buffer next;
	report(next.got.out_bar_offset != buffer.got.out_bar_offset, "the memory is given to nobody else");
	next.fill("byte:9");
	report(!importer.move(0, 512, true) && next.is(0, buf_len, "byte:9"), "so that what it writes harms nobody");
	same("it unmaps", 0, importer.unmap());
	next.close();
	report(gives_back(), "then the pool is full");
}

/// More such importers at once than the log's rate limit allows: each must still be named, a little later.
void many_kept()
{
	constexpr int n = 12;
	const std::string line =
		"has not unmapped buffer 1 of pid " + std::to_string(::getpid()) + ", which was revoked";
	const size_t before = times_logged(line);
	{
		std::deque<Buffer> buffers(n);
		std::deque<Import> importers;
		std::vector<std::thread> threads;
		for (Buffer &buffer : buffers)
			importers.emplace_back(buffer, EDU_NEVER);
		for (Buffer &buffer : buffers)
			threads.emplace_back([&] { buffer.destroy(); });
		for (auto &thread : threads)
			thread.join();
		report(within(seconds(10), [&] { return times_logged(line) >= before + n; }),
		       "of many who do not let go each is named", std::to_string(times_logged(line) - before));
	}
	report(gives_back(), "and the pool is full when they do");
}

/// Root can allow importers without invalidation: they keep the memory until their user releases it.
void unheard()
{
	const std::string parameter = "/sys/module/peerdma/parameters/pinned_importers";
	put(parameter, "1");
	Buffer buffer;
	Importer importer;
	const int fd = export_of(buffer);
	same("root lets in who cannot be told", 0,
	     importer.attach(fd, pins ? EDU_DEAF : EDU_NEVER) ?:
		     importer.pin()                           ?:
								importer.map());
	Importer plain;
	same("but nobody who imports statically", -EOPNOTSUPP, plain.attach(fd, EDU_STATIC));
	put(parameter, "0");
	buffer.fill("byte:7");
	importer.move(0, 512, false);
	same("destroying returns", 0, buffer.destroy());
	Buffer next;
	next.fill("byte:9");
	report(!importer.move(page, 512, true) && next.is(0, buf_len, "byte:9") && buffer.is(page, 512, "byte:7"),
	       "and the memory stays the importer's");
	::close(fd);
	importer.close();
	next.close();
	report(gives_back(), "until its user closes it");
}

/// An exported dma-buf keeps a buffer alive like an mmap of it.
void closed()
{
	Buffer buffer;
	const int fd = export_of(buffer);
	report(::fcntl(fd, F_GETFD) & FD_CLOEXEC, "a dma-buf is closed on exec");
	buffer.close();
	Importer importer;
	same("the open file is closed: an importer attaches", 0, importer.attach(fd) ?: importer.map());
	buffer.fill("pattern:6");
	report(!importer.move(0, 512, false) && !importer.move(page, 512, true) && buffer.is(page, 512, "pattern:6"),
	       "and its device reaches the memory");
	::close(fd);
	same("the dma-buf is closed as well: it goes on", 0, importer.move(2 * page, 512, true));
	report(!pool_is_full(), "the importer keeps the memory");
	importer.close();
	report(gives_back(), "until it closes");
}

/// A process is killed while its device is writing.
void killed()
{
	int ready[2];
	char byte;
	if (::pipe(ready))
		raw::die("pipe");
	const pid_t child = ::fork();
	if (!child) {
		Buffer buffer;
		Import importer(buffer);
		importer.start(0, 512, true);
		(void)!::write(ready[1], "x", 1);
		for (;;)
			::pause();
	}
	(void)!::read(ready[0], &byte, 1);
	::kill(child, SIGKILL);
	::waitpid(child, nullptr, 0);
	::close(ready[0]);
	::close(ready[1]);
	report(gives_back(), "a process is killed: all of it is given back");
}

/// The device may appear before a driver can bind to it.
bool published()
{
	const int err = guest::bind_and_publish(gpu, 16 << 20);
	return !err || err == -EEXIST;
}

void provider_up()
{
	if (!fs::exists(device()))
		put("/sys/bus/pci/rescan", "1");
	if (!load(std::getenv("LAB_MODULE")) || !within(seconds(20), published))
		raw::die("no provider");
}

void device_del()
{
	guest::unplug();
	within(seconds(30), [] { return !fs::exists(device()); });
}

void provider_goes(const std::string &what, edu_way way, const std::function<void()> &go, bool pinned = false)
{
	provider_up();
	Buffer buffer;
	Import importer(buffer, way, pinned);
	buffer.fill("byte:7");
	importer.move(0, 512, false);
	importer.start(page, 512, true);
	go();
	report(!fs::exists(device() + "/p2pmem"), what + ": the provider is gone");
	is_over(importer, what);
	buffer.fill("byte:9");
	std::this_thread::sleep_for(milliseconds(150));
	report(buffer.is(0, buf_len, "byte:9"), what + ": nothing is touched again");
	same(what + ": nothing can be exported", -ENODEV, export_of(buffer));
}

void unbind() { put(device() + "/driver/unbind", gpu); }

/// An unbind waits for an importer that does not unmap, and names it.
void unbind_waits()
{
	provider_up();
	Buffer buffer;
	Import importer(buffer, EDU_NEVER);
	std::atomic<bool> done{false};
	std::thread unbinding([&] {
		unbind();
		done = true;
	});
	const std::string pid = std::to_string(::getpid());
	report(within(seconds(10), [&] { return is_held("pid=" + pid + " .* pages=64 references=1"); }),
	       "unbind, who never lets go: held");
	report(!done, "unbind waits for who does not let go");
	same("it was told", 1, importer.state().out_told);
	buffer.fill("byte:9");
	report(!importer.move(0, 512, false) && !importer.move(page, 512, true) && buffer.is(0, buf_len, "byte:9"),
	       "until then the memory is its own");
	importer.unmap();
	report(within(seconds(10), [&] { return done.load(); }), "and returns when it does");
	if (!done)
		::_exit(1);
	unbinding.join();
}

/// The module cannot be unloaded while its functions can still be called.
void unloading()
{
	provider_up();
	Buffer buffer;
	const int fd = export_of(buffer);
	buffer.close();
	report(!unload("peerdma") && errno == EWOULDBLOCK, "a dma-buf keeps the module");
	::close(fd);
	report(gives_back(), "all is given back");
	report(unload("peerdma"), "and then it unloads");
}

/// Many importers, closed in random order, while buffers come and go.
void races()
{
	std::atomic<bool> enough{false};
	std::atomic<unsigned> mapped{0};
	std::vector<std::thread> threads;
	for (int i = 0; i < 3; i++)
		threads.emplace_back([&, i] {
			while (!enough) {
				Buffer buffer;
				const int fd = export_of(buffer, i * page, 2 * page);
				Importer one, two;
				std::thread other([&] {
					if (!two.attach(fd, EDU_LATER) && !two.map())
						mapped++;
				});
				if (!one.attach(fd) && !one.map())
					mapped++;
				buffer.destroy();
				::close(fd);
				other.join();
			}
		});
	std::this_thread::sleep_for(seconds(1));
	enough = true;
	for (auto &thread : threads)
		thread.join();
	report(mapped && gives_back(), "buffers go while importers come: all is given back",
	       std::to_string(mapped) + " mappings");
}

/// Each allocation of attaching and mapping fails once, if the kernel supports fault injection. failnth.cpp covers our
/// own calls.
void starved()
{
	const std::string debugfs = "/sys/kernel/debug/";
	if (!fs::exists(debugfs + "failslab"))
		return tap::skip("each allocation of an importer's fails once", "no fault injection in this kernel");
	for (const char *fault : {"failslab", "fail_page_alloc", "fail_usercopy"}) {
		put(debugfs + fault + "/task-filter", "Y");
		put(debugfs + fault + "/verbose", "0");
		put(debugfs + fault + "/times", "-1");
		put(debugfs + fault + "/ignore-gfp-wait", "N");
	}
	put(debugfs + "fail_page_alloc/min-order", "0");
	provider_up();
	Buffer buffer;
	const int dmabuf = export_of(buffer), nth = ::open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	std::string wrong;
	int n = 0, failed = 0;
	for (char left = '0'; left == '0' && n < 100;) {
		Importer importer;
		const std::string number = std::to_string(++n);
		(void)!::pwrite(nth, number.data(), number.size(), 0);
		const int err = importer.attach(dmabuf) ?: importer.map();
		(void)!::pread(nth, &left, 1, 0); // 0: the fault was triggered
		(void)!::pwrite(nth, "0", 1, 0);
		failed += err != 0;
		if (err && err != -ENOMEM && err != -EXDEV && err != -EFAULT) // EFAULT is the importer's own
			wrong += " " + number + ": " + std::to_string(err);
	}
	report(failed > 3 && n < 100 && wrong.empty(), "each allocation of an importer's fails once",
	       std::to_string(failed) + " of " + std::to_string(n) + wrong);
	::close(nth);
	::close(dmabuf);
	same("then destroying", 0, buffer.destroy());
	report(pool_is_full(), "all is given back");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	gpu = argv[1];
	pins = exporters_can_ask();
	iommu = std::string(std::getenv("LAB_TOPOLOGY")) == "edu-vtd";

	if (std::string(std::getenv("LAB_TOPOLOGY")) == "bounce") {
		bounced();
		return tap::end();
	}
	bytes();
	parts();
	several();
	refusals();
	cannot_map();
	seen();
	destroyed(EDU_NOW, "an importer that lets go at once");
	destroyed(EDU_LATER, "one that lets go later");
	if (pins)
		destroyed(EDU_NOW, "one that has pinned it", true);
	if (!iommu) // an IOMMU would block the continuing DMA
		destroyed(EDU_FENCED, "one that unmaps while its device goes on");
	fences_come();
	kept();
	if (!iommu)
		many_kept();
	unheard();
	closed();
	killed();
	races();
	provider_goes("unbind", EDU_NOW, unbind);
	if (pins)
		provider_goes("unbind, pinned", EDU_NOW, unbind, true);
	provider_goes("unpublish", EDU_LATER, [] { host::run("peerdma unpublish " + gpu); });
	provider_goes("remove", EDU_NOW, [] { put(device() + "/remove", "1"); });
	unbind_waits();
	unloading();
	if (guest::hotplugs()) // the GPU does not come back, so this test is the last
		provider_goes("device_del", EDU_LATER, device_del);
	else
		starved(); // may disable the kernel's DMA debugging
	return tap::end();
}
