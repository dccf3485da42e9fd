// SPDX-License-Identifier: GPL-2.0
/*
 * What a file is, for direct I/O: which block device has its bytes, and in which steps they can be
 * moved. A block device is itself; a regular file counts if its filesystem's direct I/O is known to
 * go to its one block device.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fileattr.h> /* on v6.1 not whole without fs.h */
#include <linux/iversion.h>
#include <linux/magic.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/stat.h>

#include "peerdma.h"

static int refuse(u32 *out_reason, u32 reason)
{
	*out_reason = reason;
	return peerdma_reason_errno(reason);
}

static int resolve_block(struct inode *inode, struct peerdma_target *target)
{
	target->bdev = I_BDEV(inode);
	target->fs_name = "block";
	target->mem_align = bdev_dma_alignment(target->bdev) + 1;
	target->offset_align = bdev_logical_block_size(target->bdev);
	return 0;
}

/* A name alone could be another filesystem's, and so could a number. */
static bool is_filesystem(struct super_block *sb, const char *name, unsigned long magic)
{
	return sb->s_magic == magic && !strcmp(sb->s_type->name, name);
}

static bool is_ext4(struct super_block *sb)
{
	return is_filesystem(sb, "ext4", EXT4_SUPER_MAGIC);
}

static bool is_xfs(struct super_block *sb)
{
	return is_filesystem(sb, "xfs", XFS_SUPER_MAGIC);
}

static bool is_nfs(struct super_block *sb)
{
	return is_filesystem(sb, "nfs", NFS_SUPER_MAGIC) ||
	       is_filesystem(sb, "nfs4", NFS_SUPER_MAGIC);
}

/* On another machine, with its transport to be asked about. It has no blocks of its own. */
static int resolve_share(struct file *file, struct peerdma_target *target, u32 *reason)
{
	if (!(file->f_mode & FMODE_CAN_ODIRECT))
		return refuse(reason, PEERDMA_REASON_NO_DIO);
	/*
	 * The transport of RDMA sends what is less than a page along with the call, by ways that do
	 * not know peer pages.
	 */
	target->mem_align = PAGE_SIZE;
	target->offset_align = PAGE_SIZE;
	return 0;
}

/*
 * Can a file of this xfs be on another device than s_bdev? Only where it was mounted with one for
 * realtime files, which the filesystem shows among its options, and which a remount cannot change.
 * A file can become a realtime one as long as it is empty, so this is what can be remembered.
 */
static bool may_be_realtime(struct super_block *sb)
{
	struct seq_file options = { .size = PAGE_SIZE };
	bool may = true;

	options.buf = kzalloc(options.size, GFP_KERNEL);
	if (!options.buf)
		return may;
	mutex_init(&options.lock);
	if (!sb->s_op->show_options(&options, sb->s_root) && !seq_has_overflowed(&options)) {
		options.buf[options.count] = 0;
		may = strstr(options.buf, ",rtdev=");
	}
	kfree(options.buf);
	return may;
}

/* A realtime file of xfs has its bytes on another device than s_bdev. */
static u32 check_realtime(struct file *file)
{
	struct file_kattr attr = { .fsx_valid = true };

	if (vfs_fileattr_get(file->f_path.dentry, &attr))
		return PEERDMA_REASON_NO_DIO;
	return attr.fsx_xflags & FS_XFLAG_REALTIME ? PEERDMA_REASON_REALTIME : PEERDMA_REASON_NONE;
}

static int resolve_regular(struct file *file, struct peerdma_target *target, u32 *reason)
{
	struct super_block *sb = file_inode(file)->i_sb;
	struct kstat stat = {};
	int err;

	target->fs_name = sb->s_type->name;
	if (is_nfs(sb))
		return resolve_share(file, target, reason);
	if (!sb->s_bdev || !(is_ext4(sb) || is_xfs(sb)))
		return refuse(reason, PEERDMA_REASON_FILESYSTEM);
	if (is_xfs(sb)) {
		err = refuse(reason, check_realtime(file));
		if (err)
			return err;
	}
	err = vfs_getattr(&file->f_path, &stat, STATX_DIOALIGN, 0);
	if (err)
		return err;
	/* 0: this very file would go through the page cache: encrypted, verity, journalled ... */
	if (!stat.dio_offset_align || !stat.dio_mem_align || IS_DAX(file_inode(file)) ||
	    IS_ENCRYPTED(file_inode(file)) || IS_VERITY(file_inode(file)))
		return refuse(reason, PEERDMA_REASON_NO_DIO);
	target->bdev = sb->s_bdev;
	target->mem_align = stat.dio_mem_align;
	target->offset_align = stat.dio_offset_align;
	/*
	 * xfs writes less than a block of a file that shares blocks through the page cache, and
	 * does not say so afterwards.
	 */
	if (is_xfs(sb))
		target->offset_align = max_t(u32, target->offset_align, sb->s_blocksize);
	return 0;
}

/* ext4 writes to a file without extents through the page cache, wherever it has no block yet. */
static bool has_extents(struct file *file)
{
	struct file_kattr attr = { .flags_valid = true };

	return !vfs_fileattr_get(file->f_path.dentry, &attr) && (attr.flags & FS_EXTENT_FL);
}

/*
 * As long as nobody queries it, writes do not move it; a change of the file's attributes does. That
 * happens under the inode's lock and moves the version first, so what is found under the lock is
 * true of the version that is found there.
 */
