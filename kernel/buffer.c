// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers by number, of one open file. A buffer can lose its memory at any moment, because its
 * provider goes away; what is left then answers -ENODEV until it is destroyed.
 */
#include <linux/capability.h>
#include <linux/slab.h>

#include "peerdma.h"
#include "trace.h"

/* NULL of NULL. */
static struct peerdma_buffer *to_buffer(struct peerdma_entry *entry)
{
	static_assert(!offsetof(struct peerdma_buffer, entry));
	return container_of(entry, struct peerdma_buffer, entry);
}

static void buffer_free(struct rcu_head *rcu)
{
	struct peerdma_buffer *buffer = container_of(rcu, struct peerdma_buffer, rcu);

	peerdma_gate_free(&buffer->gate);
	kfree(buffer);
}

void peerdma_buffer_put(struct peerdma_buffer *buffer)
{
	if (!refcount_dec_and_test(&buffer->refs))
		return;
	peerdma_exports_fini(buffer);
	peerdma_provider_put(buffer->provider);
	if (buffer->pin)
		peerdma_pin_drop(buffer->pin);
	call_rcu(&buffer->rcu, buffer_free);
}

/* What its open file has: one more, or less. */
static void count(struct peerdma_buffer *buffer, int n)
{
	atomic_add(n, &buffer->opener->buffers);
	atomic64_add((s64)buffer->mem->len * n, &buffer->opener->buffer_bytes);
}

/**
 * peerdma_buffer_revoke - take a buffer's memory away
 * @buffer: referenced by the caller
 *
 * Destroying, closing and unbinding may meet here. The first does it, all return when it is done:
 * new requests fail, those inside have ended, no process has it mapped, drivers that had were told,
 * the memory has been let go. Cannot fail. Sleeps for as long as the storage takes to answer what
 * was sent to it.
 */
void peerdma_buffer_revoke(struct peerdma_buffer *buffer)
{
	struct peerdma_provider *provider = buffer->provider;

	if (atomic_xchg(&buffer->revoking, 1)) {
		wait_for_completion(&buffer->revoked);
		return;
	}
	count(buffer, -1);
	peerdma_inside_wait(provider, buffer);
	trace_peerdma_revoke(provider->id, buffer->mem->len, peerdma_gate_closed(&provider->gate));
	peerdma_proxy_unmap(buffer);
	peerdma_exports_revoke(buffer);

	/* Off the list last: unbind must not believe it is done while the memory is still held. */
	peerdma_mem_release(buffer->mem, buffer);
	mutex_lock(&provider->lock);
	list_del_init(&buffer->link);
	mutex_unlock(&provider->lock);
	complete_all(&buffer->revoked);
}

/*
 * The buffer with this id, inside its gate, which keeps struct and memory until
 * peerdma_gate_exit(): whoever destroys it waits for the gate. -ENOENT no such id, -ENODEV it was
 * revoked. RCU keeps the struct between the look-up and the gate.
 */
struct peerdma_buffer *peerdma_buffer_enter(struct peerdma_ctx *ctx, u32 id)
{
	struct peerdma_buffer *buffer;

	rcu_read_lock();
	buffer = to_buffer(peerdma_ids_find(&ctx->buffers, id));
	if (!buffer)
		buffer = ERR_PTR(-ENOENT);
	else if (!peerdma_gate_enter(&buffer->gate))
		buffer = ERR_PTR(-ENODEV);
	rcu_read_unlock();
	if (!IS_ERR(buffer))
		peerdma_ref_used(&buffer->gate.inside);
	return buffer;
}

/*
 * Its id is gone. A driver that wants its memory back is asked when all who wait for the revoking
 * have been let go: one of them may have that driver's locks.
 */
static void buffer_end(struct peerdma_buffer *buffer)
{
	peerdma_buffer_revoke(buffer);
	peerdma_pin_give_back(buffer->pin);
	peerdma_buffer_put(buffer);
}

/* Closing: nobody else can look an id up any more. */
void peerdma_buffers_destroy(struct peerdma_ctx *ctx)
{
	struct peerdma_entry *entry;
	struct peerdma_buffer *buffer;
	unsigned long id;

	/* One grace period for all gates. */
	xa_for_each(&ctx->buffers.all, id, entry) {
		peerdma_gate_close(&to_buffer(entry)->gate);
		cond_resched();
	}
	while ((buffer = to_buffer(peerdma_ids_take_any(&ctx->buffers))))
		buffer_end(buffer);
}

static struct peerdma_buffer *buffer_create(struct peerdma_ctx *ctx, struct peerdma_mem *mem)
{
	struct peerdma_buffer *buffer = kzalloc(sizeof(*buffer), GFP_KERNEL_ACCOUNT);
	struct peerdma_provider *provider = mem->provider;

	if (!buffer)
		return NULL;
	if (peerdma_gate_init(&buffer->gate)) {
		kfree(buffer);
		return NULL;
	}
	refcount_set(&buffer->refs, 1);
	init_completion(&buffer->revoked);
	peerdma_exports_init(buffer);
	buffer->mapping = ctx->inode->i_mapping;
	buffer->opener = &ctx->opener;
	buffer->mem = mem;
	refcount_inc(&provider->refs);
	buffer->provider = provider;
	count(buffer, 1);
	mutex_lock(&provider->lock);
	list_add_tail(&buffer->link, &provider->buffers);
	if (mem->halts != provider->halts) /* the memory may have been lost since it was zeroed */
		peerdma_gate_close(&buffer->gate);
	mutex_unlock(&provider->lock);
	return buffer;
}

