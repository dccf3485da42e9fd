#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Each cuFile call must return the same through libcufile.so.0 directly as through host memory. Runs the tests of
# cufile_conformance with both GPUs' memory published and files on the drive (tests/host/cufile/cufile_ways.py).
# group: cufile
# topologies: paths
# tier: all
# variants: plain
# timeout: 500
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"

second=$(pci_of 0x1af4:0x1110 1)
publish
[ -d "/sys/bus/pci/devices/$second/p2pmem" ] || peerdma publish "$second" >/dev/null || bail "the second GPU"
mke2fs -q -F -t ext4 "$(nvme_disk)"
mount_disk
mkdir /mnt/disk/ways
export TMPDIR=/mnt/disk/ways PEERDMA_BUILD=$LAB_BUILD
relay "$LAB_ROOT/tests/host/cufile/cufile_ways.py" guest
rm -r /mnt/disk/ways
peerdma unpublish "$second" >/dev/null
plan $tap_n
