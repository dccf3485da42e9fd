/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters in fdinfo and debugfs.
 */
#ifndef PEERDMA_DEBUGFS_H
#define PEERDMA_DEBUGFS_H

struct file;
struct seq_file;

void peerdma_fdinfo_show(struct seq_file *seq, struct file *file);
void peerdma_debugfs_register(void);
void peerdma_debugfs_unregister(void);

#endif /* PEERDMA_DEBUGFS_H */
