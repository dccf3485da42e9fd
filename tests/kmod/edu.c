// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU's edu device, which has a DMA engine, as an importer of dma-bufs: /dev/edu0, /dev/edu1 ...
 * Its user selects how it behaves: edu.h.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "edu.h"

/* Replaces MODULE_IMPORT_NS(), whose argument was not a string up to v6.12. */
MODULE_INFO(import_ns, "DMA_BUF");

static uint segment = 1 << 30;
module_param(segment, uint, 0444);
MODULE_PARM_DESC(segment, "bytes of the longest piece that it says it takes");

#define MEMORY 0x40000 /* address of its own memory for the engine */
#define SOURCE 0x80
#define DESTINATION 0x88
#define COUNT 0x90
#define COMMAND 0x98
#define RUN BIT(0)
#define OUT BIT(1)

#define LATER 50 /* EDU_LATER: ms from the engine's stop to unmapping */

struct edu {
	struct pci_dev *pdev;
	void __iomem *bar;
	struct miscdevice misc;
	char name[8];
};

/* A fence that is signaled when the engine has stopped, or when the file is closed. */
struct done {
	struct dma_fence fence;
	spinlock_t lock; /* the fence's */
	struct work_struct work;
	struct edu *edu;
	struct list_head link;
};

/* All members after @attach are protected by the dma-buf's resv. */
struct importer {
	struct edu *edu;
	struct mutex lock; /* serializes the calls of one file */
	struct dma_buf *dmabuf;
	enum edu_way way;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	enum dma_data_direction dir;
	unsigned int told;
	unsigned int pins;
	struct list_head fences; /* signaled when the file is closed */
	struct work_struct unmap;
};

static struct workqueue_struct *wq;

/* --- The engine. */

static bool is_busy(struct edu *edu)
{
	return readq(edu->bar + COMMAND) & RUN;
}

static void wait_idle(struct edu *edu)
{
	while (is_busy(edu))
		usleep_range(1000, 2000);
}

static const char *done_name(struct dma_fence *fence)
{
	return "edu";
}

static const struct dma_fence_ops done_ops = {
	.get_driver_name = done_name,
	.get_timeline_name = done_name,
};

static void done_work(struct work_struct *work)
{
	struct done *done = container_of(work, struct done, work);

	wait_idle(done->edu);
	dma_fence_signal(&done->fence);
	dma_fence_put(&done->fence);
}

static struct done *add_fence(struct importer *importer)
{
	struct done *done = kzalloc(sizeof(*done), GFP_KERNEL);

	static_assert(!offsetof(struct done, fence)); /* dma_fence_free() frees both */
	if (!done)
		return NULL;
	if (dma_resv_reserve_fences(importer->dmabuf->resv, 1)) {
		kfree(done);
		return NULL;
	}
	spin_lock_init(&done->lock);
	INIT_WORK(&done->work, done_work);
	done->edu = importer->edu;
	dma_fence_init(&done->fence, &done_ops, &done->lock, dma_fence_context_alloc(1), 1);
	dma_resv_add_fence(importer->dmabuf->resv, &done->fence, DMA_RESV_USAGE_BOOKKEEP);
	return done;
}

/* The importer may access the memory until the engine has stopped. */
static int fence_engine(struct importer *importer)
{
	struct done *done = add_fence(importer);

	if (!done)
		return -ENOMEM;
	queue_work(wq, &done->work);
	return 0;
}

/* A fence that is independent of the engine. */
static int fence_file(struct importer *importer)
{
	struct done *done = add_fence(importer);

	if (!done)
		return -ENOMEM;
	list_add(&done->link, &importer->fences);
	return 0;
}

static void signal_all(struct importer *importer)
{
	struct done *done, *next;

	list_for_each_entry_safe(done, next, &importer->fences, link) {
		dma_fence_signal(&done->fence);
		dma_fence_put(&done->fence);
	}
}

/* --- Mapping; under the resv. */

static void unmap(struct importer *importer)
{
	if (!importer->sgt)
		return;
	dma_buf_unmap_attachment(importer->attach, importer->sgt, importer->dir);
	importer->sgt = NULL;
}

static void unmap_work(struct work_struct *work)
{
	struct importer *importer = container_of(work, struct importer, unmap);

	wait_idle(importer->edu);
	msleep(LATER);
	dma_resv_lock(importer->dmabuf->resv, NULL);
	unmap(importer);
	dma_resv_unlock(importer->dmabuf->resv);
}

static void let_go(struct dma_buf_attachment *attach)
{
	struct importer *importer = attach->importer_priv;

	importer->told++;
	switch (importer->way) {
	case EDU_NOW:
		wait_idle(importer->edu);
		unmap(importer);
		break;
	case EDU_FENCED:
		unmap(importer);
		break;
	case EDU_LATER:
		queue_work(wq, &importer->unmap);
		break;
	default:
		break;
	}
}

