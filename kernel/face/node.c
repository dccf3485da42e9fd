// SPDX-License-Identifier: GPL-2.0
/*
 * A device node for each provider: /dev/peerdma3 is that of provider 3. An open file of it can
 * reach that provider only, so ownership, modes, containers and the device cgroup decide which
 * users may use a GPU. /dev/peerdma reaches all providers.
 *
 * The minor number is the provider's id, and open() looks it up, so a copy of a removed provider's
 * node opens nothing. Ids are given in turn: one is reused after 2^20 others.
 *
 * All minors share one character device, which exists as long as the module. An open file holds the
 * module and the provider's struct, and needs nothing of the node.
 */
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/pci.h>

#include "compat/compat.h"
#include "memory/provider.h"
#include "face/node.h"

#define NODE_NAME "peerdma"

static int node_major;

static char *node_devnode(devnode_const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0660;
	return NULL;
}

static struct class node_class = {
	.name = NODE_NAME,
	.devnode = node_devnode,
};

/* @fops: of an open file of a node. Returns 0 or -errno. */
int peerdma_nodes_init(const struct file_operations *fops)
{
	int err = class_register(&node_class);

	if (err)
		return err;
	node_major = __register_chrdev(0, 0, MINORMASK + 1, NODE_NAME, fops);
	if (node_major >= 0)
		return 0;
	class_unregister(&node_class);
	return node_major;
}

/* No provider, and so no node, is left. */
void peerdma_nodes_exit(void)
{
	__unregister_chrdev(node_major, 0, MINORMASK + 1, NODE_NAME);
	class_unregister(&node_class);
}

/*
 * The provider is announced, so its node can be opened at once. Without a node it is still usable.
 */
void peerdma_node_add(struct peerdma_provider *provider)
{
	struct device *node = device_create(&node_class, &provider->pdev->dev,
					    MKDEV(node_major, provider->id), NULL, NODE_NAME "%u",
					    provider->id);

	if (!IS_ERR(node))
		provider->node = node;
	else
		pci_warn(provider->pdev,
			 "cannot create the device node %s%u: %pe; provider is in /dev/%s only\n",
			 NODE_NAME, provider->id, node, NODE_NAME);
}

void peerdma_node_remove(struct peerdma_provider *provider)
{
	if (provider->node)
		device_unregister(provider->node);
}

/**
 * peerdma_node_provider - the provider of a device node
 * @inode: of a device node
 * Return: the provider with a reference; NULL: /dev/peerdma, which reaches all of them;
 * ERR_PTR(-ENXIO): the node of a removed provider.
 */
struct peerdma_provider *peerdma_node_provider(const struct inode *inode)
{
	if (imajor(inode) != node_major)
		return NULL;
	return peerdma_provider_get(NULL, iminor(inode)) ?: ERR_PTR(-ENXIO);
}
