/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An io_uring command while it is carried out: its memory, its result and its end.
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
 * struct peerdma_command - a command that is being carried out
 * @cmd: what io_uring knows it by
 * @file: referenced, by way of @pfile or itself
 * @pfile: the registered file, or NULL
 * @buffer: a usage reference is held until the last piece that was sent is done; not to be used
 *	after that
 * @route: held as long; NULL: there is none yet
 * @bdev: where the file's bytes are
 * @pid: the process that asked
 * @user: of a command of many pieces, where they came from and where their results go; else NULL
 * @left: pieces that are under way, and one of who sends them
 * @again: runs the pieces that were put off where they may wait
 * @nr: number of @pieces
 * @buf_id: of @buffer
 * @flags: PEERDMA_IO_*
 * @write: direction
 * @cut: some segments are more than one piece
 * @put_off: some pieces were put off; written before @left is decremented
 * @next: in a cache
 * @pieces: segments as they were read, once, from the process; if one is more than the drive takes
 *	at once, cut
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
 * @nr: how many
 *
 * An open file has one for each CPU, used by tasks that are on it, with preemption off.
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

/* A piece as the command that it would be by itself. */
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

/* What the command results in, when all its pieces are done. */
static inline int peerdma_command_result(const struct peerdma_command *command)
{
	if (likely(command->nr == 1 && !command->user))
		return command->pieces[0].res;
	return peerdma_command_sum(command);
}

/* All pieces are done: the rest is for the submitter's task. */
static inline void peerdma_command_end(struct peerdma_command *command)
{
	io_uring_cmd_do_in_task_lazy(command->cmd, peerdma_command_task);
}

#endif /* PEERDMA_COMMAND_H */
