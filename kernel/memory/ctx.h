/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An open file of /dev/peerdma or of a provider's node.
 */
#ifndef PEERDMA_CTX_H
#define PEERDMA_CTX_H

#include "base/ids.h"
#include "base/opener.h"

struct file;
struct inode;
struct peerdma_provider;
struct peerdma_command_cache;

/**
 * struct peerdma_ctx - one open file of /dev/peerdma, or of a provider's node
 * @only: the provider of the opened node, referenced; NULL: every provider
 * @buffers: struct peerdma_buffer; protected by its own lock
 * @files: struct peerdma_file; protected by its own lock
 * @inode: of this open file alone, for its mapping: proxy.c
 * @file: the open file, which owns this struct
 * @opener: its entry in the list of open files, with its counters
 * @command_cache: of io/command.h
 */
struct peerdma_ctx {
	struct peerdma_provider *only; /* immutable */
	struct peerdma_ids buffers;
	struct peerdma_ids files;
	struct inode *inode; /* immutable */
	struct file *file; /* immutable */
	struct peerdma_opener opener;
	struct peerdma_command_cache __percpu *command_cache;
};

#endif /* PEERDMA_CTX_H */
