// SPDX-License-Identifier: MIT
//
// GPU memory to GPU memory by RDMA verbs. Two processes, in one guest or in two on a network, each with a buffer in a
// GPU that the host fills and compares. They exchange the addresses of queue pairs and regions by TCP.
//
//   verbs serve PORT RDMA-DEVICE          the other end: obeys until the connection ends; its memory is VERBS_GPU's
//   verbs ask HOST PORT RDMA-DEVICE GPU IMAGE
//                                         WRITE, READ and SEND of many lengths, and the device's own faults; then
//                                         revokes buffers under work requests, and last unbinds and unplugs our GPU
//                                         (its PCI address). IMAGE is the host's name of the other's memory: gpu0 if
//                                         it is the same
//   verbs move ...                        only WRITE, READ and SEND of many lengths
//   verbs break ...                       only the revocation under work requests
//   verbs busy HOST PORT RDMA-DEVICE      endless WRITEs
//   verbs refused RDMA-DEVICE REASON yes|no  no route, with the reason; nothing is registered. yes|no: regions on
//   demand
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "../../tools/dmabuf_mr.hpp"
#include "../../tools/guest.hpp"
#include "../../tools/tap.hpp"
#include "peerdma.hpp"
#include "peerdma_verbs.h"
#include "queue.hpp"

namespace
{

using std::to_string;
using std::chrono::milliseconds, std::chrono::seconds;
using tap::report;
using namespace queue;

constexpr uint64_t page = 4096, mib = 1 << 20;
// The region is a part of the buffer; the bytes around it must not change.
constexpr uint64_t margin = 8 * page, region_len = 65 * mib + 100, buf_len = region_len / page * page + 3 * margin;

// --- GPU memory

/// A buffer as the host sees it. Offsets are relative to the region, and to the pattern.
struct View {
	std::string image = "gpu0";
	uint64_t bar_off = 0;

	bool ask(const char *verb, uint64_t from, uint64_t end, const std::string &source, uint64_t source_off) const
	{
		return host::run("host " + std::string(verb) + " " + image + " " + to_string(bar_off + from) + " " +
				 to_string(end - from) + " " + source + " " + to_string(source_off));
	}
	/// A range and its surroundings: a few pages, or the whole buffer for a large one.
	static std::pair<uint64_t, uint64_t> around(uint64_t off, uint64_t len)
	{
		return len < mib ? std::pair(margin + off - 2 * page, margin + off + len + 2 * page) :
				   std::pair(uint64_t(0), buf_len);
	}
	bool fill(uint64_t off, uint64_t len, const std::string &source) const
	{
		const auto [from, end] = around(off, len);
		return ask("fill", from, end, source, from);
	}
	bool is(uint64_t off, uint64_t len, const std::string &source, uint64_t source_off) const
	{
		return ask("compare", margin + off, margin + off + len, source, margin + source_off);
	}
	/// True if everything around the range still has its fill.
	bool rest_is(uint64_t off, uint64_t len, const std::string &source) const
	{
		const auto [from, end] = around(off, len);
		const uint64_t after = margin + off + len;
		return ask("compare", from, margin + off, source, from) && ask("compare", after, end, source, after);
	}
};

struct Memory {
	peerdma::Device device;
	peerdma_buf *buf = nullptr;
	View view;
	struct ibv_mr *mr = nullptr;
	struct peerdma_mr_info info = {};

	Memory() : device(peerdma::Device::open().value()) { alloc(); }
	Memory(const Memory &) = delete;
	~Memory()
	{
		peerdma_mr_dereg(mr);
		peerdma_buf_destroy(buf);
	}

	void alloc()
	{
		const char *chosen = std::getenv("VERBS_GPU");
		auto gpu = device.find(chosen ? chosen : "");
		uint32_t reason = 0;
		if (!gpu || peerdma_buf_create(device.get(), gpu->id, buf_len, 0, &buf, &reason))
			die("no buffer: " + std::string(peerdma_reason_name(reason)));
		auto where = peerdma::detail::sized<peerdma_buf_info>();
		peerdma_buf_query(buf, &where);
		view.bar_off = where.bar_offset;
	}

