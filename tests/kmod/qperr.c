// SPDX-License-Identifier: GPL-2.0
/*
 * A queue pair of the kernel's errs, as one does that has lost its way or whose peer has refused
 * what it asked for: soft-RoCE's retries of NVMe never end. The parameter who names the function
 * that is told when a piece of work is done (nvme_rdma_send_done). The next reliable connection
 * that is given such a piece is put into the state ERR, once; errors counts them.
 *
 * Nothing here is locked: a probe may be hit wherever somebody posts, as an NMI is. Who comes by
 * takes the name away, and is the only one until another is written.
 */
#include <linux/irq_work.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

static char who[KSYM_NAME_LEN]; /* read while armed, written while not */
static atomic_t armed;
static struct ib_qp *qp; /* to be put into ERR; its owner keeps it while it waits for answers */
static unsigned int errors;
module_param(errors, uint, 0444);

static void err(struct work_struct *work)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_qp *chosen = xchg(&qp, NULL);

	if (chosen && !ib_modify_qp(chosen, &attr, IB_QP_STATE))
		errors++;
}

static DECLARE_WORK(work, err);

static void call(struct irq_work *unused)
{
	schedule_work(&work);
}

static DEFINE_IRQ_WORK(caller, call);

static bool is_theirs(const struct ib_send_wr *wr)
{
	char name[KSYM_SYMBOL_LEN];
	size_t len = strlen(who);

	for (; len && wr; wr = wr->next) {
		if (!wr->wr_cqe || !wr->wr_cqe->done)
			continue;
		sprint_symbol_no_offset(name, (unsigned long)wr->wr_cqe->done);
		/* Behind it is the module's name. */
		if (!strncmp(name, who, len) && (name[len] == ' ' || !name[len]))
			return true;
	}
	return false;
}

/* int rxe_post_send(struct ib_qp *, const struct ib_send_wr *, const struct ib_send_wr **) */
static int posts(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_qp *poster = (void *)regs_get_kernel_argument(regs, 0);
	const struct ib_send_wr *wr = (void *)regs_get_kernel_argument(regs, 1);

	/* Of a process's, what is done is a number of its own. */
	if (poster->uobject || poster->qp_type != IB_QPT_RC)
		return 0;
	if (atomic_read_acquire(&armed) && is_theirs(wr) && atomic_cmpxchg(&armed, 1, 0)) {
		xchg(&qp, poster);
		irq_work_queue(&caller);
	}
	return 0;
}

static struct kprobe probe = { .symbol_name = "rxe_post_send", .pre_handler = posts };

/* One writer at a time, as of any parameter. A probe keeps its CPU: after this nobody reads it. */
static int set_who(const char *value, const struct kernel_param *param)
{
	ssize_t len;

	atomic_set(&armed, 0);
	synchronize_rcu();
	len = strscpy(who, value, sizeof(who));
	strim(who); /* what echo puts behind it */
	atomic_set_release(&armed, 1);
	return len < 0 ? len : 0;
}

static const struct kernel_param_ops who_ops = { .set = set_who };
module_param_cb(who, &who_ops, NULL, 0200);

static int __init qperr_init(void)
{
	return register_kprobe(&probe);
}

static void __exit qperr_exit(void)
{
	unregister_kprobe(&probe);
	irq_work_sync(&caller);
	flush_work(&work);
}

module_init(qperr_init);
module_exit(qperr_exit);
MODULE_DESCRIPTION("tests: a queue pair of the kernel's errs");
MODULE_LICENSE("GPL");
