#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The first boot of powercut.py: writes until the power is cut.
# group: fail
# topologies: disks
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" xfs 2>/dev/null
# QEMU's drive ignores FUA. The kernel is told that the drive has no FUA, so that it flushes instead.
for drive in nvme0 nvme1; do
	disk=$(nvme_disk $drive)
	insmod "$(dirname "$LAB_MODULE")/kmod/nofua.ko" disk="$disk" && rmmod nofua
	[ "$(cat "/sys/block/${disk##*/}/queue/fua")" = 0 ] || bail "$drive still has FUA"
done
mount_disk nvme0 /mnt/ext4
mount_disk nvme1 /mnt/xfs
exec powercut write "${LAB_SEED:-1}" "${LAB_LIE:-}" /mnt/ext4 /mnt/xfs
