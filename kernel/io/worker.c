// SPDX-License-Identifier: GPL-2.0
/*
 * Runs pieces of commands where they may sleep, as the ioctl would run them: in io_uring's own
 * worker, or, for deferred pieces, in a work item of this module.
 */
#include <linux/cred.h>
#include <linux/ioprio.h>
#include <linux/sched.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/uring.h"
#include "memory/charge.h"
#include "memory/ctx.h"
#include "io/command.h"
#include "io/io.h"
#include "io/piece.h"
#include "io/worker.h"

#define WORKER_MAX 256 /* deferred commands at a time: each takes a kernel thread */

static struct workqueue_struct *worker_wq;

/* Runs a piece as the ioctl would; may sleep. @submitter: NULL: the current task. */
int peerdma_worker_run(struct peerdma_command *command, struct peerdma_piece *piece,
		       struct task_struct *submitter)
{
	struct peerdma_io io = peerdma_piece_io(piece);
	int err = peerdma_io_run(command->cmd->file->private_data, command->file, command->pfile,
				 &io, command->write, submitter);

	return err ?: (int)io.out_done;
}

/* The credentials of a command: of its personality, its polling thread or its task. */
static const struct cred *worker_creds(struct io_uring_cmd *cmd)
{
	const struct io_kiocb *req = cmd_to_io_kiocb(cmd);

	if (req->flags & REQ_F_CREDS)
		return get_cred(req->creds);
	if (req->ctx->sq_creds)
		return get_cred(req->ctx->sq_creds);
	return get_task_cred(io_uring_cmd_get_task(cmd));
}

/*
 * Gives the worker the priority of the command's first kiocb. Called before the worker takes the
 * submitter's credentials, which may not allow that. Without memory the worker keeps its own
 * priority.
 */
static void worker_priority_enter(const struct peerdma_command *command)
{
	const u16 ioprio = command->pieces[0].kiocb.ki_ioprio;

	set_task_ioprio(current,
			IOPRIO_PRIO_VALUE(IOPRIO_PRIO_CLASS(ioprio), IOPRIO_PRIO_LEVEL(ioprio)));
}

static void worker_priority_exit(void)
{
	set_task_ioprio(current, IOPRIO_DEFAULT);
}

/* No usage reference is held here: each piece gets its own, by the buffer's id. */
static void worker_run_put_off(struct peerdma_command *command, struct task_struct *submitter)
{
	struct peerdma_piece *piece;

	for (piece = command->pieces; piece < command->pieces + command->nr; piece++) {
		if (piece->res != -EAGAIN)
			continue;
		piece->res = -EINTR;
		if (!peerdma_io_task_is_dying(submitter))
			piece->res = peerdma_worker_run(command, piece, submitter);
	}
}

/*
 * A worker acts for the submitter: with its credentials, its cgroups and its priority. io_uring
 * keeps the task.
 */
static void worker_work(struct work_struct *work)
{
	struct peerdma_command *command = container_of(work, struct peerdma_command, again);
	struct task_struct *submitter = io_uring_cmd_get_task(command->cmd);
	const struct cred *creds = worker_creds(command->cmd);
	struct peerdma_payers payers;
	const struct cred *own;

	worker_priority_enter(command);
	own = override_creds(creds);
	peerdma_payers_enter(&payers, submitter);
	worker_run_put_off(command, submitter);
	peerdma_payers_exit(&payers);
	revert_creds(own);
	worker_priority_exit();
	put_cred(creds);
	peerdma_command_end(command);
}

void peerdma_worker_queue(struct peerdma_command *command)
{
	INIT_WORK(&command->again, worker_work);
	queue_work(worker_wq, &command->again);
}

int peerdma_worker_init(void)
{
	worker_wq = alloc_workqueue("peerdma_again", WQ_UNBOUND, WORKER_MAX);
	return worker_wq ? 0 : -ENOMEM;
}

/* All pieces are done, but the last work item may not have returned. */
void peerdma_worker_exit(void)
{
	destroy_workqueue(worker_wq);
}
