// SPDX-License-Identifier: GPL-2.0
/*
 * Properties of a file for direct I/O: the block device that has its bytes, and the alignment. A
 * block device is its own. A regular file is accepted if its filesystem is known to send direct I/O
 * to its one block device.
 */
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fileattr.h> /* incomplete without fs.h on v6.1 */
#include <linux/iversion.h>
#include <linux/magic.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "routing/target.h"

static int target_set_reason(u32 *out_reason, u32 reason)
{
	*out_reason = reason;
	return peerdma_reason_errno(reason);
}

static int target_resolve_block(struct inode *inode, struct peerdma_target *target)
{
	target->bdev = I_BDEV(inode);
	target->fs_name = "block";
	target->mem_align = bdev_dma_alignment(target->bdev) + 1;
	target->offset_align = bdev_logical_block_size(target->bdev);
	return 0;
}

/* Both are compared, because another filesystem may have the same name or the same number. */
static bool sb_is(struct super_block *sb, const char *name, unsigned long magic)
{
	return sb->s_magic == magic && !strcmp(sb->s_type->name, name);
}

static bool sb_is_ext4(struct super_block *sb)
{
	return sb_is(sb, "ext4", EXT4_SUPER_MAGIC);
}

static bool sb_is_xfs(struct super_block *sb)
{
	return sb_is(sb, "xfs", XFS_SUPER_MAGIC);
}

static bool sb_is_nfs(struct super_block *sb)
{
	return sb_is(sb, "nfs", NFS_SUPER_MAGIC) || sb_is(sb, "nfs4", NFS_SUPER_MAGIC);
}

/* A file on another machine: its transport is to be probed. It has no blocks of its own. */
static int target_resolve_share(struct file *file, struct peerdma_target *target, u32 *reason)
{
	if (!(file->f_mode & FMODE_CAN_ODIRECT))
		return target_set_reason(reason, PEERDMA_REASON_NO_DIO);
	/*
	 * The RDMA transport sends less than a page inline with the call, by code that does not
	 * know peer pages.
	 */
	target->mem_align = PAGE_SIZE;
	target->offset_align = PAGE_SIZE;
	return 0;
}

/*
 * True if a file of this xfs may be on another device than s_bdev. That needs a realtime device at
 * mount time, which is among the mount options, and which a remount cannot change. An empty file
 * can become a realtime file at any time, so only this property can be cached.
 */
static bool sb_may_be_realtime(struct super_block *sb)
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
static u32 target_check_realtime(struct file *file)
{
	struct file_kattr attr = { .fsx_valid = true };

	if (vfs_fileattr_get(file->f_path.dentry, &attr))
		return PEERDMA_REASON_NO_DIO;
	return attr.fsx_xflags & FS_XFLAG_REALTIME ? PEERDMA_REASON_REALTIME : PEERDMA_REASON_NONE;
}

static int target_resolve_regular(struct file *file, struct peerdma_target *target, u32 *reason)
{
	struct super_block *sb = file_inode(file)->i_sb;
	struct kstat stat = {};
	int err;

	target->fs_name = sb->s_type->name;
	if (sb_is_nfs(sb))
		return target_resolve_share(file, target, reason);
	if (!sb->s_bdev || !(sb_is_ext4(sb) || sb_is_xfs(sb)))
		return target_set_reason(reason, PEERDMA_REASON_FILESYSTEM);
	if (sb_is_xfs(sb)) {
		err = target_set_reason(reason, target_check_realtime(file));
		if (err)
			return err;
	}
	err = vfs_getattr(&file->f_path, &stat, STATX_DIOALIGN, 0);
	if (err)
		return err;
	/* 0: this file would go through the page cache: encrypted, verity, journalled ... */
	if (!stat.dio_offset_align || !stat.dio_mem_align || IS_DAX(file_inode(file)) ||
	    IS_ENCRYPTED(file_inode(file)) || IS_VERITY(file_inode(file)))
		return target_set_reason(reason, PEERDMA_REASON_NO_DIO);
	target->bdev = sb->s_bdev;
	target->mem_align = stat.dio_mem_align;
	target->offset_align = stat.dio_offset_align;
	/*
	 * xfs writes less than a block of a file with shared blocks through the page cache, without
	 * reporting it.
	 */
	if (sb_is_xfs(sb))
		target->offset_align = max_t(u32, target->offset_align, sb->s_blocksize);
	return 0;
}

/* ext4 writes to a file without extents through the page cache, wherever it has no block yet. */
static bool target_has_extents(struct file *file)
{
	struct file_kattr attr = { .flags_valid = true };

	return !vfs_fileattr_get(file->f_path.dentry, &attr) && (attr.flags & FS_EXTENT_FL);
}

/*
 * Writes do not change the version unless it is queried; a change of the file's attributes does.
 * That change is made under the inode's lock and changes the version first, so what is read under
 * the lock belongs to the version read there.
 */
static u64 target_version(const struct file *file)
{
	return inode_peek_iversion_raw(file_inode(file));
}

