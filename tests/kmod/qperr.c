// SPDX-License-Identifier: GPL-2.0
/*
 * A queue pair of the kernel's errs, as one does that has lost its way or whose peer has refused
 * what it asked for: soft-RoCE's retries of NVMe never end. The parameter who names the function
 * that is told when a piece of work is done (nvme_rdma_send_done). The next reliable connection
 * that is given such a piece is put into the state ERR, once; errors counts them.
 */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

static DEFINE_SPINLOCK(lock);
static char who[KSYM_NAME_LEN]; /* empty: nobody; protected by lock */
/* To be put into ERR; its owner keeps it while it waits for answers. Protected by lock. */
static struct ib_qp *qp;
static unsigned int errors;
module_param(errors, uint, 0444);

static void err(struct work_struct *work)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_qp *chosen;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	chosen = qp;
	qp = NULL;
	spin_unlock_irqrestore(&lock, flags);
	if (chosen && !ib_modify_qp(chosen, &attr, IB_QP_STATE))
		errors++;
}

static DECLARE_WORK(work, err);

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
	unsigned long flags;

	/* Of a process's, what is done is a number of its own. */
	if (poster->uobject || poster->qp_type != IB_QPT_RC)
		return 0;
	spin_lock_irqsave(&lock, flags);
	if (is_theirs(wr)) {
		who[0] = '\0';
		qp = poster;
		schedule_work(&work);
	}
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static struct kprobe probe = { .symbol_name = "rxe_post_send", .pre_handler = posts };

static int set_who(const char *value, const struct kernel_param *param)
{
	unsigned long flags;
	ssize_t len;

	spin_lock_irqsave(&lock, flags);
	len = strscpy(who, value, sizeof(who));
	strim(who); /* what echo puts behind it */
	spin_unlock_irqrestore(&lock, flags);
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
	flush_work(&work);
}

module_init(qperr_init);
module_exit(qperr_exit);
MODULE_DESCRIPTION("tests: a queue pair of the kernel's errs");
MODULE_LICENSE("GPL");