static u64 version_of(const struct file *file)
{
	return inode_peek_iversion_raw(file_inode(file));
}

static void remember_extents(struct file *file, struct peerdma_memo *memo)
{
	if (!inode_trylock_shared(file_inode(file)))
		return;
	if (has_extents(file))
		WRITE_ONCE(memo->extents_at, version_of(file));
	inode_unlock_shared(file_inode(file));
}

/**
 * peerdma_target_writable - may this file be written as it was opened
 * @file: a regular file or a block device
 * @memo: of a file that is kept open, or NULL
 * Return: enum peerdma_reason.
 *
 * ext4 is asked again when the version of the inode has moved, as it does when its attributes
 * change.
 */
u32 peerdma_target_writable(struct file *file, struct peerdma_memo *memo)
{
	if (!S_ISREG(file_inode(file)->i_mode) || !is_ext4(file_inode(file)->i_sb))
		return PEERDMA_REASON_NONE;
	if (likely(memo && READ_ONCE(memo->extents_at) == version_of(file)))
		return PEERDMA_REASON_NONE;
	if (!has_extents(file))
		return PEERDMA_REASON_NO_DIO;
	if (memo)
		remember_extents(file, memo);
	return PEERDMA_REASON_NONE;
}

/**
 * peerdma_target_type - is this a kind of file that can be read and written directly
 * @file: any open file
 * @reason: enum peerdma_reason
 * Return: 0, or the errno that goes with @reason.
 */
int peerdma_target_type(struct file *file, u32 *reason)
{
	/* Of a device node this is the block device's own inode, of a regular file its own. */
	umode_t mode = file->f_mapping->host->i_mode;

	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	*reason = PEERDMA_REASON_FILE_TYPE;
	return S_ISDIR(mode) ? -EISDIR : peerdma_reason_errno(*reason);
}

/**
 * peerdma_target_resolve - what a file is, for direct I/O
 * @file: any open file
 * @target: filled; valid as long as @file is open
 * @reason: enum peerdma_reason
 * Return: 0, or the errno that goes with @reason.
 */
int peerdma_target_resolve(struct file *file, struct peerdma_target *target, u32 *reason)
{
	struct inode *inode = file->f_mapping->host;
	int err;

	*target = (struct peerdma_target){ .fs_name = file_inode(file)->i_sb->s_type->name };
	*reason = PEERDMA_REASON_NONE;
	err = peerdma_target_type(file, reason);
	if (err)
		return err;
	if (S_ISBLK(inode->i_mode))
		return resolve_block(inode, target);
	return resolve_regular(file, target, reason);
}

/**
 * peerdma_target_learn - find out about a file that will be kept open
 * @file: a regular file or a block device
 * @memo: filled
 *
 * Not of an xfs with a realtime device, nor of NFS.
 */
void peerdma_target_learn(struct file *file, struct peerdma_memo *memo)
{
	struct address_space *mapping = file->f_mapping;
	const struct address_space_operations *a_ops = READ_ONCE(mapping->a_ops);
	u32 reason;

	memo->a_ops = NULL;
	memo->extents_at = version_of(file) - 1; /* another one */
	if (S_ISREG(mapping->host->i_mode) && is_xfs(mapping->host->i_sb) &&
	    may_be_realtime(mapping->host->i_sb))
		return;
	if (!peerdma_target_resolve(file, &memo->target, &reason) && memo->target.bdev)
		memo->a_ops = a_ops;
}

/* A drive may be formatted anew, with other blocks. */
static bool has_the_same_blocks(const struct peerdma_target *target)
{
	return target->offset_align == bdev_logical_block_size(target->bdev) &&
	       target->mem_align == bdev_dma_alignment(target->bdev) + 1;
}

/**
 * peerdma_target_most - the bytes that a kiocb may have which does not wait
 * @target: on a block device
 * Return: whole blocks; 0: the drive takes less than one at once.
 *
 * The block layer splits what is more than the drive takes at once, and a bio that may not wait it
 * does not split but fails, sometimes half way.
 */
u32 peerdma_target_most(const struct peerdma_target *target)
{
	u64 most = (u64)queue_max_sectors(bdev_get_queue(target->bdev)) << SECTOR_SHIFT;

	return rounddown(min_t(u64, most, MAX_RW_COUNT), target->offset_align);
}

/**
 * peerdma_target_is_immediate - can peerdma_target_resolve() answer without sleeping
 * @file: any open file
 * Return: whether.
 */
bool peerdma_target_is_immediate(struct file *file)
{
	return S_ISBLK(file->f_mapping->host->i_mode);
}

/**
 * peerdma_target_recall - is what was found out still so
 * @file: it was found out about
 * @memo: from peerdma_target_learn()
 * Return: false if it must be resolved again.
 *
 * What can change of an open file is seen: a journal for its data has other methods, verity and
 * encryption are flags. A file that got out of direct I/O in a way that is not seen would be read
 * through the page cache by its filesystem, which then says so.
 */
bool peerdma_target_recall(struct file *file, const struct peerdma_memo *memo)
{
	const struct address_space *mapping = file->f_mapping;

	if (S_ISBLK(mapping->host->i_mode))
		return memo->a_ops && has_the_same_blocks(&memo->target);
	return memo->a_ops && READ_ONCE(mapping->a_ops) == memo->a_ops &&
	       !(READ_ONCE(mapping->host->i_flags) & (S_DAX | S_ENCRYPTED | S_VERITY));
}
