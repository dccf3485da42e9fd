#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Files that grow, shrink, are frozen and run out of space while they are read and written; signals: meanwhile.cpp has
# the cases.
# group: io
# topologies: disks
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" xfs 2>/dev/null
a=$(nvme_disk nvme0) b=$(nvme_disk nvme1) c=$(nvme_disk nvme2)
wipefs -qa "$a" "$b" "$c"
mkdir -p /mnt/ext4 /mnt/small /mnt/xfs
mke2fs -q -F -t ext4 "$a" && mount "$a" /mnt/ext4 || bail "no ext4"
mke2fs -q -F -t ext4 -b 4096 "$c" 16M && mount "$c" /mnt/small || bail "no small ext4"
mkfs.xfs -q -f "$b" && mount "$b" /mnt/xfs || bail "no xfs"

relay_whole ext4 meanwhile /mnt/ext4 /mnt/small
relay_whole xfs meanwhile /mnt/xfs /mnt/small

# Truncate the file between the length check and the read, to less than where the read begins: bounced through a page of
# the provider, and of the host.
for fs in ext4 xfs; do
	for buf_off in 400 1; do
		pattern fill /mnt/$fs/cut 0 65536 pattern:1
		sync
		same "$fs: cut before where a read begins, to place $buf_off" "0 0" "$(inode /mnt/$fs/cut cut $buf_off)"
	done
done

umount /mnt/ext4 /mnt/small /mnt/xfs
check "ext4 is clean" e2fsck -fn "$a"
check "the small ext4 is clean" e2fsck -fn "$c"
check "xfs is clean" xfs_repair -n "$b"
wipefs -qa "$a" "$b" "$c"
plan $tap_n
