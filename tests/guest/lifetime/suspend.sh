#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Hibernates the machine (QEMU is restarted with the image) and suspends it to idle, after which the GPU's memory has
# other bytes. No process may read them through an old buffer, and a new buffer must work. LAB_HOW: other states, such
# as deep (suspend to RAM). A guest that resumes from that cannot power off, so the lab reports that boot as bad.
# group: lifetime
# topologies: sleep
# variants: debug
# longer: debug
# boot: memory
# programs: peerdma suspended
# timeout: 200
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
mount -o remount,noatime /mnt/disk # nothing to write back: the kernel would wait for that first
file=/mnt/disk/suspend
pattern fill $file 0 131072 pattern:1
sync
# The hibernation image goes there; the kernel is started with resume=.
{ mkswap /dev/vda && swapon /dev/vda; } >/dev/null 2>&1 || bail "no swap"
for how in ${LAB_HOW:-disk refused s2idle}; do
	relay_as $how suspended $file $how
done
swapoff /dev/vda
umount /mnt/disk
plan $tap_n
