// SPDX-License-Identifier: MIT
//
// The module's logic that does not depend on the kernel, compiled for the host with ASan and UBSan:
// kernel/base/checks.c (ranges, splitting of reads, reasons and their errno) and kernel/face/op.c (the table of
// ioctls).
#include <cerrno>
#include <gtest/gtest.h>
#include <random>

extern "C" {
#include "base/block_split.h"
#include "base/checks.h"
}
#include "../../tools/handlers.hpp"

namespace
{

constexpr __u64 top = ~0ULL, max_off = top >> 1;

TEST(Range, InsideOnly)
{
	EXPECT_EQ(peerdma_check_range(0, 4096, 4096), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_range(4095, 1, 4096), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_range(4096, 1, 4096), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(peerdma_check_range(4095, 2, 4096), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(peerdma_check_range(0, 0, 4096), PEERDMA_REASON_LEN_ZERO);
	EXPECT_EQ(peerdma_check_range(4096, 0, 4096), PEERDMA_REASON_LEN_ZERO);
}

TEST(Range, NeverWraps)
{
	EXPECT_EQ(peerdma_check_range(top, 1, top), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_range(1, top, top), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_range(max_off, 1, top), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_range(max_off - 1, 1, top), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_io_range(max_off, 0, 4096, 4096), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_io_range(top - 4095, 0, 4096, 4096), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_io_range(top, 0, 0, 4096), PEERDMA_REASON_LEN_ZERO);
}

TEST(Export, WholePagesInsideTheBuffer)
{
	EXPECT_EQ(peerdma_check_export(0, 8192, 8192, 4096), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_export(4096, 4096, 8192, 4096), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_export(0, 0, 8192, 4096), PEERDMA_REASON_LEN_ZERO);
	EXPECT_EQ(peerdma_check_export(512, 4096, 8192, 4096), PEERDMA_REASON_PAGE_ALIGN);
	EXPECT_EQ(peerdma_check_export(0, 4095, 8192, 4096), PEERDMA_REASON_PAGE_ALIGN);
	EXPECT_EQ(peerdma_check_export(4096, 8192, 8192, 4096), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(peerdma_check_export(top - 4095, 4096, 8192, 4096), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_export(4096, top - 4095, 8192, 4096), PEERDMA_REASON_OVERFLOW);
}

TEST(Register, WholeFrames)
{
	constexpr __u64 at = 0x7f0000000000, frame = 65536;
	EXPECT_EQ(peerdma_check_register(at, frame, frame), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_register(0, top / 2 / frame * frame, frame), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_register(at, 0, frame), PEERDMA_REASON_LEN_ZERO);
	EXPECT_EQ(peerdma_check_register(at + 4096, frame, frame), PEERDMA_REASON_VENDOR_ALIGN);
	EXPECT_EQ(peerdma_check_register(at, frame + 4096, frame), PEERDMA_REASON_VENDOR_ALIGN);
	EXPECT_EQ(peerdma_check_register(top - frame + 1, frame, frame), PEERDMA_REASON_OVERFLOW);
	EXPECT_EQ(peerdma_check_register(frame, top - frame + 1, frame), PEERDMA_REASON_OVERFLOW);
}

TEST(Import, WholeFramesFromAnyPage)
{
	constexpr __u64 page = 4096, frame = 65536, size = 4 * frame;
	EXPECT_EQ(peerdma_check_import(0, size, size, page, frame), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_import(page, frame, size, page, frame), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_import(0, 0, size, page, frame), PEERDMA_REASON_LEN_ZERO);
	EXPECT_EQ(peerdma_check_import(page / 2, frame, size, page, frame), PEERDMA_REASON_VENDOR_ALIGN);
	EXPECT_EQ(peerdma_check_import(0, frame + page, size, page, frame), PEERDMA_REASON_VENDOR_ALIGN);
	EXPECT_EQ(peerdma_check_import(page, size, size, page, frame), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(peerdma_check_import(size, frame, size, page, frame), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(peerdma_check_import(frame, top - frame + 1, size, page, frame), PEERDMA_REASON_OVERFLOW);
}

TEST(Publish, WholeStepsInsideTheBar)
{
	constexpr __u64 mib = 1 << 20, step = 2 * mib, start = 0x380000000, bar = 64 * mib;
	EXPECT_EQ(peerdma_check_publish(start, bar, 0, 0, step), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_publish(start, bar, step, step, step), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_publish(start, bar, bar - step, 0, step), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_publish(start, bar, bar, 0, step), PEERDMA_REASON_BAR_RANGE);
	EXPECT_EQ(peerdma_check_publish(start, bar, 0, bar + step, step), PEERDMA_REASON_BAR_RANGE);
	EXPECT_EQ(peerdma_check_publish(start, bar, step, top - step + 1, step), PEERDMA_REASON_BAR_RANGE);
	EXPECT_EQ(peerdma_check_publish(start, bar, mib, step, step), PEERDMA_REASON_RANGE_ALIGN);
	EXPECT_EQ(peerdma_check_publish(start, bar, 0, mib, step), PEERDMA_REASON_RANGE_ALIGN);
	// The physical address counts: this BAR begins in the middle of a step.
	EXPECT_EQ(peerdma_check_publish(start + mib, bar, 0, step, step), PEERDMA_REASON_RANGE_ALIGN);
	EXPECT_EQ(peerdma_check_publish(start + mib, bar, mib, step, step), PEERDMA_REASON_NONE);
}

TEST(Alloc, WholePages)
{
	EXPECT_EQ(peerdma_check_alloc(4096, 4096), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_alloc(0, 4096), PEERDMA_REASON_LEN_ZERO);
	EXPECT_EQ(peerdma_check_alloc(4097, 4096), PEERDMA_REASON_PAGE_ALIGN);
	EXPECT_EQ(peerdma_check_alloc(top, 4096), PEERDMA_REASON_OVERFLOW);
}

TEST(Align, EachNumberByItsOwn)
{
	EXPECT_EQ(peerdma_check_align(512, 4, 512, 4, 512), PEERDMA_REASON_NONE);
	EXPECT_EQ(peerdma_check_align(511, 4, 512, 4, 512), PEERDMA_REASON_FILE_ALIGN);
	EXPECT_EQ(peerdma_check_align(512, 4, 513, 4, 512), PEERDMA_REASON_FILE_ALIGN);
	EXPECT_EQ(peerdma_check_align(512, 2, 512, 4, 512), PEERDMA_REASON_BUF_ALIGN);
	EXPECT_EQ(peerdma_check_align(512, 2, 512, 1, 4096), PEERDMA_REASON_FILE_ALIGN);
}

// Compares the split with a slow model: a block is direct if the range covers all of it.
TEST(Plan, AgreesWithCountingBlocks)
{
	std::mt19937_64 random(1);
	for (int i = 0; i < 100000; i++) {
		const __u32 block = 512 << random() % 4, mem = 1 << random() % 10;
		const __u64 off = random() % 10000, buf_off = random() % 3000, len = random() % 20000;
		const auto split = peerdma_block_split(off, buf_off, len, mem, block);
		__u64 direct = 0, before = 0;
		for (__u64 at = off / block * block; at < off + len; at += block) {
			if (at >= off && at + block <= off + len)
				direct += block;
			else if (!direct && at < off)
				before = std::min(at + block, off + len) - off;
		}
		if (direct && (buf_off + before) % mem) {
			ASSERT_EQ(split.host_len, len);
			ASSERT_EQ(split.head_len + split.direct_len + split.tail_len, 0u);
			continue;
		}
		ASSERT_EQ(split.host_len, 0u);
		ASSERT_EQ(split.direct_len, direct) << off << ' ' << len << ' ' << block;
		ASSERT_EQ(split.head_len, before) << off << ' ' << len << ' ' << block;
		ASSERT_EQ(split.head_len + split.direct_len + split.tail_len, len);
	}
}

TEST(Plan, AtTheEndsOfTheNumbers)
{
	const __u64 last = max_off / 512 * 512;
	auto split = peerdma_block_split(0, 0, max_off, 4, 512);
	EXPECT_EQ(split.direct_len, last);
	EXPECT_EQ(split.tail_len, 511u);
	split = peerdma_block_split(last, 0, 511, 4, 512);
	EXPECT_EQ(split.tail_len, 511u);
	split = peerdma_block_split(max_off - 1, 1, 1, 4, 512);
	EXPECT_EQ(split.head_len, 1u);
	EXPECT_EQ(split.direct_len + split.tail_len + split.host_len, 0u);
	split = peerdma_block_split(0, 0, 0, 4, 512);
	EXPECT_EQ(split.head_len + split.direct_len + split.tail_len + split.host_len, 0u);
}

TEST(Clip, WhatIsBeforeTheEnd)
{
	EXPECT_EQ(peerdma_block_split_clip(0, 10, 20), 10u);
	EXPECT_EQ(peerdma_block_split_clip(15, 10, 20), 5u);
	EXPECT_EQ(peerdma_block_split_clip(20, 10, 20), 0u);
	EXPECT_EQ(peerdma_block_split_clip(21, 10, 20), 0u);
	EXPECT_EQ(peerdma_block_split_clip(0, 10, 0), 0u);
	EXPECT_EQ(peerdma_block_split_clip(max_off - 5, 5, ~0ull), 5u);
}

TEST(Reasons, HaveTheErrnoOfTheDocumentation)
{
	for (__u32 reason : {PEERDMA_REASON_NONE, PEERDMA_REASON_END_OF_FILE})
		EXPECT_EQ(peerdma_reason_errno(reason), 0);
	for (__u32 reason :
	     {PEERDMA_REASON_LEN_ZERO, PEERDMA_REASON_OVERFLOW, PEERDMA_REASON_BUF_RANGE, PEERDMA_REASON_FILE_ALIGN,
	      PEERDMA_REASON_BUF_ALIGN, PEERDMA_REASON_PAGE_ALIGN, PEERDMA_REASON_BAR_RANGE, PEERDMA_REASON_NOT_BOUND,
	      PEERDMA_REASON_RANGE_ALIGN, PEERDMA_REASON_APPEND, PEERDMA_REASON_NOT_PREFETCHABLE})
		EXPECT_EQ(peerdma_reason_errno(reason), -EINVAL) << reason;
	for (__u32 reason : {PEERDMA_REASON_FILESYSTEM,    PEERDMA_REASON_NO_DIO,        PEERDMA_REASON_STACKED,
			     PEERDMA_REASON_QUEUE,         PEERDMA_REASON_DISTANCE,      PEERDMA_REASON_MAPPING,
			     PEERDMA_REASON_INTEGRITY,     PEERDMA_REASON_REALTIME,      PEERDMA_REASON_DM_TARGET,
			     PEERDMA_REASON_MD_LEVEL,      PEERDMA_REASON_FABRIC_TCP,    PEERDMA_REASON_FABRIC_LOOP,
			     PEERDMA_REASON_FABRIC_FC,     PEERDMA_REASON_RDMA_MODULE,   PEERDMA_REASON_RDMA_ROUTE,
			     PEERDMA_REASON_RDMA_SOFTWARE, PEERDMA_REASON_NFS_TRANSPORT, PEERDMA_REASON_NFS_LOCAL,
			     PEERDMA_REASON_NFS_LAYOUT,    PEERDMA_REASON_NFS_SECURITY,  PEERDMA_REASON_NFS_SERVERS,
			     PEERDMA_REASON_NFS_SIZE})
		EXPECT_EQ(peerdma_reason_errno(reason), -EXDEV) << reason;
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_FD_MODE), -EBADF);
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_FILE_TYPE), -ESPIPE);
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_REVOKED), -ENODEV);
	for (__u32 reason : {PEERDMA_REASON_USER_LIMIT, PEERDMA_REASON_CGROUP_LIMIT, PEERDMA_REASON_MEMLOCK})
		EXPECT_EQ(peerdma_reason_errno(reason), -EDQUOT) << reason;
	for (__u32 reason :
	     {PEERDMA_REASON_DMABUF,           PEERDMA_REASON_IMPORTER,           PEERDMA_REASON_VERBS_DEVICE,
	      PEERDMA_REASON_VERBS_KERNEL,     PEERDMA_REASON_VERBS_MTU,          PEERDMA_REASON_VENDOR_MODULE,
	      PEERDMA_REASON_VENDOR_DRIVER,    PEERDMA_REASON_VENDOR_REFUSED,     PEERDMA_REASON_VENDOR_TABLE,
	      PEERDMA_REASON_VENDOR_NOT_BAR,   PEERDMA_REASON_VENDOR_UNPUBLISHED, PEERDMA_REASON_VENDOR_WC,
	      PEERDMA_REASON_VENDOR_OURS,      PEERDMA_REASON_VENDOR_MEMORY,      PEERDMA_REASON_IMPORT_UNABLE,
	      PEERDMA_REASON_IMPORT_REVOCABLE, PEERDMA_REASON_IMPORT_DEVICE,      PEERDMA_REASON_IMPORT_IOMMU,
	      PEERDMA_REASON_IMPORT_REFUSED,   PEERDMA_REASON_IMPORT_TABLE,       PEERDMA_REASON_IMPORT_PIECES,
	      PEERDMA_REASON_IMPORT_HOST,      PEERDMA_REASON_IMPORT_ADDRESS,     PEERDMA_REASON_IMPORT_EXPORT,
	      PEERDMA_REASON_IMPORT_UNKNOWN,   PEERDMA_REASON_IMPORT_HANDLE})
		EXPECT_EQ(peerdma_reason_errno(reason), -EOPNOTSUPP) << reason;
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_VENDOR_ALIGN), -EINVAL);
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_IMPORT_NOT_DMABUF), -EINVAL);
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_VENDOR_BUSY), -EBUSY);
	EXPECT_EQ(peerdma_reason_errno(PEERDMA_REASON_VENDOR_FREED), -ENODEV);
}

