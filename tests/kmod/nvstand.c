// SPDX-License-Identifier: GPL-2.0
/*
 * Stands in for NVIDIA's driver, on the lab's emulated memory BAR. It exports the functions that
 * peerdma_nvidia.ko calls. It follows the driver's documentation and published source, and behaves
 * as badly as these allow.
 *
 * Address ADDR_BASE + n of a process is byte n of BAR 2, or another byte with a different layout.
 * Pinned ranges are on a list, protected by rm_lock. Freeing memory (debugfs: free, with an
 * address) holds the lock while it calls back the importer. It then fills the memory with POISON,
 * as the next owner would, and overwrites and frees the table. Unpinning takes the lock too. In the
 * form with a callback, unpinning memory that was freed before is not an error. Unpinning from
 * another process is not an error either in that form: the driver searches the memory of the
 * current process, finds nothing, returns 0 and keeps the memory pinned. When the device is
 * removed, ranges pinned in that form are freed.
 *
 * debugfs: wrong counts calls that must not happen; for the cost of the last callback see watch.h.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "nvstand.h"
#include "watch.h"

#define ADDR_BASE 0x7f0000000000ULL
#define BAR 2
#define PUBLISHED SZ_16M /* of the BAR; creating all pages of a large one takes long */
#define CHUNK 65536ULL
#define POISON 0xdd

/* Fields of the table. */
static uint version = 0x00010002;
module_param(version, uint, 0644);
static uint flags;
module_param(flags, uint, 0644);
static uint size_code = 1; /* 64 KiB */
module_param(size_code, uint, 0644);
static bool fewer; /* one entry too few */
module_param(fewer, bool, 0644);

/* The location of the memory. */
enum layout {
	LINEAR,
	SCATTERED,
	NO_BAR, /* its last chunk is host memory */
	TWICE, /* its last chunk is the first one again */
	BEYOND, /* its last chunk is in the BAR, but not published */
};

static uint layout;
module_param(layout, uint, 0644);

/* An errno for each form; pinning fails with it. */
static int refuse;
module_param(refuse, int, 0644);
static int refuse_persistent;
module_param(refuse_persistent, int, 0644);

/* The memory is freed: 1: before get_pages() returns, which waits for it; 2: while it returns. */
static uint early;
module_param(early, uint, 0644);

static bool stays; /* keep pinning memory of a GPU after its driver was unbound */
module_param(stays, bool, 0644);

static bool owned; /* the first page carries nvidia-uvm's mark of an allocated page */
module_param(owned, bool, 0644);

static uint no_memory; /* number of times that unpinning fails */
module_param(no_memory, uint, 0644);

static int put_error; /* an errno that unpinning without a callback returns after it unpinned */
module_param(put_error, int, 0644);

static uint lag; /* ms that unpinning takes */
module_param(lag, uint, 0644);

static uint map_lag; /* ms that mapping memory takes before it wants rm_lock */
module_param(map_lag, uint, 0644);

static bool publish = true; /* as nvidia-uvm can */
module_param(publish, bool, 0444);
static bool write_combined;
module_param(write_combined, bool, 0444);

struct given {
	struct list_head link;
	u64 addr, len;
	void (*call)(void *data);
	void *data;
	pid_t tgid; /* the process that pinned it */
	bool owned;
	struct nvidia_p2p_page_table table;
	struct nvidia_p2p_page pages[];
};

static DEFINE_MUTEX(rm_lock); /* protects all of these */
static LIST_HEAD(list);
static struct pci_dev *gpu;
static void __iomem *memory;
static struct task_struct *caller;
static void (*last_call)(void *data);
static void *last_data;

static atomic_t given = ATOMIC_INIT(0); /* currently pinned */
static atomic_t calls = ATOMIC_INIT(0); /* completed callbacks */
static atomic_t late = ATOMIC_INIT(0); /* unpinned after the memory was freed */
static atomic_t strangers = ATOMIC_INIT(0); /* unpinned by another process, without effect */
static atomic_t wrong = ATOMIC_INIT(0);
static struct dentry *folder;

static void must_not(const char *what)
{
	pr_info("nvstand: wrong: %s\n", what);
	atomic_inc(&wrong);
}

static struct page *page_at(u64 addr)
{
	return pfn_to_page(PHYS_PFN(pci_resource_start(gpu, BAR) + addr - ADDR_BASE));
}

/* @n: distance of the last chunk from the first one, 0 for other chunks */
static u64 chunk_of(u64 index, u64 n)
{
	return layout == SCATTERED ? index ^ 5 : layout == TWICE ? index - n : index;
}

static u64 place(u64 addr, u64 n, bool is_last)
{
	u64 chunk = chunk_of((addr - ADDR_BASE) / CHUNK + n, is_last ? n : 0);

	if (layout == NO_BAR && is_last)
		return CHUNK;
	if (layout == BEYOND && is_last)
		chunk = PUBLISHED / CHUNK;
	return pci_resource_start(gpu, BAR) + chunk * CHUNK;
}

static struct given *give(u64 addr, u64 len)
{
	u64 i, n = len / CHUNK;
	struct given *made = kzalloc(struct_size(made, pages, n), GFP_KERNEL);

