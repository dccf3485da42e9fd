// SPDX-License-Identifier: GPL-2.0
/*
 * rxe_odp DEVICE MTU OFFSET LENGTH [write|read]: one RDMA WRITE (or READ) within a device, to (from) a region that is
 * registered on demand, and where each byte came to lie. Exits with 1 if one is wrong.
 *
 * cc -o rxe_odp rxe_odp.c -libverbs
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 65536u
#define PIECE 256u

struct end {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *bytes;
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static int gid_index;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* Says which byte it is: no two in a page are followed by the same one. */
static unsigned char pattern(unsigned int at)
{
	return at * 7 + (at >> 8) * 31 + 1;
}

static void begin(struct end *end, int access)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	end->bytes = aligned_alloc(4096, ROOM);
	if (!end->bytes)
		die("memory");
	memset(end->bytes, 0, ROOM);
	end->mr = ibv_reg_mr(pd, end->bytes, ROOM, access);
	if (!end->mr)
		die("ibv_reg_mr");
	end->qp = ibv_create_qp(pd, &attr);
	if (!end->qp)
		die("ibv_create_qp");
	if (ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
}

static void join(struct end *end, const struct end *other, int mtu)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu == 4096 ? IBV_MTU_4096 : mtu == 1024 ? IBV_MTU_1024 : IBV_MTU_256,
		.dest_qp_num = other->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 4 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	if (ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	if (ibv_modify_qp(end->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static void open_device(const char *name)
{
	static const unsigned char v4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	for (i = 0; list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	}
	if (!context)
		die(name);
	for (gid_index = 0; !ibv_query_gid(context, 1, gid_index, &gid); gid_index++) {
		if (!memcmp(gid.raw, v4, sizeof(v4)))
			break;
	}
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	if (!pd || !cq)
		die("ibv_create_cq");
}

/* From plain's beginning to on_demand's place, or back. */
static void move(struct end *plain, struct end *on_demand, unsigned int off, unsigned int len, int read)
{
	struct ibv_sge sge = { .addr = (uintptr_t)plain->bytes, .length = len, .lkey = plain->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)on_demand->bytes + off, .rkey = on_demand->mr->rkey },
	};
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(plain->qp, &wr, &bad))
		die("ibv_post_send");
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	if (n < 0 || wc.status) {
		fprintf(stderr, "it failed: %s\n", ibv_wc_status_str(wc.status));
		exit(2);
	}
}

int main(int argc, char **argv)
{
	const int read = argc == 6 && !strcmp(argv[5], "read");
	unsigned int off, len, i, piece, wrong = 0;
	struct end plain = {}, on_demand = {};
	unsigned char *source, *target;

	if (argc < 5)
		return 2;
	off = atoi(argv[3]);
	len = atoi(argv[4]);
	if (off + len > ROOM)
		return 2;
	open_device(argv[1]);
	begin(&plain, IBV_ACCESS_LOCAL_WRITE);
	begin(&on_demand, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	      IBV_ACCESS_ON_DEMAND);
	join(&plain, &on_demand, atoi(argv[2]));
	join(&on_demand, &plain, atoi(argv[2]));

	source = read ? on_demand.bytes + off : plain.bytes;
	target = read ? plain.bytes : on_demand.bytes + off;
	for (i = 0; i < len; i++)
		source[i] = pattern(i);
	move(&plain, &on_demand, off, len, read);

	printf("path MTU %s, RDMA %s of %u bytes at %u of a page:", argv[2], read ? "READ" : "WRITE", len, off);
	for (piece = 0; piece < len; piece += PIECE) {
		unsigned int bad = 0;

		for (i = piece; i < len && i < piece + PIECE; i++)
			bad += target[i] != pattern(i);
		if (bad && !wrong)
			printf(" first wrong byte in the %u from %u on;", PIECE, piece);
		wrong += bad;
	}
	printf(" %u wrong\n", wrong);
	return wrong != 0;
}
