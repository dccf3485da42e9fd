// SPDX-License-Identifier: MIT
//
// Pins the kernel ABI: a change to a released struct does not compile. Growth at the end changes a size here, but no
// offset.

#include <cstddef>

#include <gtest/gtest.h>

#include "peerdma.h"

#define AT(type, member, offset) static_assert(offsetof(struct type, member) == (offset))
#define SIZE(type, bytes)                                                                                              \
	static_assert(sizeof(struct type) == (bytes));                                                                 \
	AT(type, size, 0)

SIZE(peerdma_info, 32);
AT(peerdma_info, flags, 4);
AT(peerdma_info, out_abi, 8);
AT(peerdma_info, out_page_size, 12);
AT(peerdma_info, out_features, 16);
AT(peerdma_info, out_nproviders, 24);
AT(peerdma_info, out_publish_align, 28);

SIZE(peerdma_provider_query, 64);
AT(peerdma_provider_query, provider_id, 8);
AT(peerdma_provider_query, out_provider_id, 12);
AT(peerdma_provider_query, out_pci_domain, 16);
AT(peerdma_provider_query, out_pci_bdf, 20);
AT(peerdma_provider_query, out_bar, 24);
AT(peerdma_provider_query, out_numa_node, 28);
AT(peerdma_provider_query, out_bar_offset, 32);
AT(peerdma_provider_query, out_len, 40);
AT(peerdma_provider_query, out_available, 48);
AT(peerdma_provider_query, out_pci_vendor, 56);
AT(peerdma_provider_query, out_pci_device, 60);

SIZE(peerdma_publish, 48);
AT(peerdma_publish, pci_domain, 8);
AT(peerdma_publish, pci_bdf, 12);
AT(peerdma_publish, bar, 16);
AT(peerdma_publish, out_provider_id, 20);
AT(peerdma_publish, bar_offset, 24);
AT(peerdma_publish, len, 32);
AT(peerdma_publish, out_reason, 40);

SIZE(peerdma_buf_alloc, 48);
AT(peerdma_buf_alloc, provider_id, 8);
AT(peerdma_buf_alloc, out_buf_id, 12);
AT(peerdma_buf_alloc, len, 16);
AT(peerdma_buf_alloc, out_bar_offset, 24);
AT(peerdma_buf_alloc, out_reason, 32);
AT(peerdma_buf_alloc, out_mmap_offset, 40);

SIZE(peerdma_destroy, 16);
AT(peerdma_destroy, id, 8);

SIZE(peerdma_file_query, 176);
AT(peerdma_file_query, fd, 8);
AT(peerdma_file_query, provider_id, 12);
AT(peerdma_file_query, out_errno, 16);
AT(peerdma_file_query, out_reason, 20);
AT(peerdma_file_query, out_map, 24);
AT(peerdma_file_query, out_distance, 28);
AT(peerdma_file_query, out_dio_mem_align, 32);
AT(peerdma_file_query, out_dio_offset_align, 36);
AT(peerdma_file_query, out_leaf_domain, 40);
AT(peerdma_file_query, out_leaf_bdf, 44);
AT(peerdma_file_query, out_leaf_major, 48);
AT(peerdma_file_query, out_leaf_minor, 52);
AT(peerdma_file_query, out_leaf_name, 56);
AT(peerdma_file_query, out_fs_name, 88);
AT(peerdma_file_query, leaf, 120);
AT(peerdma_file_query, out_nr_leaves, 124);
AT(peerdma_file_query, out_leaf_reason, 128);
AT(peerdma_file_query, out_leaf_map, 132);
AT(peerdma_file_query, out_leaf_distance, 136);
AT(peerdma_file_query, out_refused_name, 144);

SIZE(peerdma_io, 80);
AT(peerdma_io, fd, 8);
AT(peerdma_io, buf_id, 12);
AT(peerdma_io, file_off, 16);
AT(peerdma_io, buf_off, 24);
AT(peerdma_io, len, 32);
AT(peerdma_io, out_done, 40);
AT(peerdma_io, out_direct, 48);
AT(peerdma_io, out_near, 56);
AT(peerdma_io, out_host, 64);
AT(peerdma_io, out_reason, 72);

SIZE(peerdma_buf_export, 40);
AT(peerdma_buf_export, buf_id, 8);
AT(peerdma_buf_export, out_fd, 12);
AT(peerdma_buf_export, off, 16);
AT(peerdma_buf_export, len, 24);
AT(peerdma_buf_export, out_reason, 32);
SIZE(peerdma_buf_import, 56);
AT(peerdma_buf_import, fd, 8);
AT(peerdma_buf_import, pci_domain, 12);
AT(peerdma_buf_import, pci_bdf, 16);
AT(peerdma_buf_import, out_buf_id, 20);
AT(peerdma_buf_import, off, 24);
AT(peerdma_buf_import, len, 32);
AT(peerdma_buf_import, out_provider_id, 40);
AT(peerdma_buf_import, out_reason, 44);
AT(peerdma_buf_import, out_mmap_offset, 48);

// The library's own structs are ABI too.
SIZE(peerdma_device_info, 32);
SIZE(peerdma_provider_info, 56);
SIZE(peerdma_publish_args, 240);
AT(peerdma_publish_args, bar_offset, 24);
AT(peerdma_publish_args, out_provider_id, 40);
AT(peerdma_publish_args, out_driver, 48);
AT(peerdma_publish_args, out_where, 112);
SIZE(peerdma_buf_info, 32);
SIZE(peerdma_pointer_args, 64);
AT(peerdma_pointer_args, ze_context, 32);
AT(peerdma_pointer_args, out_buf_off, 40);
AT(peerdma_pointer_args, out_reason, 56);
SIZE(peerdma_explanation, 176);
AT(peerdma_explanation, leaf_name, 56);
AT(peerdma_explanation, fs_name, 88);
AT(peerdma_explanation, leaf, 120);
AT(peerdma_explanation, refused_name, 144);
SIZE(peerdma_io_result, 48);
AT(peerdma_io_result, done, 8);
AT(peerdma_io_result, error, 44);

TEST(Uapi, NumbersOfTheIoctls)
{
	EXPECT_EQ(PEERDMA_ABI_VERSION, 1);
	const unsigned long numbers[] = {
		PEERDMA_INFO,       PEERDMA_PROVIDER_QUERY, PEERDMA_PUBLISH,   PEERDMA_BUF_ALLOC, PEERDMA_DESTROY,
		PEERDMA_FILE_QUERY, PEERDMA_READ,           PEERDMA_WRITE,     PEERDMA_FILE_ADD,  PEERDMA_FILE_REMOVE,
		PEERDMA_BUF_EXPORT, PEERDMA_BUF_REGISTER,   PEERDMA_BUF_IMPORT};
	for (unsigned long i = 0; i < std::size(numbers); i++)
		EXPECT_EQ(numbers[i], static_cast<unsigned long>(PEERDMA_IOC_TYPE) << 8 | i);
}