	if (!made)
		return NULL;
	made->addr = addr;
	made->len = len;
	made->table.version = version;
	made->table.flags = flags;
	made->table.page_size = size_code;
	made->table.entries = n - fewer;
	made->table.pages = kcalloc(n, sizeof(*made->table.pages), GFP_KERNEL);
	if (!made->table.pages) {
		kfree(made);
		return NULL;
	}
	for (i = 0; i < n; i++) {
		made->pages[i].physical_address = place(addr, i, i == n - 1);
		made->table.pages[i] = &made->pages[i];
	}
	made->owned = owned;
	if (owned)
		page_at(addr)->zone_device_data = made;
	list_add_tail(&made->link, &list);
	atomic_inc(&given);
	return made;
}

/* Overwrites the table before freeing it: a late reader gets garbage. */
static void ungive(struct given *gone)
{
	if (gone->owned)
		page_at(gone->addr)->zone_device_data = NULL;
	memset(gone->table.pages, 0x6b, gone->len / CHUNK * sizeof(*gone->table.pages));
	kfree(gone->table.pages);
	memset(gone, 0x6b, struct_size(gone, pages, gone->len / CHUNK));
	kfree(gone);
	atomic_dec(&given);
}

/* Overwrites the memory with the bytes of its next owner. */
static void spoil(const struct given *gone)
{
	const u64 start = pci_resource_start(gpu, BAR);
	u64 i, at;

	for (i = 0; i < gone->len / CHUNK; i++) {
		at = gone->pages[i].physical_address;
		if (at >= start && at - start < PUBLISHED)
			memset_io(memory + (at - start), POISON, CHUNK);
	}
	(void)ioread32(memory); /* flushes posted writes */
}

/* Calls the importer back, then reuses the memory. */
static void take_back(struct given *one)
{
	struct watch watch;

	list_del(&one->link);
	last_call = one->call;
	last_data = one->data;
	caller = current;
	watch = watch_begin();
	one->call(one->data);
	watch_end(&watch);
	caller = NULL;
	atomic_inc(&calls);
	spoil(one);
	ungive(one);
}

/* cudaFree(), or the end of the process. */
static int free_at(u64 addr)
{
	struct given *one, *next;
	int n = 0;

	mutex_lock(&rm_lock);
	list_for_each_entry_safe(one, next, &list, link) {
		if (addr < one->addr || addr - one->addr >= one->len || !one->call)
			continue;
		take_back(one);
		n++;
	}
	mutex_unlock(&rm_lock);
	return n;
}

struct freeing {
	u64 addr;
	struct completion done;
	bool waited_for;
};

static int free_thread(void *data)
{
	struct freeing *freeing = data;

	free_at(freeing->addr);
	if (freeing->waited_for)
		complete(&freeing->done);
	else
		kfree(freeing);
	return 0;
}

static void free_early(u64 addr)
{
	struct freeing *freeing = kzalloc(sizeof(*freeing), GFP_KERNEL);
	struct task_struct *task;

	if (!freeing)
		return;
	freeing->addr = addr;
	freeing->waited_for = early == 1;
	init_completion(&freeing->done);
	task = kthread_run(free_thread, freeing, "nvstand_free");
	if (IS_ERR(task)) {
		kfree(freeing);
	} else if (early == 1) {
		wait_for_completion(&freeing->done);
		kfree(freeing);
	}
}

static int get(u64 addr, u64 len, struct nvidia_p2p_page_table **table, int error,
	       void (*call)(void *data), void *data)
{
	struct given *made = NULL;

	if ((addr | len) % CHUNK || !len)
		must_not("addresses that are not aligned");
	if (error)
		return error;
	mutex_lock(&rm_lock);
	if (gpu && addr >= ADDR_BASE && len <= PUBLISHED && addr - ADDR_BASE <= PUBLISHED - len) {
		made = give(addr, len);
		if (made) {
			made->call = call;
			made->data = data;
			made->tgid = current->tgid;
			*table = &made->table;
		}
	}
	mutex_unlock(&rm_lock);
	if (!made)
		return -EINVAL;
	if (call && early)
		free_early(addr);
	return 0;
}

static int put(u64 addr, struct nvidia_p2p_page_table *table, bool calls_back)
{
	struct given *one, *found = NULL;

	if (READ_ONCE(caller) == current) {
		must_not("given back inside the call");
		return -EDEADLK;
	}
	if (lag)
		msleep(lag);
	if (no_memory) {
		no_memory--;
		return -ENOMEM;
	}
	mutex_lock(&rm_lock);
	list_for_each_entry(one, &list, link) {
		if (&one->table == table && !one->call != calls_back)
			found = one;
	}
	if (found && found->addr != addr)
		must_not("given back another one's");
	if (found && calls_back && found->tgid != current->tgid) {
		atomic_inc(&strangers);
	} else if (found) {
		list_del(&found->link);
		ungive(found);
	} else if (calls_back) {
		atomic_inc(&late);
	} else {
		must_not("given back what was not given");
	}
	mutex_unlock(&rm_lock);
	if (calls_back)
		return 0;
	return found ? put_error : -EINVAL;
}

