#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the kernel has the CPU store in the memory during a read (zeros of a hole, of an unwritten extent) is read back before
# the read ends, and what a drive has moved is not: readback.cpp.
# group: io
# topologies: switch
# needs: CONFIG_KPROBES
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
mkdir -p /mnt/disk/readback
check "files" readback /mnt/disk/readback make
umount /mnt/disk
mount_disk
insmod "$(dirname "$LAB_MODULE")/kmod/readback.ko" || bail "nothing counts"
relay readback /mnt/disk/readback
rmmod readback
rm -r /mnt/disk/readback
plan $tap_n
