/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Interface between peerdma.ko and a module that knows a network filesystem: peerdma_nfs.ko. The
 * core loads and works without it.
 */
#ifndef PEERDMA_SHARE_H
#define PEERDMA_SHARE_H

#include <linux/fs.h>
#include <linux/in6.h>
#include <linux/types.h>

#define PEERDMA_SHARE_ADDRESS 64 /* "traddr=", an IPv6 address and its interface */

struct peerdma_stack;

/**
 * struct peerdma_share_server - the address of a server, without its port
 * @address: or a struct sockaddr_in, which is shorter. All other bytes are 0, so memcmp() compares
 *	two servers: family, address and scope
 */
struct peerdma_share_server {
	struct sockaddr_in6 address;
};

/**
 * struct peerdma_share_ops - operations of a module that knows NFS
 * @probe: how would bytes of this file go now? Fills @server, which is zeroed, if the result is 0;
 *	returns enum peerdma_reason. Hot path. Does not wait for the network
 * @print: writes the address of @server into @text, of PEERDMA_SHARE_ADDRESS bytes, as
 *	peerdma_fabric_lookup() takes it
 */
struct peerdma_share_ops {
	u32 (*probe)(struct inode *inode, struct peerdma_share_server *server);
	void (*print)(const struct peerdma_share_server *server, char *text);
};

int peerdma_share_register(const struct peerdma_share_ops *ops);
void peerdma_share_unregister(void);

u32 peerdma_share_probe(struct inode *inode, struct peerdma_share_server *server);
struct peerdma_stack *peerdma_share_walk(struct inode *inode);

#endif /* PEERDMA_SHARE_H */
