// SPDX-License-Identifier: MIT
//
// A file of node A to the memory of a GPU of node B. On node A its drive reads the file into the memory of a GPU there,
// piece after piece, and the RDMA device sends each piece on from that memory while the drive reads the next ones. With a
// card that has DMA of its own (never tried) no byte passes through the CPU, but for a last partial block; with soft-RoCE the
// CPU copies each byte that is sent.
//
//   node B:  file_to_gpu receive PORT
//   node A:  file_to_gpu send FILE HOST PORT
//
//   g++ -std=c++20 file_to_gpu.cpp -o file_to_gpu $(pkg-config --cflags --libs libpeerdma libpeerdma-verbs) -libverbs
//
// The first RDMA device and the only provider are taken: RDMA_DEVICE=mlx5_0 and GPU=0000:04:00.0 name others. The steps are
// numbered as they are done, and have the names of the verbs' own documentation, ibv_*(3): a protection domain, a completion
// queue, a queue pair, a memory region, the queue pair's states RESET, INIT, RTR and RTS, work requests, work completions.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <peerdma.hpp>
#include <peerdma_verbs.h>

namespace
{

constexpr std::uint64_t piece = 1 << 20; // bytes of a work request: whole pages
constexpr unsigned depth = 8;            // pieces on their way at once

[[noreturn]] void fail(const std::string &what, const std::string &why) { throw std::runtime_error(what + ": " + why); }

void need(bool good, const std::string &what)
{
	if (!good)
		fail(what, std::strerror(errno));
}

template <typename T> T need(peerdma::Result<T> result, const std::string &what)
{
	if (!result)
		fail(what, result.error().message() + ". " + std::string(result.error().advice()));
	return std::move(*result);
}

const char *setting(const char *name)
{
	const char *value = std::getenv(name);
	return value ? value : "";
}

// --- Between the two nodes, before there is RDMA between them: TCP

/// What one side has to know of the other. Both nodes have the same byte order.
struct Side {
	std::uint32_t qp_num;   // its queue pair
	std::uint32_t psn;      // the first packet sequence number that it sends
	std::uint32_t lid;      // its port's address, InfiniBand
	std::uint32_t mtu;      // enum ibv_mtu: the largest packets of its port
	union ibv_gid gid;      // its port's address, RoCE
	std::uint64_t addr;     // its memory region: the first byte's address,
	std::uint32_t rkey;     // the key for us,
	std::uint32_t reserved; //
	std::uint64_t len;      // and bytes
};

class Tcp
{
public:
	static Tcp accepted(const char *port)
	{
		const int listener = opened(nullptr, port), fd = ::accept(listener, nullptr, nullptr);
		::close(listener);
		need(fd >= 0, "accept");
		return Tcp(fd);
	}
	static Tcp connected(const char *host, const char *port) { return Tcp(opened(host, port)); }
	Tcp(const Tcp &) = delete;
	~Tcp() { ::close(fd_); }

	template <typename T> void send(const T &value)
	{
		need(::send(fd_, &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value), "the other node");
	}
	template <typename T> T receive()
	{
		T value;
		if (::recv(fd_, &value, sizeof(value), MSG_WAITALL) != sizeof(value))
			fail("the other node", "it has gone");
		return value;
	}

	bool ended() const
	{
		char byte;
		return ::recv(fd_, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) == 0;
	}

private:
	explicit Tcp(int fd) : fd_(fd) {}

	static int opened(const char *host, const char *port)
	{
		struct addrinfo hints = {}, *list = nullptr;
		hints.ai_family = host ? AF_UNSPEC : AF_INET6; // which also takes IPv4 where somebody listens
		hints.ai_socktype = SOCK_STREAM;
		hints.ai_flags = host ? 0 : AI_PASSIVE;
		if (int err = ::getaddrinfo(host, port, &hints, &list))
			fail(host ? host : port, ::gai_strerror(err));
		int fd = -1;
		for (auto *at = list; at && fd < 0; at = at->ai_next) {
			const int on = 1;
			fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
			::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
			if (host ? ::connect(fd, at->ai_addr, at->ai_addrlen) :
				   ::bind(fd, at->ai_addr, at->ai_addrlen) || ::listen(fd, 1)) {
				const int err = errno;
				::close(std::exchange(fd, -1));
				errno = err;
			}
		}
		::freeaddrinfo(list);
		need(fd >= 0, host ? host : port);
		return fd;
	}

