// SPDX-License-Identifier: GPL-2.0
/*
 * Exports dma-bufs of the lab's emulated GPU, to whose BAR 2 it is bound. It behaves as GPU drivers
 * do, with bus addresses and without pages. It can also violate the rules: expstand.h.
 *
 * debugfs: attached, pinned and mapped are the current counts; waited and ran are the cost of the
 * last invalidation: watch.h. wrong counts calls that an importer must not make.
 */
#include <linux/debugfs.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "expstand.h"
#include "watch.h"

/* Replaces MODULE_IMPORT_NS(), whose argument was not a string up to v6.12. */
MODULE_INFO(import_ns, "DMA_BUF");

#ifdef HAVE_INVALIDATE_MAPPINGS
#define tell(dmabuf) dma_buf_invalidate_mappings(dmabuf)
#define told invalidate_mappings
#else
#define tell(dmabuf) dma_buf_move_notify(dmabuf)
#define told move_notify
#endif

#define BAR 2
#define PUBLISHED SZ_16M /* of the BAR; creating all pages of a large one takes long */
#define CHUNK 65536ULL
#define POISON 0xdd
#define SOON 300 /* ms */
#define LATE 3000
#define NOWHERE BIT_ULL(44)

static bool publish = true;
module_param(publish, bool, 0444);

struct exported {
	struct exp_make is; /* layout and off are protected by the dma-buf's resv */
	struct page *host; /* host memory that replaces a chunk of the GPU */
	struct delayed_work arrival;
	struct dma_fence *fence;
};

/* A fence and the work that signals it. */
struct arrival {
	struct dma_fence fence;
	spinlock_t lock; /* the fence's */
};

static struct pci_dev *gpu; /* protected by gpu_lock while it is bound */
static void __iomem *memory;
static DEFINE_MUTEX(gpu_lock); /* protects gpu and memory */

static atomic_t attached = ATOMIC_INIT(0);
static atomic_t pinned = ATOMIC_INIT(0);
static atomic_t mapped = ATOMIC_INIT(0);
static atomic_t wrong = ATOMIC_INIT(0);
static struct dentry *folder;

static void must_not(const char *what)
{
	pr_info("expstand: wrong: %s\n", what);
	atomic_inc(&wrong);
}

static bool can_be_told(const struct dma_buf_attachment *attach)
{
	return attach->importer_ops && attach->importer_ops->told;
}

static void tell_one(struct dma_buf_attachment *attach)
{
	attach->importer_ops->told(attach);
}

static void need_lock(struct dma_buf *dmabuf)
{
	if (!dma_resv_is_locked(dmabuf->resv))
		must_not("called without the lock");
}

/* --- Address. */

/* The bus address of byte @at, which begins a page. */
static u64 place(const struct exp_make *is, u64 at)
{
	const u64 off = is->off + at;
	const bool in_last = is->len - at <= CHUNK;

	switch (is->layout) {
	case EXP_SCATTERED:
		return off ^ 5 * CHUNK;
	case EXP_PIECES:
		return off ^ PAGE_SIZE;
	case EXP_LAST_BEYOND:
		return in_last ? PUBLISHED + off % CHUNK : off;
	case EXP_LAST_TWICE:
		return in_last ? off - (is->len - CHUNK) : off;
	default:
		return off;
	}
}

static u64 address(const struct exported *exported, u64 at)
{
	const struct exp_make *is = &exported->is;
	const bool in_last = is->len - at <= CHUNK;

	if (is->layout == EXP_HOST || (is->layout == EXP_LAST_HOST && in_last))
		return page_to_phys(exported->host) + at % CHUNK;
	if (is->layout == EXP_LAST_NOWHERE && in_last)
		return NOWHERE + at % CHUNK;
	return pci_bus_address(gpu, BAR) + place(is, at);
}

/* One entry per page, or a single one for a contiguous layout. */
static struct sg_table *make_table(const struct exported *exported)
{
	const struct exp_make *is = &exported->is;
	const u64 step = is->layout == EXP_LINEAR ? is->len : PAGE_SIZE;
	unsigned int i, n = is->len / step - (is->layout == EXP_SHORT);
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	struct scatterlist *sg;

