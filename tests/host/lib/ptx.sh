#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# NVIDIA's assembler accepts our kernels, for each kind of GPU that it knows. Skipped where there is none.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

for ptxas in "$(command -v ptxas)" /usr/local/cuda*/bin/ptxas ""; do
	[ -x "$ptxas" ] && break
done
if [ -z "$ptxas" ]; then
	echo "ok 1 - our kernels # SKIP there is no ptxas"
	echo "1..1"
	exit 0
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
status=0
for kernel in copy widen; do
	"$tmp/print" $kernel >"$tmp/$kernel.ptx"
	for gpu in sm_50 sm_70 sm_75 sm_80 sm_90 sm_100; do
		"$ptxas" --help | grep -q "'$gpu'" || continue
		n=$((n + 1))
		if "$ptxas" -v -arch=$gpu -o "$tmp/$kernel.$gpu" "$tmp/$kernel.ptx" >"$tmp/out" 2>&1; then
			echo "ok $n - $kernel, $gpu"
		else
			echo "not ok $n - $kernel, $gpu"
			status=1
		fi
		# No local memory: a register that the assembler had to spill.
		sed 's/^/# /' "$tmp/out"
	done
done
echo "1..$n"
[ $n -gt 0 ] || echo "# ptxas knows none of these GPUs"
exit $status
