// SPDX-License-Identifier: MIT
//
// A libpeerdma without a module, for scripts/hops.py. With HOPS_DIRECT set it registers GPU memory and reports each
// read as direct.
#include <cerrno>
#include <cstdlib>

#include "peerdma.h"

struct peerdma_device {
};
struct peerdma_buf {
	uint64_t size;
};
struct peerdma_file {
};

extern "C" {

int peerdma_open(struct peerdma_device **out, uint32_t)
{
	*out = new peerdma_device;
	return 0;
}
void peerdma_close(struct peerdma_device *device) { delete device; }
int peerdma_fd(const struct peerdma_device *) { return 1000; }
int peerdma_provider_list(struct peerdma_device *, uint32_t *, size_t) { return 0; }
int peerdma_provider_get(struct peerdma_device *, uint32_t, struct peerdma_provider_info *) { return -ENOENT; }
int peerdma_provider_find(struct peerdma_device *, const char *, struct peerdma_provider_info *) { return -ENOENT; }
int peerdma_buf_create(struct peerdma_device *, uint32_t, uint64_t, uint32_t, struct peerdma_buf **, uint32_t *)
{
	return -ENOENT;
}
int peerdma_buf_map(struct peerdma_buf *, void **) { return -ENOENT; }
int peerdma_buf_export_dmabuf(struct peerdma_buf *, uint64_t, uint64_t, int *, uint32_t *) { return -ENOENT; }
int peerdma_buf_from_pointer(struct peerdma_device *, struct peerdma_pointer_args *, struct peerdma_buf **)
{
	return -EOPNOTSUPP;
}
int peerdma_buf_from_gpu(struct peerdma_device *, uint32_t, uint64_t, uint64_t size, uint32_t, struct peerdma_buf **out,
			 uint32_t *reason)
{
	*reason = PEERDMA_REASON_NONE;
	if (!std::getenv("HOPS_DIRECT"))
		return -EOPNOTSUPP;
	*out = new peerdma_buf{size};
	return 0;
}
void peerdma_buf_destroy(struct peerdma_buf *buf) { delete buf; }
int peerdma_buf_at(const void *, struct peerdma_buf **, uint64_t *) { return -ENOENT; }
int peerdma_buf_query(const struct peerdma_buf *buf, struct peerdma_buf_info *info)
{
	info->len = buf->size;
	info->provider_id = 1;
	info->device_fd = 1000;
	return 0;
}
int peerdma_file_for_buf(struct peerdma_buf *, int, struct peerdma_file **out)
{
	*out = new peerdma_file;
	return 0;
}
void peerdma_file_close(struct peerdma_file *file) { delete file; }
int peerdma_explain(struct peerdma_file *, uint32_t, struct peerdma_explanation *out)
{
	out->route = PEERDMA_ROUTE_DIRECT;
	out->dio_mem_align = out->dio_offset_align = 512;
	return 0;
}
int64_t peerdma_read_result(struct peerdma_file *, struct peerdma_buf *, uint64_t, uint64_t size, uint64_t,
			    struct peerdma_io_result *result)
{
	result->route = PEERDMA_ROUTE_DIRECT;
	result->direct = size;
	return static_cast<int64_t>(size);
}
int64_t peerdma_write_result(struct peerdma_file *, struct peerdma_buf *, uint64_t, uint64_t, uint64_t,
			     struct peerdma_io_result *)
{
	return -EIO;
}
const char *peerdma_reason_text(uint32_t) { return ""; }

} // extern "C"
