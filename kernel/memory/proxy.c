// SPDX-License-Identifier: GPL-2.0
/*
 * The proxy address: mmap(2) of a buffer. The CPU's loads and stores reach the BAR through it, and
 * system calls with O_DIRECT accept it as user memory: get_user_pages() finds its pages, for which
 * each is inserted as a page, with a reference.
 *
 * Revoking must remove the pages from every mapping of every process. Two rules ensure that:
 *
 * Each open file has its own address_space. unmap_mapping_range() walks the mappings of one
 * address_space, and each device node has its own: a second node for /dev/peerdma, as in a
 * container, would be missed. So each open file gets an anonymous inode, whose address_space is the
 * file's f_mapping. That also separates equal ids of two open files.
 *
 * Only the fault handler inserts pages, with a usage reference. A revoke kills and drains that and
 * then unmaps: it finds all inserted pages, and none is inserted afterwards. mmap() itself must not
 * insert, because unmap_mapping_range() does not find the vma yet.
 *
 * A buffer's range begins at its id << PROXY_SHIFT. Ids are reused, so a vma references its buffer
 * and looks it up only once. The vma of a destroyed buffer gives SIGBUS, not the memory of the id's
 * next owner.
 */
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/refcount.h>

#include "compat/compat.h"
#include "base/usage.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/mem.h"
#include "memory/proxy.h"

#define PROXY_SHIFT 39
#define PROXY_LEN BIT_ULL(PROXY_SHIFT) /* bytes between the ranges of two ids */
#define PROXY_PAGES (PROXY_LEN >> PAGE_SHIFT)
#define FAULT_PAGES 16 /* pages that one fault inserts: most users touch a buffer from end to end */

static_assert(PEERDMA_BUF_ID_BITS + PROXY_SHIFT < 64, "an offset in a file is 63 bits");

static struct vfsmount *proxy_mnt;

static int proxy_init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, 0x50454552) ? 0 : -ENOMEM; /* "PEER" */
}

/* Without an owner: the mount would keep the module loaded. Open files keep it anyway. */
static struct file_system_type proxy_fs = {
	.name = "peerdma",
	.init_fs_context = proxy_init_fs_context,
	.kill_sb = kill_anon_super,
};

int peerdma_proxy_init(void)
{
	proxy_mnt = kern_mount(&proxy_fs);
	return PTR_ERR_OR_ZERO(proxy_mnt);
}

void peerdma_proxy_exit(void)
{
	kern_unmount(proxy_mnt);
}

/* Gives an open file an address_space of its own. */
int peerdma_proxy_open(struct peerdma_ctx *ctx, struct file *file)
{
	struct inode *inode = alloc_anon_inode(proxy_mnt->mnt_sb);

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	ctx->inode = inode;
	file->f_mapping = inode->i_mapping;
	return 0;
}

/* Called when the open file, and so every vma, is gone. */
void peerdma_proxy_release(struct peerdma_ctx *ctx)
{
	iput(ctx->inode);
}

/* The mmap() offset of a buffer. Never 0, as no id is 0. */
u64 peerdma_proxy_offset(struct peerdma_buffer *buffer)
{
	return (u64)buffer->entry.id << PROXY_SHIFT;
}

/**
 * peerdma_proxy_unmap - remove the pages from all mappings of a buffer
 * @buffer: with its usage reference killed and drained
 */
void peerdma_proxy_unmap(struct peerdma_buffer *buffer)
{
	unmap_mapping_range(buffer->mapping, peerdma_proxy_offset(buffer),
			    min(buffer->mem->len, PROXY_LEN), 1);
}

/*
 * Inserts the page at vmf->address, which is number @index, and those behind it up to the first
 * error.
 */
static vm_fault_t insert_pages(struct vm_fault *vmf, struct peerdma_mem *mem, unsigned long index)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = vmf->address & PAGE_MASK;
	unsigned long end = min(vma->vm_end, addr + FAULT_PAGES * PAGE_SIZE);
	int err = vm_insert_page(vma, addr, peerdma_mem_page(mem, index));

	if (err == -EBUSY) /* another thread was faster */
		return VM_FAULT_NOPAGE;
	if (err)
		return err == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
	while (!err && (addr += PAGE_SIZE) < end)
		err = vm_insert_page(vma, addr, peerdma_mem_page(mem, ++index));
	return VM_FAULT_NOPAGE;
}

/* Waits for memory only, so a kill of the usage reference is not delayed for long. */
static vm_fault_t proxy_fault(struct vm_fault *vmf)
{
	struct peerdma_buffer *buffer = vmf->vma->vm_private_data;
	vm_fault_t ret;

	if (!peerdma_usage_tryget(&buffer->usage))
		return VM_FAULT_SIGBUS;
	ret = insert_pages(vmf, buffer->mem, vmf->pgoff % PROXY_PAGES);
	peerdma_usage_put(&buffer->usage);
	return ret;
}

/* Called for a fork, a move or a split of a vma. */
static void proxy_vma_open(struct vm_area_struct *vma)
{
	struct peerdma_buffer *buffer = vma->vm_private_data;

	refcount_inc(&buffer->refs);
}

static void proxy_vma_close(struct vm_area_struct *vma)
{
	peerdma_buffer_put(vma->vm_private_data);
}

static const struct vm_operations_struct proxy_vm_ops = {
	.open = proxy_vma_open,
	.close = proxy_vma_close,
	.fault = proxy_fault,
};

/* The buffer that a new vma maps, with a reference for the vma, or ERR_PTR. */
static struct peerdma_buffer *proxy_buffer(struct peerdma_ctx *ctx, struct vm_area_struct *vma)
{
	u64 first = vma->vm_pgoff % PROXY_PAGES;
	struct peerdma_buffer *buffer;
	u64 len;

	buffer = peerdma_buffer_enter(ctx, vma->vm_pgoff / PROXY_PAGES);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer) == -ENOENT ? ERR_PTR(-EINVAL) : buffer;
	len = buffer->mem->len;
	refcount_inc(&buffer->refs);
	peerdma_usage_put(&buffer->usage);
	if (first + vma_pages(vma) <= min(len, PROXY_LEN) >> PAGE_SHIFT)
		return buffer;
	peerdma_buffer_put(buffer);
	return ERR_PTR(-EINVAL);
}

int peerdma_proxy_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct peerdma_buffer *buffer;

	/* VM_SHARED is not set for a file that is open read-only; VM_MAYSHARE is. */
	if (!(vma->vm_flags & VM_MAYSHARE) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;
	buffer = proxy_buffer(file->private_data, vma);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	/* Not VM_IO, which get_user_pages() refuses. vm_insert_page() needs VM_MIXEDMAP. */
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_MIXEDMAP, VM_MAYEXEC);
	/* The same type as the kernel's mapping of the pages: memremap_pages(). */
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_ops = &proxy_vm_ops;
	vma->vm_private_data = buffer;
	return 0;
}
