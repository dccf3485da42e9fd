// SPDX-License-Identifier: MIT
//
// Queue pairs of an RDMA device, for test programs in a guest.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <istream>
#include <string>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include "../../tools/guest.hpp"

namespace queue
{

using Clock = std::chrono::steady_clock;

// Retries of unanswered requests. soft-RoCE retries forever with 7, which a busy machine needs.
inline uint8_t retries = 7;
constexpr int access_all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr enum ibv_wc_status no_completion = IBV_WC_RESP_TIMEOUT_ERR; // which no device here reports

[[noreturn]] inline void die(const std::string &what) { raw::die(what); }

struct Rdma {
	struct ibv_context *context = nullptr;
	struct ibv_pd *pd = nullptr;
	union ibv_gid gid = {};
	int gid_index = 0;

	explicit Rdma(const std::string &name)
	{
		int n = 0;
		struct ibv_device **list = ibv_get_device_list(&n);
		for (int i = 0; i < n; i++)
			if (name == ibv_get_device_name(list[i]))
				context = ibv_open_device(list[i]);
		ibv_free_device_list(list);
		if (!context || !(pd = ibv_alloc_pd(context)))
			die(name);
		// RoCE with an IPv4 address. iWARP has none.
		static const uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
		while (!ibv_query_gid(context, 1, gid_index, &gid) && std::memcmp(gid.raw, v4, sizeof(v4)))
			gid_index++;
	}
	Rdma(const Rdma &) = delete;
	~Rdma()
	{
		ibv_dealloc_pd(pd);
		ibv_close_device(context);
	}
};

/// A queue pair and its completions. Its address for the other side is one line of text.
class Queue
{
public:
	/// events: wait() sleeps until the device has an event, instead of asking it again and again
	explicit Queue(Rdma &rdma, bool events = false)
		: rdma_(rdma), channel_(events ? ibv_create_comp_channel(rdma.context) : nullptr),
		  cq_(ibv_create_cq(rdma.context, 256, nullptr, channel_, 0))
	{
		struct ibv_qp_init_attr attr = {};
		attr.send_cq = attr.recv_cq = cq_;
		attr.cap = {.max_send_wr = 128,
			    .max_recv_wr = 16,
			    .max_send_sge = 1,
			    .max_recv_sge = 1,
			    .max_inline_data = 0};
		attr.qp_type = IBV_QPT_RC;
		if ((events && !channel_) || !cq_ || !(qp_ = ibv_create_qp(rdma.pd, &attr)))
			die("ibv_create_qp");
		struct ibv_qp_attr init = {};
		init.qp_state = IBV_QPS_INIT;
		init.port_num = 1;
		init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
		modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	}
	Queue(const Queue &) = delete;
	~Queue()
	{
		ibv_destroy_qp(qp_);
		ibv_destroy_cq(cq_);
		if (channel_)
			ibv_destroy_comp_channel(channel_);
	}

	std::string name() const
	{
		char gid[INET6_ADDRSTRLEN];
		inet_ntop(AF_INET6, rdma_.gid.raw, gid, sizeof(gid));
		return std::to_string(qp_->qp_num) + " " + gid;
	}

	void join(std::istream &name, enum ibv_mtu mtu)
	{
		std::string gid;
		struct ibv_qp_attr rtr = {}, rts = {};
		name >> rtr.dest_qp_num >> gid;
		rtr.qp_state = IBV_QPS_RTR;
		rtr.path_mtu = mtu;
		rtr.max_dest_rd_atomic = 16;
		rtr.min_rnr_timer = 12;
		rtr.ah_attr.is_global = 1;
		rtr.ah_attr.port_num = 1;
		rtr.ah_attr.grh.sgid_index = uint8_t(rdma_.gid_index);
		rtr.ah_attr.grh.hop_limit = 4;
		inet_pton(AF_INET6, gid.c_str(), rtr.ah_attr.grh.dgid.raw);
		modify(rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
		// About a second until a retransmission.
		rts.qp_state = IBV_QPS_RTS;
		rts.timeout = 18;
		rts.retry_cnt = retries;
		rts.rnr_retry = 7;
		rts.max_rd_atomic = 16;
		modify(rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC);
	}

	void post(enum ibv_wr_opcode opcode, const struct ibv_sge &from, uint64_t remote_addr, uint32_t rkey)
	{
		struct ibv_sge sge = from;
		struct ibv_send_wr wr = {}, *bad;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		wr.opcode = opcode;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
		if (ibv_post_send(qp_, &wr, &bad))
			die("ibv_post_send");
	}

	void post_recv(const struct ibv_sge &into)
	{
		struct ibv_sge sge = into;
		struct ibv_recv_wr wr = {}, *bad;
		wr.sg_list = &sge;
		wr.num_sge = 1;
		if (ibv_post_recv(qp_, &wr, &bad))
			die("ibv_post_recv");
	}

	void fail()
	{
		struct ibv_qp_attr error = {};
		error.qp_state = IBV_QPS_ERR;
		modify(error, IBV_QP_STATE);
	}

	/// Waits for the completion of the oldest work request.
	struct ibv_wc wait()
	{
		struct ibv_wc wc = {};
		for (const auto end = Clock::now() + std::chrono::seconds(120); Clock::now() < end;) {
			const int n = ibv_poll_cq(cq_, 1, &wc);
			if (n < 0)
				die("ibv_poll_cq");
			if (n)
				return wc;
			if (channel_)
				wait_for_event();
			else
				std::this_thread::sleep_for(
					std::chrono::microseconds(200)); // the device runs on this very CPU
		}
		wc.status = no_completion;
		return wc;
	}

	unsigned events() const { return events_; }

private:
	/// Returns at once after the event of what came before this call.
	void wait_for_event()
	{
		struct pollfd at = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
		struct ibv_cq *cq;
		void *context;
		if (!armed_ && ibv_req_notify_cq(cq_, 0))
			die("ibv_req_notify_cq");
		// Not before the completion queue was looked at once more.
		if (!std::exchange(armed_, true) || ::poll(&at, 1, 1000) != 1)
			return;
		if (ibv_get_cq_event(channel_, &cq, &context))
			die("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
		armed_ = false;
		events_++;
	}

	void modify(struct ibv_qp_attr &attr, int mask)
	{
		if (int err = ibv_modify_qp(qp_, &attr, mask)) {
			errno = err;
			die("ibv_modify_qp");
		}
	}

	Rdma &rdma_;
	struct ibv_comp_channel *channel_;
	struct ibv_cq *cq_;
	bool armed_ = false; // an event will come
	unsigned events_ = 0;
	struct ibv_qp *qp_ = nullptr;
};

} // namespace queue