	if (!sgt || sg_alloc_table(sgt, n, GFP_KERNEL)) {
		kfree(sgt);
		return ERR_PTR(-ENOMEM);
	}
	for_each_sgtable_sg(sgt, sg, i) {
		sg_set_page(sg, NULL, step, 0);
		sg_dma_address(sg) = address(exported, i * step);
		sg_dma_len(sg) = step;
	}
	sgt->nents = is->layout == EXP_EMPTY ? 0 : n;
	return sgt;
}

/* --- The dma-buf's operations. */

static int exp_attach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	const struct exported *exported = dmabuf->priv;

	if (!attach->importer_ops || !attach->peer2peer)
		must_not("imported without peers");
	if (exported->is.trouble == EXP_NO_ATTACH)
		return -EPERM;
	if (exported->is.trouble == EXP_REVOKES && !can_be_told(attach))
		return -EOPNOTSUPP;
	if (exported->is.trouble == EXP_MOVES_IN_ATTACH) {
		dma_resv_lock(dmabuf->resv, NULL);
		if (can_be_told(attach))
			tell_one(attach);
		dma_resv_unlock(dmabuf->resv);
	}
	atomic_inc(&attached);
	return 0;
}

static void exp_detach(struct dma_buf *dmabuf, struct dma_buf_attachment *attach)
{
	atomic_dec(&attached);
}

static int exp_pin(struct dma_buf_attachment *attach)
{
	struct exported *exported = attach->dmabuf->priv;

	need_lock(attach->dmabuf);
	if (exported->is.trouble == EXP_NO_PIN)
		return -EOPNOTSUPP;
	if (exported->is.trouble == EXP_MOVES_IN_PIN || exported->is.trouble == EXP_LEAVES_IN_PIN)
		tell(attach->dmabuf);
	if (exported->is.trouble == EXP_LEAVES_IN_PIN)
		exported->is.layout = EXP_HOST;
	atomic_inc(&pinned);
	return 0;
}

static void exp_unpin(struct dma_buf_attachment *attach)
{
	need_lock(attach->dmabuf);
	atomic_dec(&pinned);
}

static struct sg_table *exp_map(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	const struct exported *exported = attach->dmabuf->priv;
	struct sg_table *sgt = ERR_PTR(-ENODEV);

	need_lock(attach->dmabuf);
	if (exported->is.trouble == EXP_NO_MAP)
		return ERR_PTR(-EIO);
	if (exported->is.dynamic && !atomic_read(&pinned) &&
	    !(exported->is.trouble == EXP_UNPINNED && can_be_told(attach)))
		must_not("mapped and not pinned");
	if (exported->is.trouble == EXP_MOVES_IN_MAP)
		tell(attach->dmabuf);
	mutex_lock(&gpu_lock);
	if (gpu)
		sgt = make_table(exported);
	mutex_unlock(&gpu_lock);
	if (!IS_ERR(sgt))
		atomic_inc(&mapped);
	return sgt;
}

static void exp_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
		      enum dma_data_direction dir)
{
	need_lock(attach->dmabuf);
	sg_free_table(sgt);
	kfree(sgt);
	atomic_dec(&mapped);
}

static void exp_release(struct dma_buf *dmabuf)
{
	struct exported *exported = dmabuf->priv;

	if (exported->fence) {
		flush_delayed_work(&exported->arrival);
		dma_fence_put(exported->fence);
	}
	__free_pages(exported->host, get_order(CHUNK));
	kfree(exported);
}

static const struct dma_buf_ops static_ops = {
	.attach = exp_attach,
	.detach = exp_detach,
	.map_dma_buf = exp_map,
	.unmap_dma_buf = exp_unmap,
	.release = exp_release,
};

static const struct dma_buf_ops dynamic_ops = {
	.attach = exp_attach,
	.detach = exp_detach,
	.pin = exp_pin,
	.unpin = exp_unpin,
	.map_dma_buf = exp_map,
	.unmap_dma_buf = exp_unmap,
	.release = exp_release,
};

/* --- Migration. */

static const char *fence_name(struct dma_fence *fence)
{
	return "expstand";
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = fence_name,
	.get_timeline_name = fence_name,
};

