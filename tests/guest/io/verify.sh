#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Random operations by ioctl, io_uring, proxy and page cache, by several processes on files of ext4 and xfs, a raw
# drive, a stripe and a mirror. The host repeats them in its memory and compares every byte (verify.cpp, replay.cpp).
# LAB_ROUNDS, LAB_OPERATIONS (per process and round) and LAB_SEED change the length and the seed; `make soak` uses them.
# group: io
# topologies: disks
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a xfs raid1 dm-mod 2>/dev/null
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
a=$(nvme_disk nvme0) b=$(nvme_disk nvme1) c=$(nvme_disk nvme2)
wipefs -qa "$a" "$b" "$c"

# The layout of the drives must match map_devices() in verify.cpp.
sectors() { echo $(($1 * mib / 512)); }
for disk in "$a" "$b"; do
	addpart "$disk" 1 0 "$(sectors 400)" && addpart "$disk" 2 "$(sectors 512)" "$(sectors 64)" &&
		addpart "$disk" 3 "$(sectors 640)" "$(sectors 64)" || bail "no partitions"
done
mke2fs -q -F -t ext4 "${a}p1" || bail "no ext4"
mkfs.xfs -q -f "${b}p1" || bail "no xfs"
mkdir -p /mnt/ext4 /mnt/xfs
mount "${a}p1" /mnt/ext4 && mount "${b}p1" /mnt/xfs || bail "nothing is mounted"
dmsetup create stripe --table "0 $(sectors 128) striped 2 128 ${a}p2 0 ${b}p2 0" || bail "no stripe"
mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --assume-clean --level=raid1 --raid-devices=2 \
	"${a}p3" "${b}p3" >/dev/null 2>&1
[ -b /dev/md0 ] || bail "no mirror"

verify "${LAB_SEED:-1}" 4 "${LAB_ROUNDS:-2}" "${LAB_OPERATIONS:-500}" \
	/mnt/ext4 /mnt/xfs "$c" /dev/mapper/stripe /dev/md0 "$c" 3>&1
status=$?

umount /mnt/ext4 /mnt/xfs
mdadm --stop --quiet /dev/md0
dmsetup remove stripe
e2fsck -fn "${a}p1" >/dev/null 2>&1 || diag "e2fsck: $?"
for disk in "$a" "$b"; do
	delpart "$disk" 1; delpart "$disk" 2; delpart "$disk" 3
	wipefs -qa "$disk"
done
exit $status
