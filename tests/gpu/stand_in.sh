#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Runs a program of this folder, written for a real GPU, with the stand-in CUDA driver.
#   stand_in.sh PROGRAM
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
tmp=$(mktemp -d -p "$build")
trap 'rm -rf "$tmp"' EXIT
g++ -std=c++20 -O1 -Wall -Wextra -Werror -I"$root/include" -DPEERDMA_CUFILE_NO_CUDA_H "$root/tests/gpu/$1.cpp" \
	-o "$tmp/program" -ldl -pthread
LD_LIBRARY_PATH=$build/tests/softgpu "$tmp/program" "$build/lib/libcufile.so.0" "$tmp/file"
