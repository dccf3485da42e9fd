// SPDX-License-Identifier: GPL-2.0
/*
 * Copies memory by the DMA engine of an NVMe controller: a command writes the bytes of the source
 * to scratch blocks, another one reads them from there into the destination. The controller takes
 * any DMA address, of any length and alignment, as SGL descriptors.
 *
 * A command is of whole blocks. What the last block has besides comes from, and goes to, a page of
 * the engine's.
 */
#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/nvme.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "dmacard.h"

#define SLOTS 16 /* copies under way */
#define QUEUE_DEPTH (2 * SLOTS)
#define PIECES 512 /* descriptors of a command, without that of the rest of the last block */
#define CHUNK SZ_256K /* the most bytes of a command */
#define READY_TRIES 10000 /* of half a millisecond and more */
#define POLL_PRESENCE HZ /* while copies are under way */
/*
 * Polls without the function, after which its copies end: 5 to 6 s. A throttled drive of the lab
 * holds a command for some seconds. QEMU may still complete it after the function was pulled out,
 * into memory that its owner has been given back.
 */
#define ABSENT_POLLS 6

struct dmacard_queue {
	struct nvme_command *sq;
	struct nvme_completion *cq;
	dma_addr_t sq_dma, cq_dma;
	void __iomem *sq_doorbell, *cq_doorbell;
	u16 tail, head;
	bool phase;
};

struct dmacard_engine {
	struct pci_dev *pdev;
	struct dmacard_record *record;
	void __iomem *regs;
	u32 nsid, block, chunk; /* bytes of a block, and of a command */
	u64 scratch; /* the first of the namespace's last blocks, of SLOTS * chunk bytes */
	u16 control; /* of each command */
	void *rest; /* a page */
	dma_addr_t rest_dma;
	struct nvme_sgl_desc *sgls; /* PIECES + 1 of each slot */
	dma_addr_t sgls_dma;
	struct dmacard_queue admin, io;
	int irq;
	struct delayed_work presence; /* queued or running while copies are under way */

	spinlock_t lock; /* protects the I/O queue and everything below */
	struct dmacard_copy *copies[SLOTS];
	struct list_head waiting;
	bool ended; /* no command begins any more */
	unsigned int absent; /* how many polls in a row have not found the function */
	struct completion idle; /* then: none is under way */
};

/* --- Registers and queues */
static int wait_ready(struct dmacard_engine *engine, bool ready)
{
	unsigned int tries;

	for (tries = 0; tries < READY_TRIES; tries++) {
		const u32 status = readl(engine->regs + NVME_REG_CSTS);

		if (status == ~0U)
			return -ENODEV;
		if (!!(status & NVME_CSTS_RDY) == ready)
			return 0;
		usleep_range(500, 1000);
	}
	return -ETIMEDOUT;
}

static int queue_alloc(struct dmacard_engine *engine, struct dmacard_queue *queue, u32 number)
{
	const u32 stride = 4U << NVME_CAP_STRIDE(readq(engine->regs + NVME_REG_CAP));
	struct device *dev = &engine->pdev->dev;

	queue->sq = dmam_alloc_coherent(dev, QUEUE_DEPTH * sizeof(*queue->sq), &queue->sq_dma,
					GFP_KERNEL);
	queue->cq = dmam_alloc_coherent(dev, QUEUE_DEPTH * sizeof(*queue->cq), &queue->cq_dma,
					GFP_KERNEL);
	if (!queue->sq || !queue->cq)
		return -ENOMEM;
	queue->sq_doorbell = engine->regs + NVME_REG_DBS + 2 * number * stride;
	queue->cq_doorbell = queue->sq_doorbell + stride;
	queue->phase = true;
	return 0;
}

static void queue_send(struct dmacard_queue *queue, const struct nvme_command *command)
{
	queue->sq[queue->tail] = *command;
	queue->tail = (queue->tail + 1) % QUEUE_DEPTH;
	writel(queue->tail, queue->sq_doorbell);
}

