#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tests/gpu/families.cpp, which is meant for a real GPU, with the stand-in for the CUDA driver: each family of cuFile's
# calls with each kind of memory.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
tmp=$(mktemp -d -p "$build")
trap 'rm -rf "$tmp"' EXIT
g++ -std=c++20 -O1 -Wall -Wextra -Werror -I"$root/include" -DPEERDMA_CUFILE_NO_CUDA_H "$root/tests/gpu/families.cpp" \
	-o "$tmp/families" -ldl
LD_LIBRARY_PATH=$build/tests/softgpu "$tmp/families" "$build/lib/libcufile.so.0" "$tmp/file"
