#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Storage faults: in the block layer, in the drive, lost completions, a full filesystem, an error table (iofaults.cpp).
# group: fail
# topologies: switch
# variants: debug
# needs: CONFIG_FAIL_MAKE_REQUEST CONFIG_FAIL_IO_TIMEOUT CONFIG_BLK_DEV_DM
# timeout: 90
. "$LAB_ROOT/tests/guest/lib.sh"
export DM_DISABLE_UDEV=1

publish
disk=$(nvme_disk)
mount_disk
pattern fill /mnt/disk/iofaults 0 65536 pattern:1
sync
relay_whole full iofaults full /mnt/disk/iofaults
rm /mnt/disk/iofaults
umount /mnt/disk
check "the filesystem is clean" e2fsck -fn "$disk"

# No filesystem is mounted that a fault could hit by accident. The drive's first 64 KiB are restored afterwards.
dd if="$disk" of=/run/start bs=64k count=1 iflag=direct status=none || bail "no copy"
modprobe -d "$LAB_KERNEL" dm-mod 2>/dev/null
relay_whole errors iofaults errors "/sys/block/${disk##*/}" "$disk"
table swapped "0 2048 linear $disk 0"
relay_whole table iofaults table swapped "0 2048 linear $disk 0"
check "the table can be removed" dmsetup remove swapped
check "the drive is as it was" dd if=/run/start of="$disk" bs=64k count=1 oflag=direct status=none
plan $tap_n
