/* SPDX-License-Identifier: GPL-2.0 */
/*
 * File operations of an open file.
 */
#ifndef PEERDMA_IOCTL_H
#define PEERDMA_IOCTL_H

#include <linux/fs.h>

extern const struct file_operations peerdma_fops;

#endif /* PEERDMA_IOCTL_H */