static void attrs_set_extents(struct file *file, struct peerdma_file_attrs *attrs)
{
	if (!inode_trylock_shared(file_inode(file)))
		return;
	if (target_has_extents(file))
		WRITE_ONCE(attrs->extents_at, target_version(file));
	inode_unlock_shared(file_inode(file));
}

/**
 * peerdma_target_writable - may this file be written as it was opened?
 * @file: a regular file or a block device
 * @attrs: of a file that is kept open, or NULL
 * Return: enum peerdma_reason.
 *
 * ext4 is asked again when the inode's version has changed, as it does with its attributes.
 */
u32 peerdma_target_writable(struct file *file, struct peerdma_file_attrs *attrs)
{
	if (!S_ISREG(file_inode(file)->i_mode) || !sb_is_ext4(file_inode(file)->i_sb))
		return PEERDMA_REASON_NONE;
	if (likely(attrs && READ_ONCE(attrs->extents_at) == target_version(file)))
		return PEERDMA_REASON_NONE;
	if (!target_has_extents(file))
		return PEERDMA_REASON_NO_DIO;
	if (attrs)
		attrs_set_extents(file, attrs);
	return PEERDMA_REASON_NONE;
}

/**
 * peerdma_target_type - can this type of file be read and written directly?
 * @file: any open file
 * @reason: enum peerdma_reason
 * Return: 0, or the errno for @reason.
 */
int peerdma_target_type(struct file *file, u32 *reason)
{
	/* For a device node this is the block device's inode, for a regular file its own. */
	umode_t mode = file->f_mapping->host->i_mode;

	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	*reason = PEERDMA_REASON_FILE_TYPE;
	return S_ISDIR(mode) ? -EISDIR : peerdma_reason_errno(*reason);
}

/**
 * peerdma_target_resolve - find the properties of a file for direct I/O
 * @file: any open file
 * @target: filled; valid as long as @file is open
 * @reason: enum peerdma_reason
 * Return: 0, or the errno for @reason.
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
		return target_resolve_block(inode, target);
	return target_resolve_regular(file, target, reason);
}

/**
 * peerdma_target_cache - find the properties of a file that will be kept open
 * @file: a regular file or a block device
 * @attrs: filled
 *
 * Caches nothing for an xfs with a realtime device, or for NFS.
 */
void peerdma_target_cache(struct file *file, struct peerdma_file_attrs *attrs)
{
	struct address_space *mapping = file->f_mapping;
	const struct address_space_operations *a_ops = READ_ONCE(mapping->a_ops);
	u32 reason;

	attrs->a_ops = NULL;
	attrs->extents_at = target_version(file) - 1; /* any other value */
	if (S_ISREG(mapping->host->i_mode) && sb_is_xfs(mapping->host->i_sb) &&
	    sb_may_be_realtime(mapping->host->i_sb))
		return;
	if (!peerdma_target_resolve(file, &attrs->target, &reason) && attrs->target.bdev)
		attrs->a_ops = a_ops;
}

/* A drive may be formatted with another block size. */
static bool target_has_same_blocks(const struct peerdma_target *target)
{
	return target->offset_align == bdev_logical_block_size(target->bdev) &&
	       target->mem_align == bdev_dma_alignment(target->bdev) + 1;
}

/**
 * peerdma_target_max_len - the most bytes of a kiocb that does not wait
 * @target: on a block device
 * Return: whole blocks; 0: the drive takes less than one at once.
 *
 * The block layer splits a bio that is larger than the drive takes. A bio that may not wait fails
 * instead, sometimes halfway.
 */
u32 peerdma_target_max_len(const struct peerdma_target *target)
{
	u64 most = (u64)queue_max_sectors(bdev_get_queue(target->bdev)) << SECTOR_SHIFT;

	return rounddown(min_t(u64, most, MAX_RW_COUNT), target->offset_align);
}

/**
 * peerdma_target_is_immediate - can peerdma_target_resolve() answer without sleeping?
 * @file: any open file
 * Return: true or false.
 */
bool peerdma_target_is_immediate(struct file *file)
{
	return S_ISBLK(file->f_mapping->host->i_mode);
}

/**
 * peerdma_target_is_cached - are the cached properties still valid?
 * @file: that they were cached for
 * @attrs: from peerdma_target_cache()
 * Return: false if it must be resolved again.
 *
 * Changes of an open file are visible: journalled data has other methods, verity and encryption are
 * flags. If a file leaves direct I/O in another way, its filesystem reads through the page cache,
 * and reports that.
 */
bool peerdma_target_is_cached(struct file *file, const struct peerdma_file_attrs *attrs)
{
	const struct address_space *mapping = file->f_mapping;

	if (S_ISBLK(mapping->host->i_mode))
		return attrs->a_ops && target_has_same_blocks(&attrs->target);
	return attrs->a_ops && READ_ONCE(mapping->a_ops) == attrs->a_ops &&
	       !(READ_ONCE(mapping->host->i_flags) & (S_DAX | S_ENCRYPTED | S_VERITY));
}