static void arrive(struct work_struct *work)
{
	struct exported *exported = container_of(to_delayed_work(work), struct exported, arrival);

	dma_fence_signal(exported->fence);
}

static int send(struct dma_buf *dmabuf, unsigned int ms)
{
	struct arrival *arrival = kzalloc(sizeof(*arrival), GFP_KERNEL);
	struct exported *exported = dmabuf->priv;
	int err;

	static_assert(!offsetof(struct arrival, fence)); /* dma_fence_free() frees both */
	if (!arrival)
		return -ENOMEM;
	spin_lock_init(&arrival->lock);
	dma_fence_init(&arrival->fence, &fence_ops, &arrival->lock, dma_fence_context_alloc(1), 1);
	exported->fence = &arrival->fence;
	INIT_DELAYED_WORK(&exported->arrival, arrive);
	dma_resv_lock(dmabuf->resv, NULL);
	err = dma_resv_reserve_fences(dmabuf->resv, 1);
	if (!err)
		dma_resv_add_fence(dmabuf->resv, &arrival->fence, DMA_RESV_USAGE_KERNEL);
	dma_resv_unlock(dmabuf->resv);
	schedule_delayed_work(&exported->arrival, msecs_to_jiffies(ms));
	return err;
}

/* --- The device. */

static struct dma_buf *make(const struct exp_make *is)
{
	struct exported *exported = kzalloc(sizeof(*exported), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	int err = 0;

	if (!exported)
		return ERR_PTR(-ENOMEM);
	exported->is = *is;
	exported->host = alloc_pages(GFP_KERNEL | __GFP_ZERO, get_order(CHUNK));
	info.ops = is->dynamic ? &dynamic_ops : &static_ops;
	info.size = is->len;
	info.flags = is->trouble == EXP_READ_ONLY ? O_RDONLY : O_RDWR;
	info.priv = exported;
	dmabuf = exported->host ? dma_buf_export(&info) : ERR_PTR(-ENOMEM);
	if (IS_ERR(dmabuf)) {
		if (exported->host)
			__free_pages(exported->host, get_order(CHUNK));
		kfree(exported);
		return dmabuf;
	}
	if (is->trouble == EXP_SOON)
		err = send(dmabuf, SOON);
	else if (is->trouble == EXP_LATE)
		err = send(dmabuf, LATE);
	if (!err)
		return dmabuf;
	dma_buf_put(dmabuf);
	return ERR_PTR(err);
}

static int call_make(struct exp_make __user *user)
{
	struct dma_buf *dmabuf;
	struct exp_make is;

	if (copy_from_user(&is, user, sizeof(is)))
		return -EFAULT;
	if (!is.len || (is.off | is.len) % PAGE_SIZE || is.off > PUBLISHED ||
	    is.len > PUBLISHED - is.off)
		return -EINVAL;
	dmabuf = make(&is);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	is.out_fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (is.out_fd < 0) {
		dma_buf_put(dmabuf);
		return is.out_fd;
	}
	return copy_to_user(user, &is, sizeof(is)) ? -EFAULT : 0;
}

/* Copies the bytes to another place of the GPU. */
static int copy_to(const struct exported *exported, u64 off)
{
	void *page = (void *)__get_free_page(GFP_KERNEL);
	u64 at;

	if (!page)
		return -ENOMEM;
	mutex_lock(&gpu_lock);
	for (at = 0; gpu && at < exported->is.len; at += PAGE_SIZE) {
		memcpy_fromio(page, memory + place(&exported->is, at), PAGE_SIZE);
		memcpy_toio(memory + off + at, page, PAGE_SIZE);
	}
	mutex_unlock(&gpu_lock);
	free_page((unsigned long)page);
	return 0;
}

static void spoil(const struct exported *exported)
{
	u64 at;

	mutex_lock(&gpu_lock);
	for (at = 0; gpu && at < exported->is.len; at += PAGE_SIZE)
		memset_io(memory + place(&exported->is, at), POISON, PAGE_SIZE);
	if (gpu)
		(void)ioread32(memory); /* flushes posted writes */
	mutex_unlock(&gpu_lock);
}

/* Exporters may move memory only if every importer supports invalidation. */
static bool may_move(struct dma_buf *dmabuf)
{
	struct dma_buf_attachment *attach;

	list_for_each_entry(attach, &dmabuf->attachments, node) {
		if (!can_be_told(attach))
			return false;
	}
	return true;
}

/* With the lock. @to: its new place, or NULL. */
static int move(struct dma_buf *dmabuf, const u64 *to)
{
	struct exported *exported = dmabuf->priv;
	struct watch watch;
	int err = 0;

	if (!may_move(dmabuf))
		return -EBUSY;
	watch = watch_begin();
	tell(dmabuf);
	watch_end(&watch);
	if (to)
		err = copy_to(exported, *to);
	if (err)
		return err;
	spoil(exported);
	if (to)
		exported->is.off = *to;
	return 0;
}

/* With the lock. */
static bool is_place(const struct exp_make *is, u64 off)
{
	return is->layout == EXP_LINEAR && !(off % PAGE_SIZE) && off <= PUBLISHED - is->len &&
	       (off + is->len <= is->off || is->off + is->len <= off);
}

static int call_move(int fd, const u64 *to)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	int err = -EINVAL;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (dmabuf->ops == &static_ops || dmabuf->ops == &dynamic_ops) {
		const struct exported *exported = dmabuf->priv;

		dma_resv_lock(dmabuf->resv, NULL);
		if (!to || is_place(&exported->is, *to))
			err = move(dmabuf, to);
		dma_resv_unlock(dmabuf->resv);
	}
	dma_buf_put(dmabuf);
	return err;
}

