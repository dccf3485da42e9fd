#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# QEMU hands switch-local bus addresses to the IOMMU: the read succeeds and the bytes are lost.
# must-fail: splat DMAR:.*fault
# topologies: switch-vtd
# needs: peerdma
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
publish
mount_disk
pattern fill /mnt/disk/file 0 1048576 pattern:3
sync
peerdma cp /mnt/disk/file gpu: >/dev/null
ok "whatever cp says"
