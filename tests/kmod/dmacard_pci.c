// SPDX-License-Identifier: GPL-2.0
/*
 * The PCI function of dmacard (dmacard.h), bound by driver_override only.
 *
 * debugfs, in the folder dmacard-FUNCTION:
 * copy    what is written to it moves bytes between 2 MiB of host memory, from AT on, and the BAR
 *         of another function, by its physical address: "to ADDRESS AT BYTES PIECE" or "from ...".
 *         The host's side is a list of pieces of PIECE bytes.
 * record  what the function was told to access: "read ADDRESS BYTES" or "write ...", decimal. A
 *         write to it empties it.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "dmacard.h"
#include "dmacard_rdma.h"

#define MEMORY SZ_2M

struct card {
	struct pci_dev *pdev;
	struct dmacard_engine *engine;
	struct dmacard_rdma *rdma;
	struct dmacard_record *record;
	struct dentry *folder;
	dma_addr_t memory;
};

/* Of a copy that a task waits for. */
struct waited {
	struct dmacard_copy copy;
	struct completion done;
	int error;
};

static void waited_done(struct dmacard_copy *copy, int error)
{
	struct waited *waited = container_of(copy, struct waited, copy);

	waited->error = error;
	complete(&waited->done);
}

static int copy_and_wait(struct card *card, const struct dmacard_piece *from,
			 const struct dmacard_piece *to, u64 bytes)
{
	struct waited waited = {
		.copy = { .from = from, .to = to, .bytes = bytes, .done = waited_done },
		.done = COMPLETION_INITIALIZER_ONSTACK(waited.done),
	};

	dmacard_engine_submit(card->engine, &waited.copy);
	wait_for_completion(&waited.done);
	return waited.error;
}

static struct dmacard_piece *pieces_of(dma_addr_t addr, u64 bytes, u64 piece)
{
	const u64 nr = DIV_ROUND_UP_ULL(bytes, piece);
	struct dmacard_piece *pieces = kvmalloc_array(nr, sizeof(*pieces), GFP_KERNEL);
	u64 i;

	for (i = 0; pieces && i < nr; i++)
		pieces[i] = (struct dmacard_piece){
			.addr = addr + i * piece,
			.len = min(piece, bytes - i * piece),
		};
	return pieces;
}

static ssize_t copy_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct card *card = file->private_data;
	struct device *dev = &card->pdev->dev;
	struct dmacard_piece bar, *pieces;
	u64 address, at, bytes, piece, pages;
	char text[128], way[8];
	dma_addr_t mapped;
	int err;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, len))
		return -EFAULT;
	text[len] = '\0';
	if (sscanf(text, "%7s %llx %llu %llu %llu", way, &address, &at, &bytes, &piece) != 5 ||
	    !bytes || !piece || at > MEMORY || bytes > MEMORY - at)
		return -EINVAL;
	pages = PAGE_ALIGN(offset_in_page(address) + bytes);
	mapped = dma_map_resource(dev, address & PAGE_MASK, pages, DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(dev, mapped))
		return -EIO;
	bar = (struct dmacard_piece){ .addr = mapped + offset_in_page(address), .len = bytes };
	pieces = pieces_of(card->memory + at, bytes, piece);
	if (!pieces)
		err = -ENOMEM;
	else if (!strcmp(way, "to"))
		err = copy_and_wait(card, pieces, &bar, bytes);
	else
		err = copy_and_wait(card, &bar, pieces, bytes);
	kvfree(pieces);
	dma_unmap_resource(dev, mapped, pages, DMA_BIDIRECTIONAL, 0);
	return err ?: len;
}

static const struct file_operations copy_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = copy_write,
};

static int record_show(struct seq_file *seq, void *unused)
{
	struct card *card = seq->private;
	struct dmacard_dma dma;
	u64 index, lost;

	for (index = 0; dmacard_record_get(card->record, index, &dma); index++)
		seq_printf(seq, "%s %llu %u\n", dma.is_write ? "write" : "read", dma.addr, dma.len);
	lost = dmacard_record_lost(card->record);
	if (lost)
		seq_printf(seq, "lost %llu\n", lost);
	return 0;
}

static int record_open(struct inode *inode, struct file *file)
{
	return single_open(file, record_show, inode->i_private);
}

static ssize_t record_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct card *card = ((struct seq_file *)file->private_data)->private;

	dmacard_record_clear(card->record);
	return len;
}

static const struct file_operations record_fops = {
	.owner = THIS_MODULE,
	.open = record_open,
	.read = seq_read,
	.write = record_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static void files_create(struct card *card)
{
	char name[64];

	snprintf(name, sizeof(name), "dmacard-%s", pci_name(card->pdev));
	card->folder = debugfs_create_dir(name, NULL);
	debugfs_create_file("copy", 0200, card->folder, card, &copy_fops);
	debugfs_create_file("record", 0600, card->folder, card, &record_fops);
}

static int card_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct card *card = devm_kzalloc(&pdev->dev, sizeof(*card), GFP_KERNEL);
	int err = card ? pcim_enable_device(pdev) : -ENOMEM;

	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	card->pdev = pdev;
	if (!dmam_alloc_coherent(&pdev->dev, MEMORY, &card->memory, GFP_KERNEL))
		return -ENOMEM;
	card->record = dmacard_record_new();
	if (!card->record)
		return -ENOMEM;
	card->engine = dmacard_engine_new(pdev, card->record);
	if (IS_ERR(card->engine)) {
		err = PTR_ERR(card->engine);
		goto err_record;
	}
	card->rdma = dmacard_rdma_new(pdev, card->engine);
	if (IS_ERR(card->rdma)) {
		err = PTR_ERR(card->rdma);
		goto err_engine;
	}
	pci_set_drvdata(pdev, card);
	files_create(card);
	return 0;

err_engine:
	dmacard_engine_end(card->engine);
err_record:
	dmacard_record_end(card->record);
	return err;
}

static void card_remove(struct pci_dev *pdev)
{
	struct card *card = pci_get_drvdata(pdev);
	const bool is_present = pci_device_is_present(pdev);

	/*
	 * A function that was pulled out ends no copy, and dmacard_rdma_end() waits for them. If it
	 * is pulled out during that wait, the engine ends them.
	 */
	if (!is_present)
		dmacard_engine_end(card->engine);
	dmacard_rdma_end(card->rdma);
	/* Before the file, which goes when nobody waits for a copy. */
	if (is_present)
		dmacard_engine_end(card->engine);
	debugfs_remove(card->folder);
	dmacard_record_end(card->record);
}

static const struct pci_device_id card_ids[] = { {} };

static struct pci_driver card_driver = {
	.name = "dmacard",
	.id_table = card_ids,
	.probe = card_probe,
	.remove = card_remove,
};
module_pci_driver(card_driver);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Copies by the DMA engine of an emulated PCI function");
