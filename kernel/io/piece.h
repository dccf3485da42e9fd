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
 * struct peerdma_piece - a part of a command that is one kiocb
 * @kiocb: what the file's methods know it by
 * @segment: of the command, which one it is a part of; 0: the only one
 * @bvec: the part of the buffer
 * @command: what it belongs to
 * @file_off: bytes
 * @buf_off: bytes
 * @len: bytes
 * @res: bytes or -errno, once it is done; -EAGAIN: it was put off
 * @number: for who listens, else 0
 * @done: no longer to be polled: the kiocb may name a bio that is gone; looked at under RCU, which
 *	keeps the bio
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

void peerdma_piece_refuse(struct peerdma_command *command, struct peerdma_piece *piece,
			  struct peerdma_io *io, int err);
int peerdma_piece_send_all(struct peerdma_command *command, bool polled);

#endif /* PEERDMA_PIECE_H */