/**
 * peerdma_buffer_add - a buffer of some memory, with an id that nobody can look up yet
 * @ctx: whose buffer it will be
 * @mem: the buffer's from now on; let go if this fails
 *
 * The caller is inside the provider's gate, until it is on the list and has its id: unbind finds it
 * complete, or the caller finds the gate closed.
 *
 * Return: the buffer, or ERR_PTR(-ENOMEM): the kernel has none, or no id is left.
 */
struct peerdma_buffer *peerdma_buffer_add(struct peerdma_ctx *ctx, struct peerdma_mem *mem)
{
	const u32 max_id = (1 << PEERDMA_BUF_ID_BITS) - 1;
	struct peerdma_buffer *buffer = buffer_create(ctx, mem);

	if (!buffer) {
		peerdma_mem_release(mem, NULL);
		return ERR_PTR(-ENOMEM);
	}
	if (!peerdma_ids_alloc(&ctx->buffers, &buffer->entry, max_id))
		return buffer;
	peerdma_buffer_revoke(buffer);
	peerdma_buffer_put(buffer);
	return ERR_PTR(-ENOMEM);
}

static u64 mem_bar_offset(struct peerdma_mem *mem)
{
	struct peerdma_provider *provider = mem->provider;

	return page_to_phys(mem->page) - pci_resource_start(provider->pdev, provider->bar);
}

static int buf_alloc(struct peerdma_ctx *ctx, struct peerdma_provider *provider,
		     struct peerdma_buf_alloc *req)
{
	const u32 zero = req->flags & PEERDMA_BUF_NO_ZERO ? 0 : PEERDMA_MEM_ZERO;
	struct peerdma_buffer *buffer;
	struct peerdma_mem *mem;

	u64 bar_offset = 0;
	int err;

	if (!peerdma_gate_enter(&provider->gate))
		return -ENODEV;
	mem = peerdma_mem_alloc(provider, req->len, zero, &req->out_reason);
	if (!IS_ERR(mem))
		bar_offset = mem_bar_offset(mem); /* once it is a buffer's it may be taken away */
	buffer = IS_ERR(mem) ? ERR_CAST(mem) : peerdma_buffer_add(ctx, mem);
	err = PTR_ERR_OR_ZERO(buffer);
	if (!err && peerdma_gate_closed(&buffer->gate)) {
		peerdma_buffer_destroy(ctx, buffer->entry.id, false);
		err = -ENODEV;
	}
	if (!err) {
		req->out_buf_id = buffer->entry.id;
		req->out_bar_offset = bar_offset;
		req->out_mmap_offset = peerdma_proxy_offset(buffer);
	}
	peerdma_gate_exit(&provider->gate);
	return err;
}

int peerdma_buf_alloc_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_alloc *req = &arg->buf_alloc;
	struct peerdma_provider *provider;
	int err;

	req->out_buf_id = 0;
	req->out_bar_offset = 0;
	req->out_mmap_offset = 0;
	req->out_reason = PEERDMA_REASON_NONE;
	if (req->__reserved)
		return -EINVAL;
	/* It may hold what another user left: not for who has this in a namespace of their own. */
	if (req->flags & PEERDMA_BUF_NO_ZERO && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	req->out_reason = peerdma_check_alloc(req->len, PAGE_SIZE);
	if (req->out_reason)
		return peerdma_reason_errno(req->out_reason);
	provider = peerdma_provider_get(ctx, req->provider_id);
	if (!provider)
		return -ENOENT;
	if (provider->foreign)
		req->out_reason = PEERDMA_REASON_VENDOR_MEMORY;
	else if (!provider->prefetchable && !(req->flags & PEERDMA_BUF_NO_ZERO))
		req->out_reason = PEERDMA_REASON_NOT_PREFETCHABLE; /* it would be zeroed */
	err = peerdma_reason_errno(req->out_reason) ?: buf_alloc(ctx, provider, req);
	if (err == -ENODEV)
		req->out_reason = PEERDMA_REASON_REVOKED;
	peerdma_provider_put(provider);
	return err;
}

int peerdma_buffer_destroy(struct peerdma_ctx *ctx, u32 id, bool shown)
{
	struct peerdma_buffer *buffer = to_buffer(peerdma_ids_take(&ctx->buffers, id, shown));

	if (!buffer)
		return -ENOENT;
	buffer_end(buffer);
	return 0;
}

/* Its maker was told its id, or could not be; 0: there is none. */
void peerdma_buffer_finish(struct peerdma_ctx *ctx, u32 id, int err)
{
	if (!id)
		return;
	if (err)
		peerdma_buffer_destroy(ctx, id, false);
	else
		peerdma_ids_show(&ctx->buffers, id);
}

void peerdma_buf_alloc_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
	peerdma_buffer_finish(ctx, arg->buf_alloc.out_buf_id, err);
}

int peerdma_destroy_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	if (arg->destroy.__reserved)
		return -EINVAL;
	return peerdma_buffer_destroy(ctx, arg->destroy.id, true);
}
