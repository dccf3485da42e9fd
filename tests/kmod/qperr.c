// SPDX-License-Identifier: GPL-2.0
/*
 * Moves a queue pair of the kernel to the state ERR, as a lost connection or a refused request
 * does. Without it soft-RoCE's retries of NVMe never end. The parameter who is the name of a
 * completion function (nvme_rdma_send_done). The next reliable connection that posts a work request
 * with that function is moved to ERR, once. errors counts them.
 *
 * No locks: the probe runs wherever a request is posted, in any context, like an NMI. The first
 * probe that matches clears armed, so it is the only one until another name is written.
 */
#include <linux/irq_work.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

static char who[KSYM_NAME_LEN]; /* read while armed, written while not armed */
static atomic_t armed;
static struct ib_qp *qp; /* to be moved to ERR; its owner keeps it while it waits for completions */
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
		/* The module's name follows it. */
		if (!strncmp(name, who, len) && (name[len] == ' ' || !name[len]))
			return true;
	}
	return false;
}

/* int post_send(struct ib_qp *, const struct ib_send_wr *, const struct ib_send_wr **) */
static int posts(struct kprobe *probe, struct pt_regs *regs)
{
	struct ib_qp *poster = (void *)regs_get_kernel_argument(regs, 0);
	const struct ib_send_wr *wr = (void *)regs_get_kernel_argument(regs, 1);

	/* Work requests of a process have a number instead of a completion function. */
	if (poster->uobject || poster->qp_type != IB_QPT_RC)
		return 0;
	if (atomic_read_acquire(&armed) && is_theirs(wr) && atomic_cmpxchg(&armed, 1, 0)) {
		xchg(&qp, poster);
		irq_work_queue(&caller);
	}
	return 0;
}

static char *post_send = "rxe_post_send"; /* of the device's driver */
module_param(post_send, charp, 0444);

static struct kprobe probe = { .pre_handler = posts };

/*
 * The core serializes writers of a parameter. Probes run with preemption disabled: after this no
 * probe reads it.
 */
static int set_who(const char *value, const struct kernel_param *param)
{
	ssize_t len;

	atomic_set(&armed, 0);
	synchronize_rcu();
	len = strscpy(who, value, sizeof(who));
	strim(who); /* the newline of echo */
	atomic_set_release(&armed, 1);
	return len < 0 ? len : 0;
}

static const struct kernel_param_ops who_ops = { .set = set_who };
module_param_cb(who, &who_ops, NULL, 0200);

static int __init qperr_init(void)
{
	probe.symbol_name = post_send;
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
MODULE_DESCRIPTION("Moves a queue pair of the kernel to the state ERR");
MODULE_LICENSE("GPL");