	int fd_;
};

// --- GPU memory as a memory region

/// A buffer in a provider's memory, registered with an RDMA device. Its members are let go of from the last to the first.
class Memory
{
public:
	Memory(struct ibv_pd *pd, std::uint64_t bytes, int access)
		: device_(need(peerdma::Device::open(), "/dev/peerdma")),
		  gpu_(need(device_.find(setting("GPU")), "the GPU")),
		  buffer_(need(device_.create_buffer(gpu_.id, (bytes + 4095) / 4096 * 4096), "a buffer"))
	{
		// Step 5, a memory region (MR): lets the device at the memory, and gives the keys to it. lkey is for our own work
		// requests, rkey for the other side's, as far as access says.
		info_.size = sizeof(info_);
		if (int rc = peerdma_mr_reg(pd, buffer_.get(), 0, bytes, access, &info_, &mr_))
			fail("a memory region", info_.reason ? std::string(peerdma_reason_text(info_.reason)) + ". " +
								       peerdma_reason_advice(info_.reason) :
							       std::strerror(-rc));
	}
	Memory(const Memory &) = delete;
	~Memory() { peerdma_mr_dereg(mr_); }

	const peerdma::Device &device() const { return device_; }
	const peerdma::Buffer &buffer() const { return buffer_; }
	const struct peerdma_mr_info &info() const { return info_; }
	const struct ibv_mr *mr() const { return mr_; }

private:
	peerdma::Device device_;
	peerdma::ProviderInfo gpu_;
	peerdma::Buffer buffer_;
	struct peerdma_mr_info info_ = {};
	struct ibv_mr *mr_ = nullptr;
};

// --- The RDMA device, and a connection by it

class Rdma
{
public:
	Rdma()
	{
		// Step 1: open the device.
		const std::string name = setting("RDMA_DEVICE");
		struct ibv_device **list = ibv_get_device_list(nullptr);
		for (auto **at = list; at && *at && !context_; at++)
			if (name.empty() || name == ibv_get_device_name(*at))
				context_ = ibv_open_device(*at);
		ibv_free_device_list(list);
		if (!context_)
			fail("an RDMA device", "there is none" + (name.empty() ? "" : " named " + name));
		need(!ibv_query_port(context_, port, &its_), "ibv_query_port");
		find_gid();
		// Step 2, a protection domain (PD): what belongs together. A queue pair only takes memory regions of its own.
		need((pd_ = ibv_alloc_pd(context_)), "ibv_alloc_pd");
		// Step 3, a completion queue (CQ): where work that is done is announced.
		need((cq_ = ibv_create_cq(context_, 2 * depth, nullptr, nullptr, 0)), "ibv_create_cq");
		// Step 4, a queue pair (QP): where work is asked for. RC is the reliable connection, which has RDMA WRITE, and
		// keeps the order.
		struct ibv_qp_init_attr attr = {};
		attr.send_cq = attr.recv_cq = cq_;
		attr.qp_type = IBV_QPT_RC;
		attr.cap.max_send_wr = depth + 1;
		attr.cap.max_recv_wr = 1;
		attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
		need((qp_ = ibv_create_qp(pd_, &attr)), "ibv_create_qp");
	}
	Rdma(const Rdma &) = delete;
	~Rdma()
	{
		ibv_destroy_qp(qp_);
		ibv_destroy_cq(cq_);
		ibv_dealloc_pd(pd_);
		ibv_close_device(context_);
	}

	struct ibv_pd *pd() const { return pd_; }

