// SPDX-License-Identifier: GPL-2.0
/*
 * Files of NFS. There is no disk: the superblock takes its place, as the only leaf, and the device
 * that leads to the server moves the bytes. How they would go is asked before each request, of a
 * module that knows NFS: nfs.c. Only the device is remembered, as for any leaf that is reached by
 * RDMA: fabric.c.
 */
#include <linux/export.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/srcu.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "routing/fabric.h"
#include "routing/share.h"
#include "routing/stack.h"

DEFINE_STATIC_SRCU(inside);
static const struct peerdma_share_ops __rcu *answers;
static DEFINE_MUTEX(share_mutex); /* serializes register and unregister */

/**
 * peerdma_share_register - register the module that knows NFS
 * @ops: must stay until peerdma_share_unregister()
 * Return: 0 or -EBUSY.
 */
int peerdma_share_register(const struct peerdma_share_ops *ops)
{
	int err = -EBUSY;

	mutex_lock(&share_mutex);
	if (!rcu_access_pointer(answers)) {
		rcu_assign_pointer(answers, ops);
		err = 0;
	}
	mutex_unlock(&share_mutex);
	return err;
}
EXPORT_SYMBOL_GPL(peerdma_share_register);

/* Returns when no call of the ops is running. */
void peerdma_share_unregister(void)
{
	mutex_lock(&share_mutex);
	RCU_INIT_POINTER(answers, NULL);
	mutex_unlock(&share_mutex);
	synchronize_srcu(&inside);
}
EXPORT_SYMBOL_GPL(peerdma_share_unregister);

/* @text: of PEERDMA_SHARE_ADDRESS bytes, for the address of @server; NULL: not asked for */
static u32 share_ask(struct inode *inode, struct peerdma_share_server *server, char *text)
{
	const struct peerdma_share_ops *ops;
	u32 reason = PEERDMA_REASON_RDMA_MODULE;
	int idx = srcu_read_lock(&inside);

	ops = srcu_dereference(answers, &inside);
	if (ops)
		reason = ops->probe(inode, server);
	if (!reason && text)
		ops->print(server, text);
	srcu_read_unlock(&inside, idx);
	return reason;
}

/**
 * peerdma_share_probe - how would bytes of this file go now?
 * @inode: of NFS
 * @server: zeroed; filled if the result is 0
 * Return: enum peerdma_reason.
 */
u32 peerdma_share_probe(struct inode *inode, struct peerdma_share_server *server)
{
	return share_ask(inode, server, NULL);
}

/**
 * peerdma_share_walk - the stack of a file of a share, which is one leaf
 * @inode: of NFS, and open
 * Return: the stack, to be checked; ERR_PTR of -ENOMEM.
 */
struct peerdma_stack *peerdma_share_walk(struct inode *inode)
{
	struct peerdma_stack *stack = kzalloc(struct_size(stack, disks, 1), GFP_KERNEL);
	struct peerdma_share_server server = {};
	char text[PEERDMA_SHARE_ADDRESS];
	struct peerdma_disk *disk;

	if (!stack)
		return ERR_PTR(-ENOMEM);
	stack->nr = 1;
	disk = stack->disks;
	disk->kind = PEERDMA_DISK_SHARE;
	disk->devt = inode->i_sb->s_dev;
	disk->result.distance = -1;
	disk->rev = peerdma_fabric_changes();
	strscpy(disk->name, inode->i_sb->s_type->name, sizeof(disk->name));
	disk->result.reason = share_ask(inode, &server, text);
	disk->server = kmemdup(&server, sizeof(server), GFP_KERNEL);
	if (!disk->server)
		goto err;
	if (disk->result.reason)
		return stack;
	disk->lookup = peerdma_fabric_lookup(text);
	if (disk->lookup)
		return stack;
err:
	peerdma_stack_free(stack);
	return ERR_PTR(-ENOMEM);
}
