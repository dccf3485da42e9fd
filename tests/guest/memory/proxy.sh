#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The proxy address: mmap of buffers, what the CPU and plain system calls do with it, and its end: proxy.cpp.
# group: proxy
# topologies: switch
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"
publish
mount_disk
pattern fill /mnt/disk/proxied 0 4194304 pattern:1
sync
exec proxy /mnt/disk/proxied "/sys/bus/pci/devices/$(gpu_bdf)"