	/// Steps 6 to 9: the queue pair, through its states. Returns what is known of the other side.
	Side connect(Tcp &tcp, const Memory &memory)
	{
		Side ours = {};
		ours.qp_num = qp_->qp_num;
		ours.lid = its_.lid;
		ours.mtu = its_.active_mtu;
		ours.gid = gid_;
		ours.addr = memory.info().addr;
		ours.rkey = memory.mr()->rkey;
		ours.len = memory.mr()->length;
		// Step 6: RESET to INIT, where it may be given receive requests.
		struct ibv_qp_attr attr = {};
		attr.qp_state = IBV_QPS_INIT;
		attr.port_num = port;
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		post_receive();
		// Step 7: tell each other.
		tcp.send(ours);
		const Side theirs = tcp.receive<Side>();
		const auto mtu = std::min(ours.mtu, theirs.mtu);
		if (memory.info().path_mtu && memory.info().path_mtu != mtu)
			fail("the path MTU",
			     "this device takes GPU memory rightly with packets of a page only: raise the MTU");
		// Step 8: INIT to RTR, ready to receive: where the other one is.
		attr = {};
		attr.qp_state = IBV_QPS_RTR;
		attr.path_mtu = static_cast<enum ibv_mtu>(mtu);
		attr.dest_qp_num = theirs.qp_num;
		attr.rq_psn = theirs.psn;
		attr.min_rnr_timer = 12; // 0.64 ms
		attr.ah_attr.port_num = port;
		attr.ah_attr.dlid = static_cast<std::uint16_t>(theirs.lid);
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = theirs.gid;
		attr.ah_attr.grh.sgid_index = gid_index_;
		attr.ah_attr.grh.hop_limit = 64;
		modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		// Step 9: RTR to RTS, ready to send.
		attr = {};
		attr.qp_state = IBV_QPS_RTS;
		attr.sq_psn = ours.psn;
		attr.timeout = 18;  // about a second, then a packet is sent again,
		attr.retry_cnt = 6; // so often: 7 is for ever to soft-RoCE,
		attr.rnr_retry = 7; // and for ever if the other side only has no receive request
		modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
		// Nobody sends before both can receive.
		tcp.send(true);
		tcp.receive<bool>();
		return theirs;
	}

	/// Step 10, a work request (WR): RDMA WRITE of a range of our region into theirs. Returns at once.
	void post_write(const Memory &memory, std::uint64_t off, std::uint64_t len, const Side &theirs,
			std::uint64_t their_off)
	{
		struct ibv_sge sge = {}; // a scatter/gather element: a range of a memory region of ours
		sge.addr = memory.info().addr + off;
		sge.length = static_cast<std::uint32_t>(len);
		sge.lkey = memory.mr()->lkey;
		struct ibv_send_wr wr = {};
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.send_flags = IBV_SEND_SIGNALED; // announced when it is done
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.wr.rdma.remote_addr = theirs.addr + their_off;
		wr.wr.rdma.rkey = theirs.rkey;
		post(wr);
	}

	/// The same without bytes, but one that takes a receive request over there: that is announced there. On a reliable
	/// connection it comes after all that was sent before.
	void post_end()
	{
		struct ibv_send_wr wr = {};
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.send_flags = IBV_SEND_SIGNALED;
		post(wr);
	}

	/// Step 11: poll the completion queue. Is the oldest work request done, of those that were not?
	bool poll()
	{
		struct ibv_wc wc = {}; // a work completion
		const int n = ibv_poll_cq(cq_, 1, &wc);
		need(n >= 0, "ibv_poll_cq");
		if (n && wc.status != IBV_WC_SUCCESS)
			fail("a work request", ibv_wc_status_str(wc.status));
		return n > 0;
	}

	/// It is, when this is back.
	void wait()
	{
		while (!poll())
			std::this_thread::yield();
	}

private:
	static constexpr std::uint8_t port = 1;

	// RoCE v2 by an IPv4 address, if there is one; else the port's first.
	void find_gid()
	{
		static const std::uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
		for (int i = its_.gid_tbl_len; i-- > 0;) {
			struct ibv_gid_entry entry = {};
			if (!ibv_query_gid_ex(context_, port, static_cast<std::uint32_t>(i), &entry, 0) &&
			    entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !std::memcmp(entry.gid.raw, v4, sizeof(v4)))
				gid_index_ = static_cast<std::uint8_t>(i);
		}
		need(!ibv_query_gid(context_, port, gid_index_, &gid_), "ibv_query_gid");
	}

	// RDMA WRITE with an immediate needs one at the receiver, though no memory for it.
	void post_receive()
	{
		struct ibv_recv_wr wr = {}, *bad = nullptr;
		errno = ibv_post_recv(qp_, &wr, &bad);
		need(!errno, "ibv_post_recv");
	}

	void post(struct ibv_send_wr &wr)
	{
		struct ibv_send_wr *bad = nullptr;
		errno = ibv_post_send(qp_, &wr, &bad);
		need(!errno, "ibv_post_send");
	}

	void modify(struct ibv_qp_attr &attr, int mask)
	{
		errno = ibv_modify_qp(qp_, &attr, mask);
		need(!errno, "ibv_modify_qp");
	}

