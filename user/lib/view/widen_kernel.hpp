// SPDX-License-Identifier: MIT
//
// The kernels by which a CUDA device widens packed elements (view/layout.hpp). They are PTX, which each driver translates
// for its GPU, so the build needs no NVIDIA compiler.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace peerdma_impl
{

inline constexpr const char *widen_kernel_name = "peerdma_widen";
inline constexpr const char *widen_last_kernel_name = "peerdma_widen_last";

// Both kernels have these parameters, in this order. Element i has `bits` bits (1 to 32) from bit skip + i * bits of `from`
// on. Its value is shifted left by `left` bits and stored with 4 bytes, or with 8 if `wide` is not 0.
struct WidenArguments {
	uint64_t to;   // a multiple of 4, or of 8 if wide
	uint64_t from; // a multiple of 4. Words are read, up to widen_slack bytes behind the last element
	uint64_t count;
	uint32_t bits, skip, left, wide;
};
inline constexpr size_t widen_slack = 8;

inline constexpr unsigned widen_threads = 256, widen_most_blocks = 512;
// Elements that one launch of peerdma_widen_last widens at most, with one block of widen_threads. It reads all of them
// before it writes the first, so `from` may be inside of `to`.
inline constexpr unsigned widen_last_elements = 2048;

// Literals, one after the other.
template <size_t... sizes> constexpr auto joined(const char (&...parts)[sizes])
{
	std::array<char, (sizes + ...) - sizeof...(sizes) + 1> all = {};
	char *end = all.data();
	((end = std::copy_n(parts, sizes - 1, end)), ...);
	return all;
}

// What both kernels have.
namespace widen_parts
{

inline constexpr const char parameters[] = R"((
	.param .u64 param_to,
	.param .u64 param_from,
	.param .u64 param_count,
	.param .u32 param_bits,
	.param .u32 param_skip,
	.param .u32 param_left,
	.param .u32 param_wide
)
{
)";

inline constexpr const char prepare[] = R"(	mov.u32 %n0, 32;
	sub.u32 %n0, %n0, %bits;
	mov.u32 %mask, 0xffffffff;
	shr.u32 %mask, %mask, %n0;
	cvt.u64.u32 %k, %bits;
	cvt.u64.u32 %s, %skip;
)";

// From %x, the element's first bit, to %value.
inline constexpr const char element[] = R"(	cvt.u32.u64 %at, %x;
	and.b32 %at, %at, 31;
	shr.u64 %x, %x, 5;
	shl.b64 %x, %x, 2;
	add.u64 %a, %from, %x;
	ld.global.u32 %low, [%a];
	ld.global.u32 %high, [%a + 4];
	shf.r.wrap.b32 %value, %low, %high, %at;
	and.b32 %value, %value, %mask;
	shl.b32 %value, %value, %left;
)";

} // namespace widen_parts

// peerdma_widen: with 16 bits, no skip and aligned addresses each thread loads four elements (8 bytes) and stores them at once.
// Otherwise one element: the two words that it may be in, and a shift of both.
inline constexpr auto widen_kernel_text = joined(R"(.version 6.0
.target sm_50
.address_size 64

.visible .entry peerdma_widen)",
						 widen_parts::parameters, R"(	.reg .pred %done, %is_wide;
	.reg .b32 %n<4>, %bits, %skip, %left, %wide, %mask, %at, %low, %high, %value, %zero, %v<4>, %w<2>;
	.reg .b64 %to, %from, %count, %mine, %grid, %i, %quads, %a, %b, %x, %k, %s;

	ld.param.u64 %to, [param_to];
	ld.param.u64 %from, [param_from];
	ld.param.u64 %count, [param_count];
	ld.param.u32 %bits, [param_bits];
	ld.param.u32 %skip, [param_skip];
	ld.param.u32 %left, [param_left];
	ld.param.u32 %wide, [param_wide];
	cvta.to.global.u64 %to, %to;
	cvta.to.global.u64 %from, %from;
	mov.u32 %n0, %ctaid.x;
	mov.u32 %n1, %ntid.x;
	mov.u32 %n2, %tid.x;
	mov.u32 %n3, %nctaid.x;
	mad.lo.u32 %n2, %n0, %n1, %n2;
	mul.lo.u32 %n3, %n3, %n1;
	cvt.u64.u32 %mine, %n2;
	cvt.u64.u32 %grid, %n3;
	mov.u64 %i, %mine;
	mov.u32 %zero, 0;
	setp.ne.u32 %is_wide, %wide, 0;

	setp.ne.u32 %done, %bits, 16;
	@%done bra one;
	setp.ne.u32 %done, %skip, 0;
	@%done bra one;
	and.b64 %a, %to, 15;
	and.b64 %b, %from, 7;
	or.b64 %x, %a, %b;
	setp.ne.u64 %done, %x, 0;
	@%done bra one;

	shr.u64 %quads, %count, 2;
