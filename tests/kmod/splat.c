// SPDX-License-Identifier: GPL-2.0
/* Misbehaves on request, to test that the lab detects it: insmod splat.ko what=NAME */
#include <linux/module.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

static char *what = "";
module_param(what, charp, 0444);

static struct pci_dev *pdev;
static bool done;
static DECLARE_WAIT_QUEUE_HEAD(never);

static int splat_warn(void)
{
	WARN(1, "splat: as asked\n");
	return 0;
}

static int splat_oops(void)
{
	int *p = NULL;

	OPTIMIZER_HIDE_VAR(p);
	*p = 1;
	return 0;
}

/* Sleeps forever and ignores SIGKILL. init never returns, so the module cannot be unloaded. */
static int splat_hang(void)
{
	wait_event(never, READ_ONCE(done));
	return 0;
}

static int splat_leak(void)
{
	void *p;

	for (int i = 0; i < 16; i++) {
		p = kmalloc(3000, GFP_KERNEL);
		OPTIMIZER_HIDE_VAR(p);
	}
	return 0;
}

static int splat_reference(void)
{
	__module_get(THIS_MODULE);
	return 0;
}

/* Leaks one page of the emulated GPU's memory. */
static int splat_p2pmem(void)
{
	int err;

	pdev = pci_get_device(0x1af4, 0x1110, NULL);
	if (!pdev)
		return -ENODEV;
	err = pci_p2pdma_add_resource(pdev, 2, SZ_4M, 0);
	if (err)
		return err;
	return pci_alloc_p2pmem(pdev, PAGE_SIZE) ? 0 : -ENOMEM;
}

/* Takes two locks in both orders, one after the other: only lockdep reports it. */
static int splat_locks(void)
{
	static DEFINE_SPINLOCK(a);
	static DEFINE_SPINLOCK(b);

	spin_lock(&a);
	spin_lock(&b);
	spin_unlock(&b);
	spin_unlock(&a);
	spin_lock(&b);
	spin_lock(&a);
	spin_unlock(&a);
	spin_unlock(&b);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(void);
} splats[] = {
	{ "warn", splat_warn },	    { "oops", splat_oops },   { "hang", splat_hang },
	{ "leak", splat_leak },	    { "locks", splat_locks }, { "reference", splat_reference },
	{ "p2pmem", splat_p2pmem },
};

static int __init splat_init(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(splats); i++)
		if (!strcmp(what, splats[i].name))
			return splats[i].run();
	return -EINVAL;
}

static void __exit splat_exit(void)
{
	pci_dev_put(pdev);
}

module_init(splat_init);
module_exit(splat_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Misbehaves as told");
