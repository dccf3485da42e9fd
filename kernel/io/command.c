// SPDX-License-Identifier: GPL-2.0
/*
 * Commands: cutting them into pieces, summing up their results, ending them in the ring's task.
 */
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "compat/uring.h"
#include "memory/ctx.h"
#include "io/command.h"
#include "io/io.h"

#define COMMAND_CACHE_MAX 64 /* free commands that a CPU keeps per open file */
#define COMMAND_PIECES_MAX 256 /* per command; a longer one goes to io_uring's worker */

struct kmem_cache *peerdma_command_slab;

/* False if the cache is full. */
static bool command_keep(struct peerdma_ctx *ctx, struct peerdma_command *command)
{
	struct peerdma_command_cache *cache = get_cpu_ptr(ctx->command_cache);
	const bool room = cache->nr < COMMAND_CACHE_MAX;

	if (room) {
		command->next = cache->first;
		cache->first = command;
		cache->nr++;
	}
	put_cpu_ptr(ctx->command_cache);
	return room;
}

/* Task context only: the cache of a CPU is not safe against interrupts. */
void peerdma_command_free(struct peerdma_ctx *ctx, struct peerdma_command *command)
{
	if (command->user || command->nr > 1)
		kvfree(command);
	else if (!command_keep(ctx, command))
		kmem_cache_free(peerdma_command_slab, command);
}

/**
 * struct command_segment - result of a segment, as its pieces are added up in order
 * @len: bytes that were asked for
 * @res: bytes moved from its beginning on, or -errno of the first piece that failed. Short without
 *	an error: the file ends there
 * @cut: an earlier piece was short
 */
struct command_segment {
	u64 len;
	int res;
	bool cut;
};

/* Sums up the segment that begins at pieces[*i]. Advances *i to the next segment. */
static struct command_segment command_sum_segment(const struct peerdma_command *command,
						  unsigned int *i)
{
	const u32 segment = command->pieces[*i].segment;
	struct command_segment result = {};
	const struct peerdma_piece *piece;

	for (; *i < command->nr && command->pieces[*i].segment == segment; (*i)++) {
		piece = &command->pieces[*i];
		result.len += piece->len;
		if (piece->res < 0 && result.res >= 0)
			result.res = piece->res;
		else if (!result.cut && result.res >= 0)
			result.res += piece->res;
		result.cut = result.cut || piece->res != piece->len;
	}
	return result;
}

/*
 * Writes the results of all segments to the process. A ring that is torn down ends its commands in
 * a kernel thread, which has no mm of the process.
 */
static int command_report(const struct peerdma_command *command)
{
	struct peerdma_uring_seg __user *user = command->user;
	unsigned int i = 0;

	if (!current->mm || current->flags & PF_KTHREAD)
		return -EFAULT;
	while (i < command->nr) {
		if (put_user(command_sum_segment(command, &i).res, &user->out_res))
			return -EFAULT;
		user++;
	}
	return 0;
}

/* The result of a command of more than one piece, or of segments. */
int peerdma_command_sum(const struct peerdma_command *command)
{
	int segments, whole = 0;
	struct command_segment result;
	unsigned int i = 0;

	if (!command->user)
		return command_sum_segment(command, &i).res;
	if (likely(!command->cut)) {
		for (segments = 0; segments < command->nr; segments++)
			whole += command->pieces[segments].res == command->pieces[segments].len;
	} else {
		for (segments = 0; i < command->nr; segments++) {
			result = command_sum_segment(command, &i);
			whole += result.res == result.len;
		}
	}
	if (likely(whole == segments))
		return whole;
	return command_report(command) ?: whole;
}

/* The VFS leaves the notification of a queued kiocb to its submitter. */
void peerdma_command_notify(const struct peerdma_command *command)
{
	const struct peerdma_piece *piece = command->pieces;

	while (piece < command->pieces + command->nr && piece->res <= 0)
		piece++;
	if (unlikely(piece == command->pieces + command->nr))
		return;
	if (command->write)
		fsnotify_modify(command->file);
	else
		fsnotify_access(command->file);
}

static void command_done(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct peerdma_command *command = *peerdma_command_at(cmd);
	int res = peerdma_command_result(command);

	peerdma_command_notify(command);
	peerdma_io_file_put(command->file, command->pfile);
	peerdma_command_free(cmd->file->private_data, command);
	peerdma_uring_done(cmd, res, issue_flags);
}

PEERDMA_URING_TASK_CB(peerdma_command_task, command_done)

static u64 command_count_pieces(const struct peerdma_command *command, u32 most)
{
	const struct peerdma_piece *piece;
	u64 nr = 0;

	for (piece = command->pieces; piece < command->pieces + command->nr; piece++)
		nr += DIV_ROUND_UP(piece->len, most);
	return nr;
}

/* Fills the piece that begins @skip bytes into @whole. */
static void command_cut_piece(struct peerdma_piece *piece, struct peerdma_command *command,
			      const struct peerdma_piece *whole, u32 skip, u32 most)
{
	piece->command = command;
	piece->segment = whole->segment;
	piece->file_off = whole->file_off + skip;
	piece->buf_off = whole->buf_off + skip;
	piece->len = min(whole->len - skip, most);
}

/* A copy of the command in which no piece is longer than @most, or ERR_PTR(-EAGAIN). */
struct peerdma_command *peerdma_command_cut(struct peerdma_command *command, u32 most)
{
	const u64 nr = command_count_pieces(command, most);
	const struct peerdma_piece *whole;
	struct peerdma_piece *piece;
	struct peerdma_command *cut;
	u32 skip;

	if (nr > COMMAND_PIECES_MAX)
		return ERR_PTR(-EAGAIN);
	cut = kmalloc(struct_size(cut, pieces, nr), PEERDMA_COMMAND_NOWAIT);
	if (!cut)
		return ERR_PTR(-EAGAIN);
	*cut = *command;
	cut->nr = nr;
	cut->cut = true;
	piece = cut->pieces;
	for (whole = command->pieces; whole < command->pieces + command->nr; whole++) {
		for (skip = 0; skip < whole->len; skip += piece++->len)
			command_cut_piece(piece, cut, whole, skip, most);
	}
	return cut;
}

/* No command is under way: each holds the open file. */
void peerdma_command_cache_free(struct peerdma_ctx *ctx)
{
	struct peerdma_command *command, *next;
	int cpu;

	for_each_possible_cpu(cpu) {
		for (command = per_cpu_ptr(ctx->command_cache, cpu)->first; command;
		     command = next) {
			next = command->next;
			kmem_cache_free(peerdma_command_slab, command);
		}
	}
	free_percpu(ctx->command_cache);
}

int peerdma_commands_init(void)
{
	peerdma_command_slab = kmem_cache_create("peerdma_uring_request",
						 struct_size_t(struct peerdma_command, pieces, 1),
						 0, SLAB_HWCACHE_ALIGN, NULL);
	return peerdma_command_slab ? 0 : -ENOMEM;
}

void peerdma_commands_exit(void)
{
	kmem_cache_destroy(peerdma_command_slab);
}
