// SPDX-License-Identifier: MIT
//
// The GPU kernel by which a stream copies bytes at addresses that are not known when the copy is enqueued. It is PTX,
// which each driver translates for its GPU, so the build needs no NVIDIA compiler.
#pragma once

namespace cufile
{

inline constexpr const char *copy_kernel_name = "peerdma_copy";
inline constexpr unsigned copy_kernel_blocks = 16, copy_kernel_threads = 512;

// Reads (to, from, size) from a CopyDescriptor. Copies 16 bytes at a time if both addresses are aligned, otherwise
// single bytes. Each thread starts at its own index and advances by the size of the grid.
inline constexpr const char copy_kernel_ptx[] = R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry peerdma_copy(.param .u64 order)
{
	.reg .pred %done;
	.reg .b16 %byte;
	.reg .b32 %n<6>, %word<4>;
	.reg .b64 %order, %to, %from, %size, %mine, %grid, %head, %rest, %vectors, %i, %a, %b, %x;

	ld.param.u64 %order, [order];
	cvta.to.global.u64 %order, %order;
	ld.volatile.global.u64 %to, [%order];
	ld.volatile.global.u64 %from, [%order + 8];
	ld.volatile.global.u64 %size, [%order + 16];
	mov.u32 %n0, %ctaid.x;
	mov.u32 %n1, %ntid.x;
	mov.u32 %n2, %tid.x;
	mov.u32 %n3, %nctaid.x;
	mad.lo.u32 %n4, %n0, %n1, %n2;
	mul.lo.u32 %n5, %n3, %n1;
	cvt.u64.u32 %mine, %n4;
	cvt.u64.u32 %grid, %n5;
	mov.u64 %head, 0;
	mov.u64 %vectors, 0;

	xor.b64 %x, %to, %from;
	and.b64 %x, %x, 15;
	setp.ne.u64 %done, %x, 0;
	@%done bra bytes;

	neg.s64 %head, %to;
	and.b64 %head, %head, 15;
	min.u64 %head, %head, %size;
	setp.ge.u64 %done, %mine, %head;
	@%done bra wide;
	add.u64 %a, %from, %mine;
	add.u64 %b, %to, %mine;
	ld.global.u8 %byte, [%a];
	st.global.u8 [%b], %byte;
wide:
	sub.u64 %rest, %size, %head;
	shr.u64 %vectors, %rest, 4;
	mov.u64 %i, %mine;
wide_next:
	setp.ge.u64 %done, %i, %vectors;
	@%done bra bytes;
	shl.b64 %x, %i, 4;
	add.u64 %x, %x, %head;
	add.u64 %a, %from, %x;
	add.u64 %b, %to, %x;
	ld.global.v4.u32 {%word0, %word1, %word2, %word3}, [%a];
	st.global.v4.u32 [%b], {%word0, %word1, %word2, %word3};
	add.u64 %i, %i, %grid;
	bra wide_next;

bytes:
	shl.b64 %i, %vectors, 4;
	add.u64 %i, %i, %head;
	add.u64 %i, %i, %mine;
bytes_next:
	setp.ge.u64 %done, %i, %size;
	@%done bra end;
	add.u64 %a, %from, %i;
	add.u64 %b, %to, %i;
	ld.global.u8 %byte, [%a];
	st.global.u8 [%b], %byte;
	add.u64 %i, %i, %grid;
	bra bytes_next;
end:
	ret;
}
)";

} // namespace cufile