TEST(Ops, OnlyWholeNumbersAreKnown)
{
	int known = 0;
	for (__u32 cmd :
	     {0u, 0x7fffffffu, 0xffffffffu, __u32(_IO(PEERDMA_IOC_TYPE + 1, 0)), __u32(_IOR(PEERDMA_IOC_TYPE, 0, int))})
		EXPECT_EQ(peerdma_op_find(cmd), nullptr) << cmd;
	for (__u32 nr = 0; nr < 256; nr++) {
		const auto *op = peerdma_op_find(_IO(PEERDMA_IOC_TYPE, nr));
		if (!op)
			continue;
		known++;
		EXPECT_EQ(op->cmd, __u32(_IO(PEERDMA_IOC_TYPE, nr)));
		EXPECT_LE(op->size, sizeof(union peerdma_arg));
		EXPECT_GE(op->min_size, 8u);
		EXPECT_LE(op->min_size, op->size);
		EXPECT_EQ(op->size % 8, 0u)
			<< "a struct whose size is not a multiple of 8 differs between 32 and 64 bits";
		EXPECT_NE(op->execute, nullptr);
	}
	EXPECT_EQ(known, 13);
}

TEST(Ops, SizesAreCheckedBeforeAnythingIsRead)
{
	const auto *op = peerdma_op_find(PEERDMA_READ);
	ASSERT_NE(op, nullptr);
	EXPECT_EQ(peerdma_op_check_size(op, 0, 4096), -EINVAL);
	EXPECT_EQ(peerdma_op_check_size(op, op->min_size - 1, 4096), -EINVAL);
	EXPECT_EQ(peerdma_op_check_size(op, op->min_size, 4096), 0);
	EXPECT_EQ(peerdma_op_check_size(op, 4096, 4096), 0);
	EXPECT_EQ(peerdma_op_check_size(op, 4097, 4096), -E2BIG);
	EXPECT_EQ(peerdma_op_check_size(op, ~0u, 4096), -E2BIG);
}

} // namespace
