#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What can go direct and what is refused, with errno and reason. The verdicts must be the same on every kernel.
# group: route
# topologies: switch rp rp-vtd rp-intel mf-vtd cmb
# check: rp-vtd
# tier: quick
# variants: plain
. "$LAB_ROOT/tests/guest/lib.sh"

case $LAB_TOPOLOGY in
switch) map="bus address" distance=4 ;;
rp) map="host bridge" distance=4 ;;
rp-vtd | mf-vtd) map=iova ;;
rp-intel) reason=DISTANCE ;;
cmb) map="bus address" ;;
esac

publish
mount_disk
modprobe -d "$LAB_KERNEL" -a loop null_blk 2>/dev/null
pattern fill /mnt/disk/route 0 1048576 pattern:1
sync

# field FILE NAME: one member of the explanation
field() { peerdma explain "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["'"$2"'"])'; }

# refused DESCRIPTION FILE REASON ERRNO: explain says so, and a read fails so before anything is submitted to the drive
refused() {
	local got
	same "explain: $1" "$3" "$(field "$2" reason)"
	host dma-mark >/dev/null
	got=$(pdio read "$2" 0 4096 0 2>&1)
	same "read: $1" "$4 0" "$(cut -d' ' -f1,3 <<<"$got")"
}

EXDEV=18
file=/mnt/disk/route
if [ -n "${reason:-}" ]; then
	refused "a pair without a PCI route" $file "$reason" $EXDEV
	refused "and its raw drive" "$(nvme_disk)" "$reason" $EXDEV
else
	same "route of a file on ext4" NONE "$(field $file reason)"
	same "how the pair maps" "$map" "$(field $file map)"
	[ -z "${distance:-}" ] || same "distance" "$distance" "$(field $file distance)"
	same "route of the raw drive" NONE "$(field "$(nvme_disk)" reason)"
	same "a read goes direct" "0 0 4096 4096 0 0" "$(pdio read $file 0 4096 0 | cut -d' ' -f1-6)"
fi

if [ "$LAB_TOPOLOGY" = switch ]; then
	insmod "$(dirname "$LAB_MODULE")/kmod/nomap.ko" || bail "nomap.ko"
	# Invalidates the verdict on the drive, so that it is checked again.
	echo 0 >"/sys/block/$(basename "$(nvme_disk)")/queue/nomerges"
	refused "a drive that cannot map the memory" $file MAPPING $EXDEV
	rmmod nomap
	same "and it can again" NONE "$(field $file reason)"
fi

cp $file /tmp/route
refused "tmpfs" /tmp/route FILESYSTEM $EXDEV
refused "9p" "$LAB_ROOT/Makefile" FILESYSTEM $EXDEV
loop=$(losetup -f --show $file)
refused "a loop device on a direct file" "$loop" STACKED $EXDEV
losetup -d "$loop"
refused "a RAM-backed disk without the feature" /dev/nullb0 STACKED $EXDEV
umount /mnt/disk
check "mount with data=journal" mount -o data=journal "$(nvme_disk)" /mnt/disk
refused "a file whose data ext4 journals" $file NO_DIO $EXDEV
umount /mnt/disk

# A filesystem without extents: ext4 fills holes there through the page cache.
if [ -z "${reason:-}" ]; then
	mkdir -p /mnt/blocks
	mke2fs -q -F -t ext4 -O ^extent,^64bit "$(nvme_disk)" && mount "$(nvme_disk)" /mnt/blocks
	pattern fill /mnt/blocks/file 0 65536 pattern:1
	sync
	same "a file without extents is read" "0 0 4096 4096 0 0" "$(pdio read /mnt/blocks/file 0 4096 0 | cut -d' ' -f1-6)"
	same "and not written" "$EXDEV 19 0" "$(pdio write /mnt/blocks/file 0 4096 0 | cut -d' ' -f1-3)"
	umount /mnt/blocks
	# Later tests expect the default filesystem.
	mke2fs -q -F -t ext4 "$(nvme_disk)"
fi

# The second drive of this topology carries protection information.
[ "$LAB_TOPOLOGY" != cmb ] || refused "a drive with checksums" "$(nvme_disk nvme1)" INTEGRITY $EXDEV
plan $tap_n
