#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# module.sh KDIR: builds peerdma.ko, peerdma_rdma.ko, peerdma_nfs.ko and peerdma_nvidia.ko for one kernel in the build
# folder, and prints the path of peerdma.ko. KDIR is a kernel's build folder, or a folder of the lab's cache. With W=1,
# and always for the lab's own kernels, more warnings are enabled and a warning is a failure.
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ -n "${1:-}" ] || die "usage: module.sh KDIR"
kdir=$(realpath -e "$1" 2>/dev/null) || die "no kernel at $1: install its headers, or give KDIR="
name=$(basename "$kdir")
# A kernel that was never tested may cause harmless warnings: show them and continue.
strict=${W:+1}
if [ -f "$kdir/version" ]; then
	kdir=$kdir/build
	[ -n "${KSRC:-}" ] || strict=1
fi
[ -f "$kdir/Makefile" ] || die "$kdir is not a kernel's build folder"
[ "$name" != build ] || name=$(basename "$(dirname "$kdir")")

# Kbuild puts objects beside the sources: each kernel gets a copy of them.
build_module() {
	local from=$1 to=$2
	mkdir -p "$to"
	rsync -a --delete --include='*/' --include='*.[ch]' --include='Kbuild*' --exclude='*' --filter='P *' "$from/" "$to/"
	make -j"$(nproc)" -C "$kdir" M="$to" W="${strict:+1}" ${V:+V=1} modules >"$to/log" 2>&1 || { cat "$to/log" >&2; die "$from does not build for $name"; }
	# Ignore the kernel's warning about a different compiler.
	if grep -E 'warning:|WARNING' "$to/log" | grep -v 'the compiler differs' >&2 && [ -n "$strict" ]; then
		rm -f "$to"/*.ko
		die "$from builds with warnings for $name"
	fi
}

# With gcov it is another module: make coverage.
out=$PEERDMA_BUILD/kernel/$name${PEERDMA_GCOV:+-gcov}
mkdir -p "$out/src/include"
exec 8>"$out/lock"
flock 8 # waits for a concurrent build
rsync -a "$PEERDMA_ROOT/include/uapi" "$out/src/include/"
build_module "$PEERDMA_ROOT/kernel" "$out/src/kernel"
for ko in "$out"/src/kernel/*.ko; do
	[ ! -f "$ko" ] || rsync -t "$ko" "$out/"
done
echo "$out/peerdma.ko"
