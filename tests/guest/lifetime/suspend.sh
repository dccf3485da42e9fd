#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The machine is hibernated (QEMU is started anew with the image) and suspended to idle. The GPU's memory
# has other bytes afterwards: no process reads them as a buffer's, and another buffer is right.
# LAB_HOW: others, as deep: to RAM. A guest that comes back from that cannot power off, so the lab calls that boot bad.
# group: lifetime
# topologies: sleep
# variants: debug
# boot: memory
# programs: peerdma suspended
# timeout: 200
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
mount -o remount,noatime /mnt/disk # nothing to write back: the kernel waits for that before all else
file=/mnt/disk/suspend
pattern fill $file 0 131072 pattern:1
sync
# The image of a hibernated guest goes there, and its kernel is told so: resume=.
{ mkswap /dev/vda && swapon /dev/vda; } >/dev/null 2>&1 || bail "no swap"
for how in ${LAB_HOW:-disk refused s2idle}; do
	relay_as $how suspended $file $how
done
swapoff /dev/vda
umount /mnt/disk
plan $tap_n