static int call_relocate(const struct exp_relocate __user *user)
{
	struct exp_relocate args;

	if (copy_from_user(&args, user, sizeof(args)))
		return -EFAULT;
	return args.zero ? -EINVAL : call_move(args.fd, &args.off);
}

static long exp_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case EXP_MAKE:
		return call_make((void __user *)arg);
	case EXP_MOVE:
		return call_move(arg, NULL);
	case EXP_RELOCATE:
		return call_relocate((void __user *)arg);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations exp_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = exp_ioctl,
};

static struct miscdevice misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "expstand",
	.fops = &exp_fops,
};

static int exp_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
	memory = devm_ioremap(&pdev->dev, pci_resource_start(pdev, BAR), PUBLISHED);
	if (!memory)
		return -ENOMEM;
	err = publish ? pci_p2pdma_add_resource(pdev, BAR, PUBLISHED, 0) : 0;
	if (err)
		return err;
	mutex_lock(&gpu_lock);
	gpu = pdev;
	mutex_unlock(&gpu_lock);
	return 0;
}

static void exp_remove(struct pci_dev *pdev)
{
	mutex_lock(&gpu_lock);
	gpu = NULL;
	mutex_unlock(&gpu_lock);
	if (atomic_read(&mapped) || atomic_read(&pinned))
		must_not("unbound with memory mapped");
}

/* By driver_override only. */
static const struct pci_device_id exp_ids[] = { {} };

static struct pci_driver exp_driver = {
	.name = "expstand",
	.id_table = exp_ids,
	.probe = exp_probe,
	.remove = exp_remove,
};

static int __init exp_init(void)
{
	int err = misc_register(&misc);

	if (err)
		return err;
	err = pci_register_driver(&exp_driver);
	if (err) {
		misc_deregister(&misc);
		return err;
	}
	folder = debugfs_create_dir("expstand", NULL);
	debugfs_create_atomic_t("attached", 0444, folder, &attached);
	debugfs_create_atomic_t("pinned", 0444, folder, &pinned);
	debugfs_create_atomic_t("mapped", 0444, folder, &mapped);
	watch_show(folder);
	debugfs_create_atomic_t("wrong", 0444, folder, &wrong);
	return 0;
}

/*
 * The kernel frees fences after a grace period and calls this module for their names: wait before
 * unloading.
 */
static void __exit exp_exit(void)
{
	debugfs_remove(folder);
	pci_unregister_driver(&exp_driver);
	misc_deregister(&misc);
	rcu_barrier();
}

module_init(exp_init);
module_exit(exp_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Exports dma-bufs of a GPU's memory, well and badly");
