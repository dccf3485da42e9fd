/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A device node for each provider.
 */
#ifndef PEERDMA_NODE_H
#define PEERDMA_NODE_H

#include <linux/fs.h>

struct peerdma_provider;

int peerdma_nodes_init(const struct file_operations *fops);
void peerdma_nodes_exit(void);
void peerdma_node_add(struct peerdma_provider *provider);
void peerdma_node_remove(struct peerdma_provider *provider);
struct peerdma_provider *peerdma_node_provider(const struct inode *inode);

#endif /* PEERDMA_NODE_H */
