/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between peerdma.ko and a module that knows a network filesystem: peerdma_nfs.ko. The
 * core loads and works without it.
 */
#ifndef PEERDMA_SHARE_H
#define PEERDMA_SHARE_H

#include <linux/fs.h>
#include <linux/types.h>

#define PEERDMA_SHARE_ADDRESS 64 /* "traddr=", an IPv6 address and its interface */

struct peerdma_stack;

/**
 * struct peerdma_share_ops - operations of a module that knows NFS
 * @probe: how would bytes of this file go now? Writes the server's address into @address, of
 *	PEERDMA_SHARE_ADDRESS bytes, as peerdma_fabric_lookup() takes it; returns enum
 *	peerdma_reason. Does not wait for the network
 */
struct peerdma_share_ops {
	u32 (*probe)(struct inode *inode, char *address);
};

int peerdma_share_register(const struct peerdma_share_ops *ops);
void peerdma_share_unregister(void);

u32 peerdma_share_probe(struct inode *inode, char *address);
struct peerdma_stack *peerdma_share_walk(struct inode *inode);

#endif /* PEERDMA_SHARE_H */
