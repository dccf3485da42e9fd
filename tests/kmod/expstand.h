/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/expstand of expstand.c: dma-bufs of the GPU's memory, valid ones and faulty ones. */
#ifndef EXPSTAND_H
#define EXPSTAND_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The location of the memory. */
enum exp_layout {
	EXP_LINEAR,
	EXP_SCATTERED, /* chunks of 64 KiB in the order number ^ 5 */
	EXP_PIECES, /* the two pages of each pair exchanged */
	EXP_HOST, /* host memory, all of it */
	EXP_LAST_HOST, /* its last 64 KiB are host memory */
	EXP_LAST_NOWHERE, /* its last 64 KiB are in no BAR */
	EXP_LAST_BEYOND, /* its last 64 KiB are in the BAR, and not published */
	EXP_LAST_TWICE, /* its last 64 KiB are the first ones again */
	EXP_SHORT, /* the table lacks the last page */
	EXP_EMPTY, /* the table is empty */
};

/* The fault to inject. */
enum exp_trouble {
	EXP_NONE,
	EXP_NO_ATTACH,
	EXP_NO_PIN,
	EXP_NO_MAP,
	EXP_MOVES_IN_ATTACH, /* moves before the importer knows that it is attached */
	EXP_MOVES_IN_PIN, /* moves in pin, as memory that must be migrated first */
	EXP_LEAVES_IN_PIN, /* moves to host memory, as GPU drivers do for static importers */
	EXP_MOVES_IN_MAP,
	EXP_SOON, /* is being migrated: a fence for 300 ms */
	EXP_LATE, /* the same, longer than any importer should wait */
	EXP_READ_ONLY, /* the dma-buf is read-only */
	EXP_REVOKES, /* no fault: refuses static importers if it can tell */
	EXP_UNPINNED, /* no fault: those that can be told may map it without pinning it */
};

/**
 * struct exp_make - EXP_MAKE
 * @off: of the GPU's BAR
 * @len: bytes
 * @dynamic: supports pinning and may move
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
 * The argument is the dma-buf's fd. Moves the memory: importers are invalidated, then all bytes are
 * overwritten with 0xdd. -EBUSY if a static importer has pinned it.
 */
#define EXP_MOVE _IO('X', 1)

/**
 * struct exp_relocate - EXP_RELOCATE
 * @off: its new place in the GPU's BAR, which is no part of the old one
 * @fd: the dma-buf, which is EXP_LINEAR
 * @zero: must be 0
 */
struct exp_relocate {
	__u64 off;
	__s32 fd;
	__u32 zero;
};

/* As EXP_MOVE, with the bytes: then all of the old place is overwritten. */
#define EXP_RELOCATE _IO('X', 2)

#endif /* EXPSTAND_H */
