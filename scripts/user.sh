#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# user.sh TARGET...: builds user space quietly; shows the output after a failure.
set -euo pipefail
. "$(dirname "$0")/common.sh"

mkdir -p "$PEERDMA_BUILD"
if [ -n "${V:-}" ]; then
	exec make --no-print-directory -C "$PEERDMA_ROOT/user" -j"$(nproc)" BUILD="$PEERDMA_BUILD" V=1 "$@"
fi
make --no-print-directory -q -C "$PEERDMA_ROOT/user" BUILD="$PEERDMA_BUILD" "$@" 2>/dev/null ||
	step "building user space: $*"
make --no-print-directory -C "$PEERDMA_ROOT/user" -j"$(nproc)" BUILD="$PEERDMA_BUILD" "$@" >"$PEERDMA_BUILD/user.log" 2>&1 ||
	{ cat "$PEERDMA_BUILD/user.log" >&2; die "user space does not build"; }