/* Whether a command has ended: its number and status. */
static bool queue_next(struct dmacard_queue *queue, u16 *id, u16 *status)
{
	const struct nvme_completion *cqe = &queue->cq[queue->head];
	const u16 now = le16_to_cpu(READ_ONCE(cqe->status));

	if ((now & 1) != queue->phase)
		return false;
	dma_rmb();
	*id = cqe->command_id;
	*status = now >> 1;
	if (++queue->head == QUEUE_DEPTH) {
		queue->head = 0;
		queue->phase = !queue->phase;
	}
	return true;
}

/* While the function is set up, by one task, without an interrupt. */
static int admin(struct dmacard_engine *engine, struct nvme_command *command)
{
	unsigned int tries;
	u16 id, status;

	command->common.command_id = 1;
	queue_send(&engine->admin, command);
	for (tries = 0; tries < READY_TRIES; tries++) {
		if (queue_next(&engine->admin, &id, &status)) {
			writel(engine->admin.head, engine->admin.cq_doorbell);
			return status ? -EIO : 0;
		}
		usleep_range(500, 1000);
	}
	return -ETIMEDOUT;
}

static int identify(struct dmacard_engine *engine, u8 what, u32 nsid)
{
	struct nvme_command command = {
		.identify = {
			.opcode = nvme_admin_identify,
			.nsid = cpu_to_le32(nsid),
			.dptr.prp1 = cpu_to_le64(engine->rest_dma),
			.cns = what,
		},
	};

	return admin(engine, &command);
}

static int create_io_queue(struct dmacard_engine *engine)
{
	struct nvme_command cq = {
		.create_cq = {
			.opcode = nvme_admin_create_cq,
			.prp1 = cpu_to_le64(engine->io.cq_dma),
			.cqid = cpu_to_le16(1),
			.qsize = cpu_to_le16(QUEUE_DEPTH - 1),
			.cq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG | NVME_CQ_IRQ_ENABLED),
		},
	};
	struct nvme_command sq = {
		.create_sq = {
			.opcode = nvme_admin_create_sq,
			.prp1 = cpu_to_le64(engine->io.sq_dma),
			.sqid = cpu_to_le16(1),
			.qsize = cpu_to_le16(QUEUE_DEPTH - 1),
			.sq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG),
			.cqid = cpu_to_le16(1),
		},
	};

	return admin(engine, &cq) ?: admin(engine, &sq);
}

static int reset(struct dmacard_engine *engine)
{
	writel(0, engine->regs + NVME_REG_CC);
	return wait_ready(engine, false);
}

/* --- Copies. With the lock held: */
static const struct dmacard_piece *cursor_skip(struct dmacard_cursor *left)
{
	while (left->at == left->piece->len) {
		left->piece++;
		left->at = 0;
	}
	return left->piece;
}

/* How many bytes, at most `bytes`, the next PIECES pieces have. */
static u32 cursor_reach(struct dmacard_cursor left, u32 bytes)
{
	unsigned int nr;
	u32 reach = 0;

	for (nr = 0; nr < PIECES && reach < bytes; nr++) {
		reach += min_t(u64, cursor_skip(&left)->len - left.at, bytes - reach);
		left.at = left.piece->len;
	}
	return reach;
}

/* Describes the next bytes, and moves behind them. Returns how many descriptors it takes. */
static unsigned int cursor_take(struct dmacard_cursor *left, u32 bytes, struct nvme_sgl_desc *sgl)
{
	unsigned int nr;

	for (nr = 0; bytes; nr++) {
		const struct dmacard_piece *piece = cursor_skip(left);
		const u32 here = min_t(u64, piece->len - left->at, bytes);

		sgl[nr] = (struct nvme_sgl_desc){
			.addr = cpu_to_le64(piece->addr + left->at),
			.length = cpu_to_le32(here),
			.type = NVME_SGL_FMT_DATA_DESC << 4,
		};
		left->at += here;
		bytes -= here;
	}
	return nr;
}

static void record(struct dmacard_engine *engine, const struct nvme_sgl_desc *sgl, unsigned int nr,
		   bool is_write)
{
	for (; nr; sgl++, nr--)
		dmacard_record_add(engine->record, &(struct dmacard_dma){
							   .addr = le64_to_cpu(sgl->addr),
							   .len = le32_to_cpu(sgl->length),
							   .is_write = is_write,
						   });
}

