#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bytes that the CPU stores in GPU memory during a read (zeros of a hole or an unwritten extent) must be read back
# before the read ends; bytes moved by a drive must not (readback.cpp).
# group: io
# topologies: switch
# tier: debug
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
