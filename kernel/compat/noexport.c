// SPDX-License-Identifier: GPL-2.0
/*
 * Replaces export.c and import.c on a kernel without dma-bufs, where no driver exports or imports
 * them.
 */
#include <uapi/peerdma.h>

#include "compat/compat.h"
#include "base/checks.h"
#include "base/handlers.h"
#include "memory/buffer.h"
#include "memory/ctx.h"
#include "memory/export.h"
#include "memory/import.h"

bool peerdma_exports_supported(void)
{
	return false;
}

void peerdma_exports_revoke(struct peerdma_buffer *buffer)
{
}

bool peerdma_exports_log(struct peerdma_buffer *buffer)
{
	return true;
}

void peerdma_exports_show(struct seq_file *seq)
{
}

int peerdma_buf_export_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_export *req = &arg->buf_export.req;

	req->out_fd = -1;
	req->out_reason = PEERDMA_REASON_DMABUF;
	return peerdma_reason_errno(req->out_reason);
}

void peerdma_buf_export_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
}

int peerdma_imports_init(void)
{
	return 0;
}

void peerdma_imports_exit(void)
{
}

int peerdma_buf_import_execute(struct peerdma_ctx *ctx, union peerdma_arg *arg)
{
	struct peerdma_buf_import *req = &arg->buf_import;

	req->out_buf_id = 0;
	req->out_provider_id = 0;
	req->out_mmap_offset = 0;
	req->out_reason = PEERDMA_REASON_IMPORT_UNABLE;
	return peerdma_reason_errno(req->out_reason);
}

void peerdma_buf_import_finish(struct peerdma_ctx *ctx, union peerdma_arg *arg, int err)
{
}