int nvidia_p2p_get_pages(u64 token, u32 space, u64 addr, u64 len,
			 struct nvidia_p2p_page_table **table, void (*call)(void *data), void *data)
{
	if (!call || !data || token || space)
		must_not("asked in a form that does not exist");
	return get(addr, len, table, refuse, call, data);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 token, u32 space, u64 addr, struct nvidia_p2p_page_table *table)
{
	return put(addr, table, true);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_get_pages_persistent(u64 addr, u64 len, struct nvidia_p2p_page_table **table,
				    u32 get_flags)
{
	return get(addr, len, table, refuse_persistent, NULL, NULL);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 addr, struct nvidia_p2p_page_table *table, u32 put_flags)
{
	return put(addr, table, false);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

static int set_free(void *data, u64 addr)
{
	return free_at(addr) ? 0 : -ENOENT;
}
DEFINE_DEBUGFS_ATTRIBUTE(free_fops, NULL, set_free, "%llu\n");

/* Repeats the last callback with its old argument, valid or not. */
static int set_again(void *data, u64 unused)
{
	if (!last_call)
		return -ENOENT;
	last_call(last_data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(again_fops, NULL, set_again, "%llu\n");

/*
 * Searches free pages as nvidia-uvm does, by reference count and mark. It must not find a page that
 * is in use.
 */
static int set_adopt(void *data, u64 addr)
{
	struct page *page;
	u64 i;

	if (addr < ADDR_BASE || addr - ADDR_BASE > PUBLISHED - CHUNK)
		return -EINVAL;
	mutex_lock(&rm_lock);
	for (i = 0; gpu && i < CHUNK; i += PAGE_SIZE) {
		page = page_at(addr + i);
		if (!page->zone_device_data && page_ref_count(page) == 1)
			must_not("nvidia-uvm may have a page that somebody else has");
	}
	mutex_unlock(&rm_lock);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(adopt_fops, NULL, set_adopt, "%llu\n");

/*
 * Mapping memory by the driver's node, which takes rm_lock under mmap_lock, as the driver does.
 * Nothing is mapped. -ENODEV: the lock was there. -EDEADLK: its holder did not release it in 3 s.
 */
static int node_mmap(struct file *file, struct vm_area_struct *vma)
{
	unsigned int tries;

	msleep(map_lag);
	for (tries = 0; !mutex_trylock(&rm_lock); tries++) {
		if (tries == 150)
			return -EDEADLK;
		msleep(20);
	}
	mutex_unlock(&rm_lock);
	return -ENODEV;
}

static const struct file_operations node_fops = {
	.owner = THIS_MODULE,
	.mmap = node_mmap,
};

static struct miscdevice node = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nvstand",
	.fops = &node_fops,
};

static int stand_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	const resource_size_t start = pci_resource_start(pdev, BAR);
	int err = pcim_enable_device(pdev);

	if (err)
		return err;
	memory = write_combined ? devm_ioremap_wc(&pdev->dev, start, PUBLISHED) :
				  devm_ioremap(&pdev->dev, start, PUBLISHED);
	if (!memory)
		return -ENOMEM;
	err = publish ? pci_p2pdma_add_resource(pdev, BAR, PUBLISHED, 0) : 0;
	if (!err)
		gpu = pdev;
	return err;
}

static void stand_remove(struct pci_dev *pdev)
{
	struct given *one, *next;

	mutex_lock(&rm_lock);
	list_for_each_entry_safe(one, next, &list, link) {
		if (!one->call)
			must_not("unbound with memory given out");
		else if (!stays)
			take_back(one);
	}
	gpu = stays ? pdev : NULL;
	mutex_unlock(&rm_lock);
}

/* Bound by driver_override only. */
static const struct pci_device_id stand_ids[] = { {} };

static struct pci_driver stand_driver = {
	.name = "nvstand",
	.id_table = stand_ids,
	.probe = stand_probe,
	.remove = stand_remove,
};

static int __init stand_init(void)
{
	int err = misc_register(&node);

	if (err)
		return err;
	folder = debugfs_create_dir("nvstand", NULL);
	debugfs_create_file("free", 0200, folder, NULL, &free_fops);
	debugfs_create_file("again", 0200, folder, NULL, &again_fops);
	debugfs_create_file("adopt", 0200, folder, NULL, &adopt_fops);
	debugfs_create_atomic_t("given", 0444, folder, &given);
	debugfs_create_atomic_t("calls", 0444, folder, &calls);
	debugfs_create_atomic_t("late", 0444, folder, &late);
	watch_show(folder);
	debugfs_create_atomic_t("strangers", 0444, folder, &strangers);
	debugfs_create_atomic_t("wrong", 0444, folder, &wrong);
	err = pci_register_driver(&stand_driver);
	if (err) {
		debugfs_remove(folder);
		misc_deregister(&node);
	}
	return err;
}

static void __exit stand_exit(void)
{
	pci_unregister_driver(&stand_driver);
	misc_deregister(&node);
	debugfs_remove(folder);
}

module_init(stand_init);
module_exit(stand_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stands in for NVIDIA's driver");
