// SPDX-License-Identifier: GPL-2.0
/*
 * Clients: the functions that dma-bufs are attached with.
 */
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <uapi/peerdma.h>

#include "base/dma.h"
#include "memory/consumer.h"
#include "memory/import.h"
#include "memory/pin.h"

/**
 * struct import_client - a function that imports are attached with, until its driver is unbound
 * @consumer: ends the imports
 * @pdev: referenced; immutable
 * @link: in the list of clients
 * @imports: those that are proven and have not ended
 * @ending: its driver is being unbound: no import may join
 * @free: frees it after the end
 *
 * Created under the device lock. @link, @imports and @ending are protected by imports_mutex.
 */
struct import_client {
	struct peerdma_consumer consumer;
	struct pci_dev *pdev;
	struct list_head link;
	struct list_head imports;
	bool ending;
	struct work_struct free;
};

static LIST_HEAD(import_clients);
static DEFINE_MUTEX(imports_mutex); /* protects import_clients, and the imports of each */
static struct workqueue_struct *import_client_wq;

/* The caller holds the device lock: the driver and the IOMMU domain stay. */
static u32 import_client_reason(struct pci_dev *client)
{
	if (!client->dev.driver)
		return PEERDMA_REASON_IMPORT_DEVICE;
	return peerdma_dma_is_translated(&client->dev) ? PEERDMA_REASON_IMPORT_IOMMU :
							 PEERDMA_REASON_NONE;
}

/* Only tried: the lock's owner may be waiting for this thread. */
static bool import_client_lock(struct pci_dev *client)
{
	const unsigned long end = jiffies + PEERDMA_IMPORT_PATIENCE;

	while (!device_trylock(&client->dev)) {
		if (fatal_signal_pending(current) || time_after(jiffies, end))
			return false;
		schedule_timeout_killable(1);
	}
	return true;
}

/* Called before the exporter maps anything for the client. */
u32 peerdma_import_check_client(struct pci_dev *client)
{
	u32 reason;

	if (!import_client_lock(client))
		return PEERDMA_REASON_VENDOR_BUSY;
	reason = import_client_reason(client);
	device_unlock(&client->dev);
	return reason;
}

/* From here on unbinding the client ends the import. False if there is no such client. */
static bool import_client_join(struct peerdma_import *import)
{
	struct import_client *client;
	bool found = false;

	mutex_lock(&imports_mutex);
	list_for_each_entry(client, &import_clients, link) {
		if (client->pdev != import->client || client->ending)
			continue;
		list_add_tail(&import->link, &client->imports);
		found = true;
		break;
	}
	mutex_unlock(&imports_mutex);
	return found;
}

/* From here on unbinding the client does not end the import. */
void peerdma_import_leave(struct peerdma_import *import)
{
	mutex_lock(&imports_mutex);
	list_del_init(&import->link);
	mutex_unlock(&imports_mutex);
}

/* An import that has not ended, referenced; or NULL. */
static struct peerdma_import *import_client_take(struct import_client *client)
{
	struct peerdma_import *import;

	mutex_lock(&imports_mutex);
	client->ending = true;
	import = list_first_entry_or_null(&client->imports, struct peerdma_import, link);
	if (import) {
		refcount_inc(&import->pin.refs);
		list_del_init(&import->link);
	}
	mutex_unlock(&imports_mutex);
	return import;
}

/*
 * Called when the client's driver is unbound or this module is unloaded. Waits for the storage and
 * the exporters.
 */
static void import_client_end(struct peerdma_consumer *consumer)
{
	struct import_client *client = container_of(consumer, struct import_client, consumer);
	struct peerdma_import *import;

	while ((import = import_client_take(client))) {
		peerdma_pin_revoke_wait(&import->pin);
		wait_for_completion(&import->gone);
		peerdma_pin_put(&import->pin);
	}
	mutex_lock(&imports_mutex);
	list_del(&client->link);
	/* Under the mutex: an unload that finds no client drains this work. */
	queue_work(import_client_wq, &client->free);
	mutex_unlock(&imports_mutex);
}

/* In a work item, because a consumer cannot be removed by its own end. */
static void import_client_free(struct work_struct *work)
{
	struct import_client *client = container_of(work, struct import_client, free);

	peerdma_consumer_remove(&client->consumer);
	pci_dev_put(client->pdev);
	kfree(client);
}

/* The caller holds the device lock. */
static int import_client_create(struct pci_dev *pdev)
{
	static atomic_t last_id;
	struct import_client *client = kzalloc(sizeof(*client), GFP_KERNEL);
	int err;

	if (!client)
		return -ENOMEM;
	client->consumer.end = import_client_end;
	client->pdev = pci_dev_get(pdev);
	INIT_LIST_HEAD(&client->imports);
	INIT_WORK(&client->free, import_client_free);
	err = peerdma_consumer_add(&client->consumer, &pdev->dev, PEERDMA_CONSUMER_IMPORTER,
				   (u32)atomic_inc_return(&last_id) & INT_MAX);
	if (err) {
		pci_dev_put(pdev);
		kfree(client);
		return err;
	}
	mutex_lock(&imports_mutex);
	list_add_tail(&client->link, &import_clients);
	mutex_unlock(&imports_mutex);
	return 0;
}

/* The caller holds the client's device lock. */
static u32 import_client_prove(struct peerdma_import *import, struct page *page)
{
	u32 map, reason = import_client_reason(import->client);
	u64 addr;

	if (reason)
		return reason;
	if (peerdma_dma_trial_map(&import->client->dev, page, &map, &addr) || addr != import->addr)
		return PEERDMA_REASON_IMPORT_ADDRESS;
	if (import_client_join(import))
		return PEERDMA_REASON_NONE;
	if (import_client_create(import->client) == -ENOMEM)
		return PEERDMA_REASON_VENDOR_BUSY;
	return import_client_join(import) ? PEERDMA_REASON_NONE : PEERDMA_REASON_IMPORT_DEVICE;
}

/* The caller holds the device lock of the function that has the memory. */
u32 peerdma_import_prove(struct peerdma_pin *pin, struct pci_dev *pdev)
{
	struct peerdma_import *import = peerdma_import_of(pin);
	u32 reason;

	if (import->client == pdev)
		return PEERDMA_REASON_IMPORT_DEVICE;
	if (!import_client_lock(import->client))
		return PEERDMA_REASON_VENDOR_BUSY;
	reason = import_client_prove(import, pfn_to_page(PHYS_PFN(pin->chunk_addrs[0])));
	device_unlock(&import->client->dev);
	return reason;
}

int peerdma_imports_init(void)
{
	import_client_wq = alloc_workqueue("peerdma_import", WQ_UNBOUND, 0);
	return import_client_wq ? 0 : -ENOMEM;
}

/* The consumer of a client that has not ended, referenced; or NULL. */
static struct platform_device *import_client_any(void)
{
	struct platform_device *dev = NULL;
	struct import_client *client;

	mutex_lock(&imports_mutex);
	client = list_first_entry_or_null(&import_clients, struct import_client, link);
	if (client) {
		dev = client->consumer.dev;
		get_device(&dev->dev);
	}
	mutex_unlock(&imports_mutex);
	return dev;
}

/* No import is left. */
void peerdma_imports_exit(void)
{
	struct platform_device *dev;

	while ((dev = import_client_any())) {
		device_release_driver(&dev->dev);
		platform_device_put(dev);
	}
	destroy_workqueue(import_client_wq);
}