four_next:
	setp.ge.u64 %done, %i, %quads;
	@%done bra four_end;
	shl.b64 %x, %i, 3;
	add.u64 %a, %from, %x;
	ld.global.v2.u32 {%w0, %w1}, [%a];
	and.b32 %v0, %w0, 65535;
	shr.u32 %v1, %w0, 16;
	and.b32 %v2, %w1, 65535;
	shr.u32 %v3, %w1, 16;
	shl.b32 %v0, %v0, %left;
	shl.b32 %v1, %v1, %left;
	shl.b32 %v2, %v2, %left;
	shl.b32 %v3, %v3, %left;
	@%is_wide bra four_wide;
	shl.b64 %x, %i, 4;
	add.u64 %b, %to, %x;
	st.global.v4.u32 [%b], {%v0, %v1, %v2, %v3};
	add.u64 %i, %i, %grid;
	bra four_next;
four_wide:
	shl.b64 %x, %i, 5;
	add.u64 %b, %to, %x;
	st.global.v4.u32 [%b], {%v0, %zero, %v1, %zero};
	st.global.v4.u32 [%b + 16], {%v2, %zero, %v3, %zero};
	add.u64 %i, %i, %grid;
	bra four_next;
four_end:
	shl.b64 %i, %quads, 2;
	add.u64 %i, %i, %mine;

one:
)",
						 widen_parts::prepare, R"(one_next:
	setp.ge.u64 %done, %i, %count;
	@%done bra end;
	mad.lo.u64 %x, %i, %k, %s;
)",
						 widen_parts::element, R"(	@%is_wide bra one_wide;
	shl.b64 %x, %i, 2;
	add.u64 %b, %to, %x;
	st.global.u32 [%b], %value;
	add.u64 %i, %i, %grid;
	bra one_next;
one_wide:
	shl.b64 %x, %i, 3;
	add.u64 %b, %to, %x;
	st.global.v2.u32 [%b], {%value, %zero};
	add.u64 %i, %i, %grid;
	bra one_next;
end:
	ret;
}

.visible .entry peerdma_widen_last)",
						 widen_parts::parameters, R"(	.reg .pred %done, %is_wide;
	.reg .b32 %n<2>, %bits, %skip, %left, %wide, %mask, %at, %low, %high, %value, %zero;
	.reg .b32 %i, %mine, %grid, %count, %cell, %cells;
	.reg .b64 %to, %from, %a, %b, %x, %k, %s;
	.shared .align 4 .b8 values[8192];

	ld.param.u64 %to, [param_to];
	ld.param.u64 %from, [param_from];
	ld.param.u64 %x, [param_count];
	cvt.u32.u64 %count, %x;
	ld.param.u32 %bits, [param_bits];
	ld.param.u32 %skip, [param_skip];
	ld.param.u32 %left, [param_left];
	ld.param.u32 %wide, [param_wide];
	cvta.to.global.u64 %to, %to;
	cvta.to.global.u64 %from, %from;
	mov.u32 %mine, %tid.x;
	mov.u32 %grid, %ntid.x;
	mov.u32 %cells, values;
	mov.u32 %zero, 0;
	setp.ne.u32 %is_wide, %wide, 0;
)",
						 widen_parts::prepare, R"(
	mov.u32 %i, %mine;
read_next:
	setp.ge.u32 %done, %i, %count;
	@%done bra read_end;
	cvt.u64.u32 %x, %i;
	mad.lo.u64 %x, %x, %k, %s;
)",
						 widen_parts::element, R"(	shl.b32 %cell, %i, 2;
	add.u32 %cell, %cell, %cells;
	st.shared.u32 [%cell], %value;
	add.u32 %i, %i, %grid;
	bra read_next;
read_end:
	bar.sync 0;

	mov.u32 %i, %mine;
write_next:
	setp.ge.u32 %done, %i, %count;
	@%done bra end;
	shl.b32 %cell, %i, 2;
	add.u32 %cell, %cell, %cells;
	ld.shared.u32 %value, [%cell];
	cvt.u64.u32 %x, %i;
	@%is_wide bra write_wide;
	shl.b64 %x, %x, 2;
	add.u64 %b, %to, %x;
	st.global.u32 [%b], %value;
	add.u32 %i, %i, %grid;
	bra write_next;
write_wide:
	shl.b64 %x, %x, 3;
	add.u64 %b, %to, %x;
	st.global.v2.u32 [%b], {%value, %zero};
	add.u32 %i, %i, %grid;
	bra write_next;
end:
	ret;
}
)");
inline constexpr const char *widen_kernel_ptx = widen_kernel_text.data();
static_assert(widen_last_elements * sizeof(uint32_t) == 8192, "the kernel's shared memory");

} // namespace peerdma_impl