static int start(struct importer *importer, const struct edu_dma *dma)
{
	u64 off = dma->off, memory = MEMORY + dma->at;
	void __iomem *bar = importer->edu->bar;
	struct scatterlist *sg;
	dma_addr_t addr;
	int i, err;

	if (!importer->sgt || !dma->len || dma->at > EDU_MEMORY || dma->len > EDU_MEMORY - dma->at)
		return -EINVAL;
	for_each_sgtable_dma_sg(importer->sgt, sg, i) {
		if (off < sg_dma_len(sg))
			break;
		off -= sg_dma_len(sg);
	}
	if (i == importer->sgt->nents || dma->len > sg_dma_len(sg) - off)
		return -EINVAL;
	addr = sg_dma_address(sg) + off;
	wait_idle(importer->edu);
	writeq(dma->out ? memory : addr, bar + SOURCE);
	writeq(dma->out ? addr : memory, bar + DESTINATION);
	writeq(dma->len, bar + COUNT);
	writeq(RUN | (dma->out ? OUT : 0), bar + COMMAND);
	err = importer->way == EDU_LATER || importer->way == EDU_FENCED ? fence_engine(importer) :
									  0;
	if (err)
		wait_idle(importer->edu);
	return err;
}

static int map(struct importer *importer, struct edu_map *req)
{
	static const enum dma_data_direction dirs[] = { DMA_BIDIRECTIONAL, DMA_TO_DEVICE,
							DMA_FROM_DEVICE };
	struct scatterlist *sg;
	struct sg_table *sgt;
	int i;

	if (importer->sgt || req->dir >= ARRAY_SIZE(dirs))
		return -EINVAL;
	importer->dir = dirs[req->dir];
	sgt = dma_buf_map_attachment(importer->attach, importer->dir);
	if (IS_ERR(sgt))
		return PTR_ERR(sgt);
	importer->sgt = sgt;
	req->out_pieces = sgt->nents;
	req->out_addr = sg_dma_address(sgt->sgl);
	req->out_len = 0;
	for_each_sgtable_dma_sg(sgt, sg, i)
		req->out_len += sg_dma_len(sg);
	return 0;
}

static int pin(struct importer *importer)
{
	int err = dma_buf_pin(importer->attach);

	importer->pins += !err;
	return err;
}

/* --- Attaching. */

#ifdef HAVE_INVALIDATE_MAPPINGS
#define TOLD .invalidate_mappings = let_go
#else
#define TOLD .move_notify = let_go
#endif

static const struct dma_buf_attach_ops peer_ops = { .allow_peer2peer = true, TOLD };
static const struct dma_buf_attach_ops own_ops = { TOLD };
static const struct dma_buf_attach_ops deaf_ops = { .allow_peer2peer = true };

static struct dma_buf_attachment *attach_as(struct importer *importer, struct dma_buf *dmabuf)
{
	struct device *dev = &importer->edu->pdev->dev;

	switch (importer->way) {
	case EDU_STATIC:
		return dma_buf_attach(dmabuf, dev);
	case EDU_OWN:
		return dma_buf_dynamic_attach(dmabuf, dev, &own_ops, importer);
	case EDU_DEAF:
		return dma_buf_dynamic_attach(dmabuf, dev, &deaf_ops, importer);
	default:
		return dma_buf_dynamic_attach(dmabuf, dev, &peer_ops, importer);
	}
}

static int attach(struct importer *importer, unsigned long arg)
{
	struct dma_buf *dmabuf;

	if (importer->attach)
		return -EBUSY;
	dmabuf = dma_buf_get(arg >> 8);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	importer->way = arg & 0xff;
	importer->dmabuf = dmabuf; /* invalidation may come from here on */
	importer->attach = attach_as(importer, dmabuf);
	if (IS_ERR(importer->attach)) {
		int err = PTR_ERR(importer->attach);

		importer->attach = NULL;
		importer->dmabuf = NULL;
		dma_buf_put(dmabuf);
		return err;
	}
	return 0;
}

static void detach(struct importer *importer)
{
	struct dma_buf *dmabuf = importer->dmabuf;

	if (!importer->attach)
		return;
	dma_resv_lock(dmabuf->resv, NULL);
	importer->way = EDU_NEVER; /* no delayed work from here on */
	wait_idle(importer->edu);
	unmap(importer);
	for (; importer->pins; importer->pins--)
		dma_buf_unpin(importer->attach);
	signal_all(importer);
	dma_resv_unlock(dmabuf->resv);
	cancel_work_sync(&importer->unmap);
	dma_buf_detach(dmabuf, importer->attach);
	dma_buf_put(dmabuf);
}

/* --- The file. */