static void send_command(struct dmacard_engine *engine, unsigned int slot)
{
	struct dmacard_copy *copy = engine->copies[slot];
	const u32 blocks = DIV_ROUND_UP(copy->now, engine->block);
	const u32 rest = blocks * engine->block - copy->now;
	const dma_addr_t sgl_dma =
		engine->sgls_dma + slot * (PIECES + 1) * sizeof(struct nvme_sgl_desc);
	struct nvme_sgl_desc *sgl = engine->sgls + slot * (PIECES + 1);
	struct nvme_command command = {
		.rw = {
			.opcode = copy->reads ? nvme_cmd_read : nvme_cmd_write,
			.flags = NVME_CMD_SGL_METABUF,
			.command_id = slot,
			.nsid = cpu_to_le32(engine->nsid),
			.slba = cpu_to_le64(engine->scratch +
					    slot * (engine->chunk / engine->block)),
			.length = cpu_to_le16(blocks - 1),
			.control = cpu_to_le16(engine->control),
		},
	};
	unsigned int nr;

	nr = cursor_take(copy->reads ? &copy->to_left : &copy->from_left, copy->now, sgl);
	if (rest)
		sgl[nr++] = (struct nvme_sgl_desc){
			.addr = cpu_to_le64(engine->rest_dma),
			.length = cpu_to_le32(rest),
			.type = NVME_SGL_FMT_DATA_DESC << 4,
		};
	command.rw.dptr.sgl = (struct nvme_sgl_desc){
		.addr = cpu_to_le64(sgl_dma),
		.length = cpu_to_le32(nr * sizeof(*sgl)),
		.type = NVME_SGL_FMT_LAST_SEG_DESC << 4,
	};
	record(engine, sgl, nr, copy->reads); /* a read command writes memory */
	queue_send(&engine->io, &command);
}

static void begin_chunk(struct dmacard_engine *engine, unsigned int slot)
{
	struct dmacard_copy *copy = engine->copies[slot];

	copy->reads = false;
	copy->now = min_t(u64, copy->left, engine->chunk);
	copy->now = cursor_reach(copy->from_left, copy->now);
	copy->now = cursor_reach(copy->to_left, copy->now);
	send_command(engine, slot);
}

static void begin_copies(struct dmacard_engine *engine)
{
	unsigned int slot;

	for (slot = 0; slot < SLOTS && !list_empty(&engine->waiting); slot++) {
		if (engine->copies[slot])
			continue;
		engine->copies[slot] =
			list_first_entry(&engine->waiting, struct dmacard_copy, list);
		list_del(&engine->copies[slot]->list);
		begin_chunk(engine, slot);
		schedule_delayed_work(&engine->presence, POLL_PRESENCE);
	}
}

/* A command has ended. Returns the copy if that has ended too. */
static struct dmacard_copy *command_ended(struct dmacard_engine *engine, unsigned int slot,
					  bool failed)
{
	struct dmacard_copy *copy = engine->copies[slot];

	if (!failed && copy->reads)
		copy->left -= copy->now;
	if (failed || !copy->left || engine->ended) {
		engine->copies[slot] = NULL;
		return copy;
	}
	if (copy->reads) {
		begin_chunk(engine, slot);
	} else {
		copy->reads = true;
		send_command(engine, slot);
	}
	return NULL;
}

static bool is_idle(struct dmacard_engine *engine)
{
	return !memchr_inv(engine->copies, 0, sizeof(engine->copies));
}

/* Moves all copies to the list. */
static void take_copies(struct dmacard_engine *engine, struct list_head *ended)
{
	unsigned int slot;

	list_splice_init(&engine->waiting, ended);
	for (slot = 0; slot < SLOTS; slot++) {
		if (!engine->copies[slot])
			continue;
		list_add_tail(&engine->copies[slot]->list, ended);
		engine->copies[slot] = NULL;
	}
}