	int reg(Rdma &rdma, uint64_t off = margin, uint64_t len = region_len)
	{
		info = peerdma::detail::sized<peerdma_mr_info>();
		return peerdma_mr_reg(rdma.pd, buf, off, len, access_all, &info, &mr);
	}
	void need(Rdma &rdma)
	{
		errno = -reg(rdma);
		if (errno)
			die(std::string("no region: ") + peerdma_reason_text(info.reason));
	}
	/// A new buffer and its region. False: the old region could not be ended.
	bool renew(Rdma &rdma)
	{
		peerdma_buf_destroy(std::exchange(buf, nullptr));
		const bool ended = !peerdma_mr_dereg(std::exchange(mr, nullptr));
		alloc();
		need(rdma);
		return ended;
	}

	struct ibv_sge sge(uint64_t off, uint64_t len) const
	{
		return {.addr = info.addr + off, .length = uint32_t(len), .lkey = mr->lkey};
	}
};

// --- The protocol between the two: one line and its answer at a time

class Line
{
public:
	explicit Line(int fd)
	{
		const int on = 1;
		::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		in_ = ::fdopen(fd, "r");
		out_ = ::fdopen(::dup(fd), "w");
	}
	Line(const Line &) = delete;
	~Line()
	{
		std::fclose(in_);
		std::fclose(out_);
	}

	void say(const std::string &text)
	{
		std::fprintf(out_, "%s\n", text.c_str());
		std::fflush(out_);
	}
	/// Returns an empty line if the connection is closed.
	std::string hear()
	{
		std::string text;
		for (int c; (c = std::getc(in_)) != EOF && c != '\n';)
			text += char(c);
		return text;
	}
	std::istringstream ask(const std::string &text)
	{
		say(text);
		return std::istringstream(hear());
	}
	bool yes(const std::string &text) { return ask(text).str() == "yes"; }

private:
	FILE *in_, *out_;
};

int listener(uint16_t port)
{
	const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	struct sockaddr_in at = {};
	at.sin_family = AF_INET;
	at.sin_port = htons(port);
	::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (::bind(fd, reinterpret_cast<struct sockaddr *>(&at), sizeof(at)) || ::listen(fd, 1))
		die("listen");
	return fd;
}

int connected(const char *host, uint16_t port)
{
	struct sockaddr_in at = {};
	at.sin_family = AF_INET;
	at.sin_port = htons(port);
	::inet_pton(AF_INET, host, &at.sin_addr);
	int fd = -1;
	// The other side may still be starting.
	if (!guest::within(seconds(60), [&] {
		    ::close(fd);
		    fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		    return !::connect(fd, reinterpret_cast<struct sockaddr *>(&at), sizeof(at));
	    }))
		die(host);
	return fd;
}

int serve(uint16_t port, const char *device)
{
	Rdma rdma(device);
	Memory memory;
	std::unique_ptr<Queue> queue;
	const int from = listener(port);
	Line line(::accept(from, nullptr, nullptr));
	::close(from);
	auto answer = [&](bool yes) { line.say(yes ? "yes" : "no"); };
	for (std::string text; !(text = line.hear()).empty();) {
		std::istringstream words(text);
		std::string verb;
		uint64_t off = 0, len = 0;
		int number = 0;
		words >> verb;
		if (verb == "reg") { // -errno, and the region's data for the other side
			const int rc = memory.reg(rdma);
			line.say(to_string(rc) + " " + to_string(rc ? 0 : memory.mr->rkey) + " " +
				 to_string(memory.info.addr) + " " + to_string(memory.info.align) + " " +
				 to_string(memory.info.path_mtu) + " " + to_string(memory.view.bar_off));
		} else if (verb == "dereg") {
			answer(!peerdma_mr_dereg(std::exchange(memory.mr, nullptr)));
		} else if (verb == "join") { // MTU and the other's queue pair; returns ours
			words >> number;
			queue.reset();
			queue = std::make_unique<Queue>(rdma);
			queue->join(words, static_cast<enum ibv_mtu>(number));
			line.say(queue->name());
		} else if (verb == "recv") {
			words >> off >> len;
			queue->post_recv(memory.sge(off, len));
			answer(true);
		} else if (verb == "came") { // status and length
			const auto wc = queue->wait();
			line.say(to_string(int(wc.status)) + " " + to_string(wc.byte_len));
		} else if (verb == "destroy") {
			peerdma_buf_destroy(std::exchange(memory.buf, nullptr));
			answer(true);
		} else if (verb == "again") { // a new, mapped buffer at the place of the last; its region is kept
			const uint64_t was = memory.view.bar_off;
			void *addr = nullptr;
			memory.alloc();
			answer(memory.view.bar_off == was && !peerdma_buf_map(memory.buf, &addr));
		} else {
			line.say("what?");
		}
	}
	return 0;
}

// --- The asking end

struct Verb {
	const char *name;
	enum ibv_wr_opcode opcode;
};
constexpr Verb rdma_write = {"WRITE", IBV_WR_RDMA_WRITE}, rdma_read = {"READ", IBV_WR_RDMA_READ},
	       rdma_send = {"SEND", IBV_WR_SEND};

struct Ends {
	Rdma rdma;
	Memory mine;
	Line far;
	View theirs;
	std::unique_ptr<Queue> queue;
	uint32_t rkey = 0;
	uint64_t far_addr = 0, align = 0;
	uint32_t mtu = 0;