static int edu_open(struct inode *inode, struct file *file)
{
	struct edu *edu = container_of(file->private_data, struct edu, misc);
	struct importer *importer = kzalloc(sizeof(*importer), GFP_KERNEL);

	if (!importer)
		return -ENOMEM;
	importer->edu = edu;
	mutex_init(&importer->lock);
	INIT_LIST_HEAD(&importer->fences);
	INIT_WORK(&importer->unmap, unmap_work);
	file->private_data = importer;
	return 0;
}

static int edu_release(struct inode *inode, struct file *file)
{
	struct importer *importer = file->private_data;

	detach(importer);
	kfree(importer);
	return 0;
}

union arg {
	struct edu_map map;
	struct edu_dma dma;
	struct edu_state state;
};

/* One call on an attached importer, under the resv. */
static int call_locked(struct importer *importer, unsigned int cmd, union arg *arg)
{
	switch (cmd) {
	case EDU_PIN:
		return pin(importer);
	case EDU_MAP:
		return map(importer, &arg->map);
	case EDU_START:
		return start(importer, &arg->dma);
	case EDU_UNMAP:
		wait_idle(importer->edu);
		unmap(importer);
		return 0;
	case EDU_FENCE:
		return fence_file(importer);
	case EDU_STATE:
		arg->state.out_told = importer->told;
		arg->state.out_mapped = !!importer->sgt;
		arg->state.out_busy = is_busy(importer->edu);
		return 0;
	default:
		return -ENOTTY;
	}
}

static size_t arg_size(unsigned int cmd)
{
	switch (cmd) {
	case EDU_MAP:
		return sizeof(struct edu_map);
	case EDU_START:
		return sizeof(struct edu_dma);
	case EDU_STATE:
		return sizeof(struct edu_state);
	default:
		return 0;
	}
}

static int edu_call(struct importer *importer, unsigned int cmd, void __user *user)
{
	size_t size = arg_size(cmd);
	union arg arg = {};
	int err;

	if (!importer->attach)
		return -ENXIO;
	if (copy_from_user(&arg, user, size))
		return -EFAULT;
	dma_resv_lock(importer->dmabuf->resv, NULL);
	err = call_locked(importer, cmd, &arg);
	dma_resv_unlock(importer->dmabuf->resv);
	if (copy_to_user(user, &arg, size))
		return -EFAULT;
	return err;
}

static long edu_ioctl(struct file *file, unsigned int cmd, unsigned long uarg)
{
	struct importer *importer = file->private_data;
	int err;

	if (cmd == EDU_WAIT) {
		wait_idle(importer->edu);
		return 0;
	}
	mutex_lock(&importer->lock);
	if (cmd == EDU_ATTACH)
		err = attach(importer, uarg);
	else
		err = edu_call(importer, cmd, (void __user *)uarg);
	mutex_unlock(&importer->lock);
	return err;
}

static const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.release = edu_release,
	.unlocked_ioctl = edu_ioctl,
};

/* --- The device. Tests do not remove it while a file of it is open. */

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	static unsigned int number;
	struct edu *edu = devm_kzalloc(&pdev->dev, sizeof(*edu), GFP_KERNEL);
	int err;

	if (!edu)
		return -ENOMEM;
	err = pcim_enable_device(pdev);
	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	edu->bar = pcim_iomap(pdev, 0, 0);
	if (!edu->bar)
		return -ENOMEM;
	dma_set_max_seg_size(&pdev->dev, segment);
	pci_set_master(pdev);
	edu->pdev = pdev;
	snprintf(edu->name, sizeof(edu->name), "edu%u", number++);
	edu->misc.minor = MISC_DYNAMIC_MINOR;
	edu->misc.name = edu->name;
	edu->misc.fops = &edu_fops;
	edu->misc.parent = &pdev->dev;
	pci_set_drvdata(pdev, edu);
	return misc_register(&edu->misc);
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu *edu = pci_get_drvdata(pdev);

	misc_deregister(&edu->misc);
	pci_clear_master(pdev);
}

static const struct pci_device_id edu_ids[] = { { PCI_DEVICE(0x1234, 0x11e8) }, {} };

static struct pci_driver edu_driver = {
	.name = "edu",
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
};

static int __init edu_init(void)
{
	int err;

	wq = alloc_workqueue("edu", WQ_UNBOUND, 0);
	if (!wq)
		return -ENOMEM;
	err = pci_register_driver(&edu_driver);
	if (err)
		destroy_workqueue(wq);
	return err;
}

/*
 * The kernel frees fences after a grace period and calls this module for their names: wait before
 * unloading.
 */
static void __exit edu_exit(void)
{
	pci_unregister_driver(&edu_driver);
	destroy_workqueue(wq);
	rcu_barrier();
}

module_init(edu_init);
module_exit(edu_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("QEMU's edu device as an importer of dma-bufs");
