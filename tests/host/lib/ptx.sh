#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# NVIDIA's assembler accepts our kernels, for each kind of GPU that it knows. Skipped where there is none.
. "$(dirname "$0")/../tap.sh"
temporary

for ptxas in "$(command -v ptxas)" /usr/local/cuda*/bin/ptxas ""; do
	[ -x "$ptxas" ] && break
done
if [ -z "$ptxas" ]; then
	skip "our kernels" "there is no ptxas"
	finish
fi
cat >"$tmp/print.cpp" <<'CPP'
#include <cstdio>
#include <cstring>

#include "cufile/platform/copy_kernel.hpp"
#include "lib/view/widen_kernel.hpp"

int main(int, char **argv)
{
	std::fputs(std::strcmp(argv[1], "copy") ? peerdma_impl::widen_kernel_ptx : cufile::copy_kernel_ptx, stdout);
}
CPP
g++ -std=c++20 -I"$root/user" "$tmp/print.cpp" -o "$tmp/print" || exit 1
for kernel in copy widen; do
	"$tmp/print" $kernel >"$tmp/$kernel.ptx"
	for gpu in sm_50 sm_70 sm_75 sm_80 sm_90 sm_100; do
		"$ptxas" --help | grep -q "'$gpu'" || continue
		if "$ptxas" -v -arch=$gpu -o "$tmp/$kernel.$gpu" "$tmp/$kernel.ptx" >"$tmp/out" 2>&1; then
			ok "$kernel, $gpu"
		else
			not_ok "$kernel, $gpu"
		fi
		# No local memory: a register that the assembler had to spill.
		sed 's/^/# /' "$tmp/out"
	done
done
[ $tap_n != 0 ] || skip "our kernels" "ptxas knows none of these GPUs"
finish
