/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/expstand of expstand.c: dma-bufs of the GPU's memory, as they are made, or should not be. */
#ifndef EXPSTAND_H
#define EXPSTAND_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Where the memory is. */
enum exp_layout {
	EXP_LINEAR,
	EXP_SCATTERED, /* in frames of 64 KiB: each one's number ^ 5 */
	EXP_PIECES, /* each two pages exchanged */
	EXP_HOST, /* host memory, all of it */
	EXP_LAST_HOST, /* its last 64 KiB are host memory */
	EXP_LAST_NOWHERE, /* its last 64 KiB are in no BAR */
	EXP_LAST_BEYOND, /* its last 64 KiB are in the BAR, and not published */
	EXP_LAST_TWICE, /* its last 64 KiB are its first */
	EXP_SHORT, /* of its last page nothing is said */
	EXP_EMPTY, /* nothing is said at all */
};

/* What does not go as it should. */
enum exp_trouble {
	EXP_NONE,
	EXP_NO_ATTACH,
	EXP_NO_PIN,
	EXP_NO_MAP,
	EXP_MOVES_IN_ATTACH, /* before the importer knows that it is attached */
	EXP_MOVES_IN_PIN, /* as those do whose memory has to come from elsewhere */
	EXP_LEAVES_IN_PIN, /* to host memory, as drivers of GPUs do for who cannot be told */
	EXP_MOVES_IN_MAP,
	EXP_SOON, /* it is on its way: a fence, for 300 ms */
	EXP_LATE, /* and for longer than anybody should wait */
	EXP_READ_ONLY, /* who has it may only read */
	EXP_REVOKES, /* no trouble: lets in only who can be told, where the kernel knows who can */
};

/**
 * struct exp_make - EXP_MAKE
 * @off: of the GPU's BAR
 * @len: bytes
 * @dynamic: it can pin, and may be told to move
 * @layout: enum exp_layout
 * @trouble: enum exp_trouble
 * @out_fd: the dma-buf
 */
struct exp_make {
	__u64 off;
	__u64 len;
	__u32 dynamic;
	__u32 layout;
	__u32 trouble;
	__s32 out_fd;
};

#define EXP_MAKE _IO('X', 0)
/*
 * The argument: its fd. Who imports it is told; then all of it is another's: bytes 0xdd. -EBUSY: it
 * is pinned by who cannot be told.
 */
#define EXP_MOVE _IO('X', 1)

#endif /* EXPSTAND_H */
