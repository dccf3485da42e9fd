#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The second boot of powercut.py: reports the contents of the files and checks the filesystems.
# group: fail
# topologies: disks
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"
plan 4

modprobe -d "$LAB_KERNEL" xfs 2>/dev/null
# Mounting replays the journals.
mount_disk nvme0 /mnt/ext4
mount_disk nvme1 /mnt/xfs
diag "$(powercut check /mnt/ext4 /mnt/xfs | cut -c3-)"
check "ext4 can be unmounted" umount /mnt/ext4
check "ext4 is clean" e2fsck -fn "$(nvme_disk nvme0)"
check "xfs can be unmounted" umount /mnt/xfs
check "xfs is clean" xfs_repair -n "$(nvme_disk nvme1)"
