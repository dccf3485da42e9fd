/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An io_uring command while it runs: its memory, its result and its end.
 */
#ifndef PEERDMA_COMMAND_H
#define PEERDMA_COMMAND_H

#include <linux/gfp.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "compat/uring.h"
#include "memory/ctx.h"
#include "io/piece.h"

struct block_device;
struct file;
struct peerdma_buffer;
struct peerdma_file;
struct peerdma_route;

#define PEERDMA_COMMAND_NOWAIT (GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT)

extern struct kmem_cache *peerdma_command_slab; /* of commands of one piece */

/**
 * struct peerdma_command - an io_uring command while it runs
 * @cmd: io_uring's own struct
 * @file: referenced, through @pfile if there is one
 * @pfile: the registered file
 * @buffer: with a usage reference until the last submitted piece is done. Not to be used after that
 * @route: referenced as long as @buffer; NULL: not looked up yet
 * @bdev: of @file
 * @pid: the submitting process
 * @user: segments of the process, which get the results; NULL: a command without segments
 * @left: pieces under way, plus one while they are being submitted
 * @again: runs the deferred pieces in a worker
 * @nr: number of @pieces
 * @buf_id: of @buffer
 * @flags: PEERDMA_IO_*
 * @write: direction
 * @cut: a segment has several pieces
 * @put_off: a piece was deferred; written before @left is decremented
 * @next: in a cache
 * @pieces: the segments, read once from the process, cut to the length that the drive takes at once
 */
struct peerdma_command {
	struct io_uring_cmd *cmd;
	struct file *file;
	struct peerdma_file *pfile;
	struct peerdma_buffer *buffer;
	struct peerdma_route *route;
	struct block_device *bdev;
	pid_t pid;
	struct peerdma_uring_seg __user *user;
	atomic_t left;
	unsigned int nr;
	u32 buf_id;
	u32 flags;
	bool write;
	bool cut;
	bool put_off;
	struct work_struct again;
	struct peerdma_command *next;
	struct peerdma_piece pieces[] __counted_by(nr);
};

/**
 * struct peerdma_command_cache - one CPU's free commands of one piece
 * @first: linked by @next
 * @nr: number of them
 *
 * An open file has one per CPU. Only tasks on that CPU use it, with preemption off.
 */
struct peerdma_command_cache {
	struct peerdma_command *first;
	unsigned int nr;
};

void peerdma_command_free(struct peerdma_ctx *ctx, struct peerdma_command *command);
int peerdma_command_sum(const struct peerdma_command *command);
void peerdma_command_notify(const struct peerdma_command *command);
PEERDMA_URING_TASK_DECLARE(peerdma_command_task);
struct peerdma_command *peerdma_command_cut(struct peerdma_command *command, u32 most);
void peerdma_command_cache_free(struct peerdma_ctx *ctx);
int peerdma_commands_init(void);
void peerdma_commands_exit(void);

static inline struct peerdma_command **peerdma_command_at(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct peerdma_command *);
}

static inline struct peerdma_command *peerdma_command_take(struct peerdma_ctx *ctx)
{
	struct peerdma_command_cache *cache = get_cpu_ptr(ctx->command_cache);
	struct peerdma_command *command = cache->first;

	if (command) {
		cache->first = command->next;
		cache->nr--;
	}
	put_cpu_ptr(ctx->command_cache);
	return command;
}

/* The request that a piece would be by itself. */
static inline struct peerdma_io peerdma_piece_io(const struct peerdma_piece *piece)
{
	return (struct peerdma_io){
		.flags = piece->command->flags,
		.buf_id = piece->command->buf_id,
		.file_off = piece->file_off,
		.buf_off = piece->buf_off,
		.len = piece->len,
	};
}

/* The result of a command whose pieces are all done. */
static inline int peerdma_command_result(const struct peerdma_command *command)
{
	if (likely(command->nr == 1 && !command->user))
		return command->pieces[0].res;
	return peerdma_command_sum(command);
}

/* Ends a command whose pieces are all done, in the submitter's task. */
static inline void peerdma_command_end(struct peerdma_command *command)
{
	io_uring_cmd_do_in_task_lazy(command->cmd, peerdma_command_task);
}

#endif /* PEERDMA_COMMAND_H */
