#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make format: formats the C and C++ files that differ from the last commit, as make lint wants them. Those of the kernel need its style,
# which comes with the lab's kernel.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$PEERDMA_ROOT"
command -v clang-format >/dev/null || die "there is no clang-format: scripts/setup.sh lint"

mapfile -t changed < <({ git diff --name-only --diff-filter=d HEAD && git ls-files -o --exclude-standard; } | sort -u)
mapfile -t cpp < <(printf '%s\n' "${changed[@]}" | grep -E "$CPP_FILES" || true)
mapfile -t kernel < <(printf '%s\n' "${changed[@]}" | grep -E "$KERNEL_FILES" || true)
[ ${#cpp[@]} = 0 ] || clang-format -i "${cpp[@]}"
if [ ${#kernel[@]} -gt 0 ]; then
	style=$(mktemp)
	trap 'rm -f "$style"' EXIT
	cached_kernel_style >"$style" || die "the cache has no kernel, with which its style comes: make demo"
	clang-format --style="file:$style" -i "${kernel[@]}"
fi
say "formatted: $((${#cpp[@]} + ${#kernel[@]})) files"