/* Without the lock. @error: for copies with bytes left */
static void end_copies(struct list_head *ended, int error)
{
	struct dmacard_copy *copy, *next;

	list_for_each_entry_safe(copy, next, ended, list) {
		list_del(&copy->list);
		copy->done(copy, copy->left ? error : 0);
	}
}

static irqreturn_t completions(int irq, void *data)
{
	struct dmacard_engine *engine = data;
	struct dmacard_copy *copy;
	bool any = false;
	LIST_HEAD(ended);
	u16 slot, status;
	int error;

	spin_lock(&engine->lock);
	while (queue_next(&engine->io, &slot, &status)) {
		any = true;
		copy = slot < SLOTS && engine->copies[slot] ? command_ended(engine, slot, status) :
							      NULL;
		if (copy)
			list_add_tail(&copy->list, &ended);
	}
	if (any) {
		writel(engine->io.head, engine->io.cq_doorbell);
		if (!engine->ended)
			begin_copies(engine);
	}
	error = engine->ended ? -ENODEV : -EIO;
	if (engine->ended && is_idle(engine))
		complete(&engine->idle);
	spin_unlock(&engine->lock);
	end_copies(&ended, error);
	return any ? IRQ_HANDLED : IRQ_NONE;
}

/*
 * A function that is pulled out completes no command and sends no interrupt. Its copies end after
 * ABSENT_POLLS: QEMU first completes what it has begun, and may crash if the driver resets the
 * function before.
 */
static void poll_presence(struct work_struct *work)
{
	struct dmacard_engine *engine =
		container_of(to_delayed_work(work), struct dmacard_engine, presence);
	const bool absent = !pci_device_is_present(engine->pdev);
	LIST_HEAD(ended);

	spin_lock_irq(&engine->lock);
	engine->absent = absent ? engine->absent + 1 : 0;
	if (engine->absent >= ABSENT_POLLS) {
		engine->ended = true;
		take_copies(engine, &ended);
		complete(&engine->idle);
	}
	if (!is_idle(engine))
		schedule_delayed_work(&engine->presence, POLL_PRESENCE);
	spin_unlock_irq(&engine->lock);
	end_copies(&ended, -ENODEV);
}

void dmacard_engine_submit(struct dmacard_engine *engine, struct dmacard_copy *copy)
{
	unsigned long flags;
	bool ended;

	copy->from_left = (struct dmacard_cursor){ .piece = copy->from };
	copy->to_left = (struct dmacard_cursor){ .piece = copy->to };
	copy->left = copy->bytes;
	spin_lock_irqsave(&engine->lock, flags);
	ended = engine->ended;
	if (!ended) {
		list_add_tail(&copy->list, &engine->waiting);
		begin_copies(engine);
	}
	spin_unlock_irqrestore(&engine->lock, flags);
	if (ended)
		copy->done(copy, -ENODEV);
}

/* --- The whole */
static int read_limits(struct dmacard_engine *engine)
{
	const struct nvme_id_ctrl *ctrl = engine->rest;
	const struct nvme_id_ns *ns = engine->rest;
	u64 blocks;
	int err;

	engine->nsid = 1;
	err = identify(engine, NVME_ID_CNS_CTRL, 0);
	if (err)
		return err;
	if (!(le32_to_cpu(ctrl->sgls) & 3))
		return dev_err_probe(&engine->pdev->dev, -EOPNOTSUPP, "takes no SGLs\n");
	engine->chunk = ctrl->mdts ? min_t(u64, CHUNK, 4096ULL << ctrl->mdts) : CHUNK;
	err = identify(engine, NVME_ID_CNS_NS, engine->nsid);
	if (err)
		return err;
	engine->block = 1U << ns->lbaf[nvme_lbaf_index(ns->flbas)].ds;
	/* The drive makes the checksums of its blocks, and takes them off again. */
	if (ns->dps & NVME_NS_DPS_PI_MASK)
		engine->control = NVME_RW_PRINFO_PRACT;
	blocks = le64_to_cpu(ns->nsze);
	if (engine->block < 512 || engine->block > PAGE_SIZE ||
	    blocks * engine->block < (u64)SLOTS * engine->chunk)
		return dev_err_probe(&engine->pdev->dev, -ENOSPC,
				     "expected a namespace of %u bytes and more\n",
				     SLOTS * engine->chunk);
	engine->scratch = blocks - SLOTS * (engine->chunk / engine->block);
	return 0;
}

