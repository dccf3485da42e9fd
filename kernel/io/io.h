/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads and writes.
 */
#ifndef PEERDMA_IO_H
#define PEERDMA_IO_H

#include <linux/fs.h>
#include <linux/sched/signal.h>

#include "memory/ctx.h"
#include "routing/file.h"

struct file;
struct peerdma_buffer;
struct peerdma_io;
struct peerdma_provider;
struct peerdma_route;
struct task_struct;

/* A request of a task that is being killed or has exited is not continued. */
static inline bool peerdma_io_task_is_dying(struct task_struct *task)
{
	return fatal_signal_pending(task) || READ_ONCE(task->flags) & PF_EXITING;
}

/* A writer to a frozen filesystem sleeps until it is thawed. */
static inline bool peerdma_io_is_frozen(struct file *file)
{
	if (!file_start_write_trylock(file))
		return true;
	file_end_write(file);
	return false;
}

struct file *peerdma_io_file(struct peerdma_ctx *ctx, struct peerdma_io *req,
			     struct peerdma_file **pfile);
void peerdma_io_file_put(struct file *file, struct peerdma_file *pfile);
int peerdma_io_check(struct file *file, struct peerdma_file *pfile, struct peerdma_buffer *buffer,
		     struct peerdma_io *req, bool write, bool nowait, struct peerdma_target *target,
		     struct peerdma_route **route);
struct peerdma_buffer *peerdma_io_enter(struct peerdma_ctx *ctx, struct file *file,
					struct peerdma_io *req, bool write);
int peerdma_io_run(struct peerdma_ctx *ctx, struct file *file, struct peerdma_file *pfile,
		   struct peerdma_io *req, bool write, struct task_struct *submitter);
int peerdma_io_execute(struct peerdma_ctx *ctx, struct peerdma_io *req, bool write);

#endif /* PEERDMA_IO_H */