	Ends(const char *device, const char *host, uint16_t port, const char *image)
		: rdma(device), far(connected(host, port))
	{
		theirs.image = image;
		mine.need(rdma);
		need_far();
		connect(mtu);
	}

	void need_far()
	{
		int rc = -1;
		uint32_t far_mtu = 0;
		far.ask("reg") >> rc >> rkey >> far_addr >> align >> far_mtu >> theirs.bar_off;
		errno = -rc;
		if (rc)
			die("the other end has no region");
		align = std::max<uint64_t>(align, mine.info.align);
		mtu = mine.info.path_mtu ? mine.info.path_mtu : far_mtu;
	}

	/// New buffers and regions at both ends.
	void renew()
	{
		mine.renew(rdma);
		for (const char *verb : {"destroy", "dereg", "again"})
			far.yes(verb);
		need_far();
		connect(mtu);
	}

	/// Creates new queue pairs, since a queue pair is unusable after an error. 0: any path MTU.
	void connect(uint32_t path_mtu)
	{
		const auto it = static_cast<enum ibv_mtu>(path_mtu ? path_mtu : uint32_t(IBV_MTU_1024));
		queue.reset();
		queue = std::make_unique<Queue>(rdma);
		auto name = far.ask("join " + to_string(int(it)) + " " + queue->name());
		queue->join(name, it);
	}

	void post(const Verb &verb, uint64_t here, uint64_t there, uint64_t len)
	{
		queue->post(verb.opcode, mine.sge(here, len), far_addr + there, rkey);
	}

	bool moved(const Verb &verb, uint64_t here, uint64_t there, uint64_t len)
	{
		if (verb.opcode == IBV_WR_SEND && !far.yes("recv " + to_string(there) + " " + to_string(len)))
			return false;
		post(verb, here, there, len);
		const auto wc = queue->wait();
		if (wc.status)
			std::printf("# %s: %s\n", verb.name, ibv_wc_status_str(wc.status));
		int status = 0;
		uint64_t got = len;
		if (verb.opcode == IBV_WR_SEND)
			far.ask("came") >> status >> got;
		return !wc.status && !status && got == len;
	}

