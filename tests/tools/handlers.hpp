// SPDX-License-Identifier: MIT
// The functions that the module's table of ioctls points to, for a program that contains the table; never called.
#pragma once

extern "C" {
#include "face/op.h"

#define HANDLER(name)                                                                                                  \
	int peerdma_##name##_execute(struct peerdma_ctx *, union peerdma_arg *) { return 0; }
HANDLER(info)
HANDLER(provider_query)
HANDLER(publish)
HANDLER(buf_alloc)
HANDLER(destroy)
HANDLER(file_query)
HANDLER(read)
HANDLER(write)
HANDLER(file_add)
HANDLER(file_remove)
HANDLER(buf_export)
HANDLER(buf_register)
HANDLER(buf_import)
void peerdma_buf_alloc_finish(struct peerdma_ctx *, union peerdma_arg *, int) {}
void peerdma_file_add_finish(struct peerdma_ctx *, union peerdma_arg *, int) {}
void peerdma_buf_export_finish(struct peerdma_ctx *, union peerdma_arg *, int) {}
void peerdma_buf_register_finish(struct peerdma_ctx *, union peerdma_arg *, int) {}
void peerdma_buf_import_finish(struct peerdma_ctx *, union peerdma_arg *, int) {}
#undef HANDLER
}