	struct ibv_context *context_ = nullptr;
	struct ibv_pd *pd_ = nullptr;
	struct ibv_cq *cq_ = nullptr;
	struct ibv_qp *qp_ = nullptr;
	struct ibv_port_attr its_ = {};
	union ibv_gid gid_ = {};
	std::uint8_t gid_index_ = 0;
};

// --- What it is for

/// One line that is drawn again, on a terminal; elsewhere only the last state of it.
class Bar
{
public:
	explicit Bar(std::uint64_t total) : total_(total) {}

	void show(std::uint64_t done) const
	{
		constexpr int width = 40;
		const bool last = done == total_;
		if (!last && !::isatty(STDERR_FILENO))
			return;
		const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
		const double part = total_ ? static_cast<double>(done) / static_cast<double>(total_) : 1;
		std::string bar(static_cast<std::size_t>(part * width), '#');
		bar.resize(width, '.');
		std::fprintf(stderr, "\r[%s] %3.0f %% of %llu bytes, %.1f MiB/s%s", bar.c_str(), part * 100,
			     static_cast<unsigned long long>(total_),
			     static_cast<double>(done) / (1 << 20) / seconds.count(), last ? "\n" : "");
	}

private:
	const std::uint64_t total_;
	const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void receive(const char *tcp_port)
{
	Tcp tcp = Tcp::accepted(tcp_port);
	Rdma rdma;
	const auto bytes = tcp.receive<std::uint64_t>();
	const Memory memory(rdma.pd(), bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	rdma.connect(tcp, memory);
	// Node A closes its end when all is here; or before, and nothing else says so.
	for (bool ended = false; !rdma.poll(); ended = tcp.ended()) {
		if (ended)
			fail("the other node", "it has gone");
		std::this_thread::yield();
	}
	// Here is where the GPU would be told to work on it.
	std::printf("%llu bytes at BAR offset %llu, %s\n", static_cast<unsigned long long>(bytes),
		    static_cast<unsigned long long>(memory.buffer().info().bar_offset),
		    peerdma_mr_way_name(memory.info().way));
}

void send(const char *path, const char *host, const char *tcp_port)
{
	Tcp tcp = Tcp::connected(host, tcp_port);
	Rdma rdma;
	const Memory memory(rdma.pd(), depth * piece, 0); // the RDMA device only reads there, which needs no right
	const auto file = need(memory.device().open_file(path, O_RDONLY), path);
	const auto bytes = need(file.size(), path);
	if (!bytes)
		fail(path, "it is empty");
	tcp.send(bytes);
	const Side theirs = rdma.connect(tcp, memory);

	// The pipeline: a piece is read into a slot of the buffer and sent from there. While it is on its way the next is read,
	// and only if all slots are on their way the oldest is waited for.
	const Bar bar(bytes);
	std::uint64_t direct = 0;                           // bytes
	std::uint64_t posted = 0, sent = 0, overlapped = 0; // pieces
	auto arrived = [&] { bar.show(std::min(++sent * piece, bytes)); };
	for (std::uint64_t at = 0; at < bytes; at += piece, posted++) {
		const std::uint64_t slot = posted % depth * piece, len = std::min(piece, bytes - at);
		if (posted - sent == depth) {
			rdma.wait();
			arrived();
		}
		const auto got = need(file.read(memory.buffer(), slot, len, at), path);
		if (got.done != len)
			fail(path, "it has become shorter");
		direct += got.direct;
		while (sent < posted && rdma.poll())
			arrived();
		overlapped += sent < posted; // one was on its way from before this read to after it
		rdma.post_write(memory, slot, len, theirs, at);
	}
	while (sent < posted) {
		rdma.wait();
		arrived();
	}
	rdma.post_end();
	rdma.wait();
	std::printf("%llu bytes, %llu of them read by the drive itself, %s\n", static_cast<unsigned long long>(bytes),
		    static_cast<unsigned long long>(direct), peerdma_mr_way_name(memory.info().way));
	std::printf("%llu of %llu pieces were read while an earlier one was on its way\n",
		    static_cast<unsigned long long>(overlapped), static_cast<unsigned long long>(posted));
}

} // namespace

int main(int argc, char **argv)
try {
	if (argc == 3 && argv[1] == std::string("receive"))
		receive(argv[2]);
	else if (argc == 5 && argv[1] == std::string("send"))
		send(argv[2], argv[3], argv[4]);
	else
		return std::fprintf(stderr, "usage: file_to_gpu receive PORT | file_to_gpu send FILE HOST PORT\n"), 2;
	return 0;
} catch (const std::exception &error) {
	std::fprintf(stderr, "file_to_gpu: %s\n", error.what());
	return 1;
}