	/// Each side is filled with a different pattern before; both depend on the offset.
	std::string wrong(const Verb &verb, uint64_t here, uint64_t there, uint64_t len)
	{
		const std::string our = "pattern:1", their = "pattern:2";
		const bool read = verb.opcode == IBV_WR_RDMA_READ;
		if (!mine.view.fill(here, len, our) || !theirs.fill(there, len, their))
			return "the host does not fill";
		if (!moved(verb, here, there, len))
			return "it failed";
		if (read ? !mine.view.is(here, len, their, there) : !theirs.is(there, len, our, here))
			return "the bytes";
		if (!mine.view.rest_is(here, len, our) || !theirs.rest_is(there, len, their))
			return "beside them";
		if (read ? !theirs.is(there, len, their, there) : !mine.view.is(here, len, our, here))
			return "what they came from";
		return "";
	}
};

void right(Ends &ends, const Verb &verb, uint64_t here, uint64_t there, uint64_t len)
{
	const std::string what = ends.wrong(verb, here, there, len);
	report(what.empty(),
	       std::string(verb.name) + ": " + to_string(len) + " bytes, " + to_string(here) + " to " +
		       to_string(there),
	       what);
}

std::string status_of(const struct ibv_wc &wc) { return ibv_wc_status_str(wc.status); }

/// WRITE from, and READ into, a region that begins and ends inside a page. Its bytes are those of one page.
void odd_region(Ends &ends)
{
	constexpr uint64_t off = 100, end = off + page, there = 5 * page;
	Memory odd;
	const int rc = odd.reg(ends.rdma, off, page);
	report(!rc, "a region that begins and ends inside a page", to_string(rc));
	if (rc)
		return;
	for (const auto &verb : {rdma_write, rdma_read}) {
		const std::string what = std::string(verb.name) + " of that region: ";
		const bool read = verb.opcode == IBV_WR_RDMA_READ;
		const bool filled =
			odd.view.ask("fill", 0, 3 * page, "pattern:1", 0) && ends.theirs.fill(there, page, "pattern:2");
		ends.queue->post(verb.opcode, odd.sge(0, page), ends.far_addr + there, ends.rkey);
		const auto wc = ends.queue->wait();
		report(filled && !wc.status, what + "it ends well", status_of(wc));
		report(read ? odd.view.ask("compare", off, end, "pattern:2", margin + there) :
			      ends.theirs.ask("compare", margin + there, margin + there + page, "pattern:1", off),
		       what + "the bytes");
		report(odd.view.ask("compare", 0, off, "pattern:1", 0) &&
			       odd.view.ask("compare", end, 3 * page, "pattern:1", end) &&
			       ends.theirs.rest_is(there, page, "pattern:2"),
		       what + "beside them");
	}
}

void bytes(Ends &ends)
{
	const std::string way = peerdma_mr_way_name(ends.mine.info.way);
	std::printf("# %s, addresses in steps of %u\n", way.c_str(), unsigned(ends.align));
	// A device without alignment rules gets odd offsets.
	const uint64_t odd = ends.align == 1 ? 7 : 0;
	for (const auto &verb : {rdma_write, rdma_read, rdma_send}) {
		for (uint64_t len : {1, 100, 4095, 4096, 4097, 70001, 1048577})
			right(ends, verb, 3 * page + odd, 5 * page + 3 * odd, len);
		right(ends, verb, page, 0, 64 * mib);
	}
	// Ends at the region's last byte: lengths need not be whole pages.
	const uint64_t tail = region_len - region_len / page * page;
	right(ends, rdma_write, 0, region_len - tail, tail);
	ends.theirs.fill(region_len - tail, 0, "pattern:2");
	ends.post(rdma_write, 0, region_len - tail, tail + 1);
	report(ends.queue->wait().status == IBV_WC_REM_ACCESS_ERR, "a byte behind the region is not of it");
	report(ends.theirs.rest_is(region_len - tail, 0, "pattern:2"), "and nothing of that request came");
	ends.connect(ends.mtu);

	if (ends.mine.info.way == PEERDMA_MR_DMABUF)
		odd_region(ends);
	if (ends.mine.info.way != PEERDMA_MR_ON_DEMAND) {
		tap::skip("soft-RoCE's own fault", "a device without it");
		return;
	}
	// Faults that align and path_mtu avoid. Once this test fails, soft-RoCE is fixed and they can be removed.
	report(ends.wrong(rdma_write, 0, 100, 1000) == "the bytes", "soft-RoCE: WRITE inside a page goes astray");
	report(ends.wrong(rdma_read, 100, 0, 1000) == "the bytes", "soft-RoCE: READ to inside a page goes astray");
	ends.connect(IBV_MTU_1024);
	report(ends.wrong(rdma_write, 0, 0, page) == "the bytes", "soft-RoCE: packets less than a page go astray");
	Memory other;
	report(other.reg(ends.rdma, 100, page) == -EINVAL && other.info.reason == PEERDMA_REASON_PAGE_ALIGN,
	       "so a region does not begin inside a page");
	ends.connect(ends.mtu);
}

/// Posts many requests, waits for the first, runs `event` and checks the rest: one ends with an error, those behind it
/// are flushed. If the event takes effect only later, for so long another request is posted for each that ends.
std::string cut(Ends &ends, const Verb &verb, const std::vector<enum ibv_wc_status> &wanted,
		const std::function<bool()> &event, seconds later)
{
	constexpr unsigned n = 15;
	constexpr uint64_t len = 4 * mib;
	unsigned posted = n;
	for (unsigned i = 0; i < n; i++) {
		if (verb.opcode == IBV_WR_SEND)
			ends.far.yes("recv " + to_string(i * len) + " " + to_string(len));
		ends.post(verb, i * len, i * len, len);
	}
	if (const auto wc = ends.queue->wait(); wc.status)
		return "the first: " + status_of(wc);
	const auto start = Clock::now();
	if (!event())
		return "it did not happen";
	if (Clock::now() - start > seconds(10))
		return "it took long";
	unsigned good = 1;
	struct ibv_wc wc = {};
	while (good < posted && !(wc = ends.queue->wait()).status) {
		good++;
		if (Clock::now() - start < later) {
			ends.post(verb, posted % n * len, posted % n * len, len);
			posted++;
		}
	}
	if (good == posted)
		return "all of them were done before";
	std::printf("# after %u of %u: %s\n", good, posted, ibv_wc_status_str(wc.status));
	if (std::find(wanted.begin(), wanted.end(), wc.status) == wanted.end())
		return status_of(wc);
	for (unsigned i = good + 1; i < posted; i++)
		if (const auto behind = ends.queue->wait(); behind.status != IBV_WC_WR_FLUSH_ERR)
			return "behind it: " + status_of(behind);
	return "";
}

void cuts(Ends &ends, const Verb &verb, const std::string &what, const std::vector<enum ibv_wc_status> &wanted,
	  const std::function<bool()> &event, seconds later = seconds(0))
{
	const std::string why = cut(ends, verb, wanted, event, later);
	report(why.empty(), std::string(verb.name) + ": " + what + ": it ends with an error", why);
}

void buffers_go(Ends &ends)
{
	auto destroy = [&] { return ends.far.yes("destroy"); };
	// A region that outlives its buffer must not reach the next buffer at that place.
	auto anew = [&](const std::string &after) {
		report(ends.far.yes("again"), after + ": its memory is there for others");
		report(ends.theirs.fill(0, 64 * mib, "pattern:3"), after + ": it is filled");
		for (const auto &verb : {rdma_write, rdma_read}) {
			ends.connect(ends.mtu);
			ends.post(verb, 0, 0, page);
			const auto wc = ends.queue->wait();
			report(wc.status == IBV_WC_REM_ACCESS_ERR,
			       after + ": the old region is no way to it by " + verb.name, status_of(wc));
		}
		report(ends.theirs.is(0, 64 * mib, "pattern:3", 0), after + ": nothing came");
		report(ends.far.yes("dereg"), after + ": the region is ended");
		ends.need_far();
		ends.connect(ends.mtu);
	};
	cuts(ends, rdma_write, "the buffer it goes to is destroyed", {IBV_WC_REM_ACCESS_ERR}, destroy);
	anew("after WRITE");
	cuts(ends, rdma_read, "the buffer it comes from is destroyed", {IBV_WC_REM_ACCESS_ERR}, destroy);
	anew("after READ");
	cuts(ends, rdma_send, "the receiver's buffer is destroyed", {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR},
	     destroy);
	anew("after SEND");

	auto destroy_ours = [&] {
		peerdma_buf_destroy(std::exchange(ends.mine.buf, nullptr));
		return true;
	};
	// A READ under way must not reach the place that the buffer had. The other end's memory has pattern:3.
	auto ours_anew = [&] {
		report(ends.mine.view.fill(0, 64 * mib, "pattern:4"), "the place of our buffer is filled");
		std::this_thread::sleep_for(milliseconds(300));
		report(ends.mine.view.is(0, 64 * mib, "pattern:4", 0), "nothing came to it");
		report(ends.mine.renew(ends.rdma), "its region is ended afterwards");
		ends.connect(ends.mtu);
	};
	cuts(ends, rdma_read, "the buffer it goes to is destroyed", {IBV_WC_LOC_PROT_ERR}, destroy_ours);
	ours_anew();
	// Soft-RoCE reports all requests of the queue as flushed, including the one that it could not send.
	cuts(ends, rdma_write, "the buffer it comes from is destroyed", {IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR},
	     destroy_ours);
	ours_anew();
}

/// Our queue pair fails under its work requests. The memory at both ends must stay valid.
void queue_fails(Ends &ends)
{
	for (const auto &verb : {rdma_send, rdma_read, rdma_write}) {
		cuts(ends, verb, "the queue pair fails", {IBV_WC_WR_FLUSH_ERR},
		     [&] { return ends.queue->fail(), true; });
		// Packets that the other end has already received are stored soon.
		std::this_thread::sleep_for(milliseconds(300));
		ends.theirs.fill(0, 64 * mib, "pattern:3");
		std::this_thread::sleep_for(milliseconds(300));
		report(ends.theirs.is(0, 64 * mib, "pattern:3", 0),
		       std::string(verb.name) + ": nothing comes afterwards");
		ends.connect(ends.mtu);
	}
	right(ends, rdma_write, 0, page, mib);
	right(ends, rdma_read, page, 0, mib);
}

/// The GPU, which may have gone before and come again, goes at both ends if both are in this guest, otherwise ours. Requests under way:
/// WRITEs, or READs into ours.
void gpu_goes(Ends &ends, const Verb &verb, const std::string &what, const std::function<bool()> &event,
	      seconds later = seconds(0))
{
	ends.renew();
	cuts(ends, verb, what, {IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR}, event, later);
	const bool to_ours = verb.opcode == IBV_WR_RDMA_READ;
	// Another guest's GPU is still there, and what that end has already received is stored soon.
	if (!to_ours)
		std::this_thread::sleep_for(milliseconds(300));
	const auto &to = to_ours ? ends.mine.view : ends.theirs;
	report(to.fill(0, 64 * mib, "pattern:5"), what + ": the place of the buffer is filled");
	std::this_thread::sleep_for(milliseconds(300));
	report(to.is(0, 64 * mib, "pattern:5", 0), what + ": nothing more came to it by " + verb.name);
	ends.connect(ends.mtu);
	ends.post(rdma_read, 0, 0, page);
	const auto status = ends.queue->wait().status;
	report(status != IBV_WC_SUCCESS && status != no_completion, what + ": a later request ends with an error");
	struct peerdma_mr_info info = peerdma::detail::sized<peerdma_mr_info>();
	struct ibv_mr *none = nullptr;
	report(peerdma_mr_reg(ends.rdma.pd, ends.mine.buf, 0, page, access_all, &info, &none) == -ENODEV,
	       what + ": no new region");
}

void gpus_go(Ends &ends, const std::string &gpu)
{
	for (const auto &verb : {rdma_read, rdma_write}) {
		gpu_goes(ends, verb, "the GPU is unbound",
			 [&] { return guest::put("/sys/bus/pci/drivers/peerdma/unbind", gpu); });
		report(!guest::bind_and_publish(gpu, 0), "it is published again, with the old regions still there");
	}
	if (!guest::hotplugs()) {
		tap::skip("the GPU is unplugged", "pciehp: its locks (Documentation/upstream/pciehp-reset-lock), and "
						  "the slot's button on a realtime kernel");
		return;
	}
	const auto unplug = [] { return guest::unplug(), true; };
	for (const auto &verb : {rdma_read, rdma_write}) {
		gpu_goes(ends, verb, "the GPU is unplugged", unplug, seconds(30));
		report(guest::within(seconds(30),
				     [&] { return !std::filesystem::exists("/sys/bus/pci/devices/" + gpu); }),
		       "the GPU is unplugged: the kernel lets it go");
		guest::plug_in();
		report(guest::within(seconds(60), [&] { return !guest::bind_and_publish(gpu, 0); }),
		       "the GPU is plugged in and published again, with the old regions still there");
	}
}

/// Endless WRITEs for tests that break something; prints when they have started.
int busy(Ends &ends)
{
	constexpr uint64_t len = 4 * mib;
	for (uint64_t i = 0; i < 8; i++)
		ends.post(rdma_write, i * len, i * len, len);
	for (uint64_t i = 0;; i = (i + 1) % 8) {
		if (const auto wc = ends.queue->wait(); wc.status)
			return std::printf("%s\n", ibv_wc_status_str(wc.status)), 1;
		ends.post(rdma_write, i * len, i * len, len);
		std::printf("busy\n");
		std::fflush(stdout);
	}
}

std::string regions()
{
	std::ostringstream all;
	for (const char *what : {"mr", "pd"}) {
		FILE *said = ::popen((std::string("rdma resource show ") + what + " 2>&1").c_str(), "r");
		for (char text[256]; std::fgets(text, sizeof(text), said);)
			all << text;
		::pclose(said);
	}
	return all.str();
}

int refused(const char *device, const std::string &reason, bool on_demand)
{
	Rdma rdma(device);
	Memory memory;
	const std::string before = regions();
	report(memory.reg(rdma) == (reason == "DISTANCE" ? -EXDEV : -EOPNOTSUPP), std::string(device) + " is refused");
	report(peerdma_reason_name(memory.info.reason) == reason, std::string(device) + ": the reason",
	       peerdma_reason_name(memory.info.reason));
	report(regions() == before, std::string(device) + ": nothing is registered");
	void *addr = nullptr;
	const int rc = peerdma_buf_map_on_demand(memory.buf, 0, page, &addr);
	report(rc == (on_demand ? 0 : -EOPNOTSUPP), "memory on demand is for kernels that do it rightly",
	       to_string(rc));
	return tap::end();
}

} // namespace

int main(int argc, char **argv)
{
	const std::string mode = argc > 1 ? argv[1] : "";
	::signal(SIGPIPE, SIG_IGN);
	if (mode == "serve" && argc == 4)
		return serve(uint16_t(std::stoi(argv[2])), argv[3]);
	if (mode == "refused" && argc == 5)
		return refused(argv[2], argv[3], argv[4] == std::string("yes"));
	if (argc != (mode == "ask" || mode == "move" || mode == "break" ? 7 : mode == "busy" ? 5 : 0))
		return std::fprintf(stderr, "usage: verbs serve|ask|move|break|busy|refused\n"), 2;
	if (mode == "busy")
		retries = 6; // must end eventually
	Ends ends(argv[4], argv[2], uint16_t(std::stoi(argv[3])), argc > 6 ? argv[6] : "");
	if (mode == "busy")
		return busy(ends);
	if (mode != "break")
		bytes(ends);
	if (mode == "move")
		return tap::end();
	queue_fails(ends);
	buffers_go(ends);
	gpus_go(ends, argv[5]);
	return tap::end();
}
