/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Properties of a file for direct I/O.
 */
#ifndef PEERDMA_TARGET_H
#define PEERDMA_TARGET_H

#include <linux/types.h>

struct address_space_operations;
struct block_device;
struct file;

/**
 * struct peerdma_target - properties of a file for direct I/O
 * @bdev: that has its bytes; NULL: a share, on another machine
 * @fs_name: name of the filesystem, "block" for a block device
 * @mem_align: bytes, of the buffer's offset
 * @offset_align: bytes, of the file's offset and the length
 */
struct peerdma_target {
	struct block_device *bdev;
	const char *fs_name;
	u32 mem_align;
	u32 offset_align;
};

/**
 * struct peerdma_file_attrs - cached properties of a file that is kept open
 * @target: properties for direct I/O
 * @a_ops: of its mapping when they were cached; NULL: nothing is cached
 * @extents_at: of a file of ext4, the inode's version at which it had extents; written by any
 *	request after the version has changed
 */
struct peerdma_file_attrs {
	struct peerdma_target target;
	const struct address_space_operations *a_ops;
	u64 extents_at;
};

/*
 * True for whole blocks of the file at a place that the device can address. Alignments are powers
 * of two.
 */
static __always_inline bool peerdma_target_is_aligned(const struct peerdma_target *target,
						      u64 file_off, u64 buf_off, u64 len)
{
	return !((file_off | len) & (target->offset_align - 1)) &&
	       !(buf_off & (target->mem_align - 1));
}

int peerdma_target_type(struct file *file, u32 *reason);
int peerdma_target_resolve(struct file *file, struct peerdma_target *target, u32 *reason);
void peerdma_target_cache(struct file *file, struct peerdma_file_attrs *attrs);
bool peerdma_target_is_cached(struct file *file, const struct peerdma_file_attrs *attrs);
u32 peerdma_target_max_len(const struct peerdma_target *target);
bool peerdma_target_is_immediate(struct file *file);
u32 peerdma_target_writable(struct file *file, struct peerdma_file_attrs *attrs);

#endif /* PEERDMA_TARGET_H */
