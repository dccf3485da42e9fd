#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# mmap of buffers (the proxy address): access by the CPU and by plain system calls, and revocation (proxy.cpp).
# group: proxy
# topologies: switch
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"
publish
mount_disk
pattern fill /mnt/disk/proxied 0 4194304 pattern:1
sync
exec proxy /mnt/disk/proxied "/sys/bus/pci/devices/$(gpu_bdf)"