struct dmacard_engine *dmacard_engine_new(struct pci_dev *pdev, struct dmacard_record *record)
{
	struct device *dev = &pdev->dev;
	struct dmacard_engine *engine;
	int err;

	engine = devm_kzalloc(dev, sizeof(*engine), GFP_KERNEL);
	if (!engine)
		return ERR_PTR(-ENOMEM);
	engine->pdev = pdev;
	engine->record = record;
	spin_lock_init(&engine->lock);
	INIT_LIST_HEAD(&engine->waiting);
	init_completion(&engine->idle);
	INIT_DELAYED_WORK(&engine->presence, poll_presence);
	engine->regs = pcim_iomap(pdev, 0, 0);
	engine->rest = dmam_alloc_coherent(dev, PAGE_SIZE, &engine->rest_dma, GFP_KERNEL);
	engine->sgls = dmam_alloc_coherent(dev, SLOTS * (PIECES + 1) * sizeof(*engine->sgls),
					   &engine->sgls_dma, GFP_KERNEL);
	if (!engine->regs || !engine->rest || !engine->sgls)
		return ERR_PTR(-ENOMEM);
	err = reset(engine)				     ?:
		      queue_alloc(engine, &engine->admin, 0) ?:
							       queue_alloc(engine, &engine->io, 1);
	if (err)
		return ERR_PTR(err);
	writel((QUEUE_DEPTH - 1) << 16 | (QUEUE_DEPTH - 1), engine->regs + NVME_REG_AQA);
	writeq(engine->admin.sq_dma, engine->regs + NVME_REG_ASQ);
	writeq(engine->admin.cq_dma, engine->regs + NVME_REG_ACQ);
	pci_set_master(pdev);
	writel(NVME_CC_ENABLE | NVME_CC_IOSQES | NVME_CC_IOCQES, engine->regs + NVME_REG_CC);
	err = wait_ready(engine, true) ?: read_limits(engine);
	if (err)
		goto err_enabled;
	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX | PCI_IRQ_MSI);
	if (err < 0)
		goto err_enabled;
	engine->irq = pci_irq_vector(pdev, 0);
	err = request_irq(engine->irq, completions, 0, "dmacard", engine);
	if (err)
		goto err_vectors;
	err = create_io_queue(engine);
	if (err)
		goto err_irq;
	return engine;

err_irq:
	free_irq(engine->irq, engine);
err_vectors:
	pci_free_irq_vectors(pdev);
err_enabled:
	reset(engine);
	pci_clear_master(pdev);
	return ERR_PTR(err);
}

void dmacard_engine_end(struct dmacard_engine *engine)
{
	LIST_HEAD(ended);
	bool idle;

	spin_lock_irq(&engine->lock);
	engine->ended = true;
	idle = is_idle(engine);
	spin_unlock_irq(&engine->lock);
	/*
	 * QEMU may crash if a command completes after a reset has freed its queues. A removed
	 * function completes none. A throttled drive takes seconds.
	 */
	if (!idle && pci_device_is_present(engine->pdev) &&
	    !wait_for_completion_timeout(&engine->idle, 60 * HZ))
		dev_warn(&engine->pdev->dev, "reset with commands under way\n");
	/* Not earlier: it ends that wait if the function is pulled out meanwhile. */
	cancel_delayed_work_sync(&engine->presence);
	free_irq(engine->irq, engine);
	/* Without bus mastering a function that does not become idle in time begins no DMA. */
	reset(engine);
	pci_clear_master(engine->pdev);
	pci_free_irq_vectors(engine->pdev);
	spin_lock_irq(&engine->lock);
	take_copies(engine, &ended);
	spin_unlock_irq(&engine->lock);
	end_copies(&ended, -ENODEV);
}
