/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A piece of a command: one kiocb.
 */
#ifndef PEERDMA_PIECE_H
#define PEERDMA_PIECE_H

#include <linux/bvec.h>
#include <linux/fs.h>
#include <uapi/peerdma.h>

struct peerdma_command;

/**
 * struct peerdma_piece - the part of a command that is one kiocb
 * @kiocb: given to the file's methods
 * @bvec: the part of the buffer
 * @command: owner
 * @file_off: bytes
 * @buf_off: bytes
 * @len: bytes
 * @segment: index of the command's segment; 0 without segments
 * @res: bytes or -errno once it is done; -EAGAIN: deferred
 * @number: for trace events, else 0
 * @done: not to be polled any more, as the kiocb may name a freed bio. Read under RCU, which keeps
 *	the bio
 */
struct peerdma_piece {
	struct kiocb kiocb;
	struct bio_vec bvec;
	struct peerdma_command *command;
	u64 file_off;
	u64 buf_off;
	u32 len;
	u32 segment;
	int res;
	u32 number;
	bool done;
};

void peerdma_command_account_refused(struct peerdma_command *command, struct peerdma_piece *piece,
				     struct peerdma_io *io, int err);
int peerdma_piece_send_all(struct peerdma_command *command, bool polled);

#endif /* PEERDMA_PIECE_H */
