#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The visible side effects of a request (observed.cpp), and the counters for a write that the kernel bounces
# (busy_page.cpp).
# group: io
# topologies: switch
# timeout: 60
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/observed 0 65536 pattern:1
sync
relay observed /mnt/disk/observed
relay busy_page "$(nvme_disk)" 4096 $((600 << 20)) # a page of ext4's group descriptors; a page that ext4 does not use
plan $tap_n
