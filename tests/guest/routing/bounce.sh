#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# If the kernel bounces all DMA through host memory (swiotlb), a mapping through the host bridge succeeds but gives the
# device a copy. PeerDMA must refuse it for drives and for importers of a dma-buf.
# group: route
# topologies: bounce
# variants: plain
# timeout: 60
. "$LAB_ROOT/tests/guest/lib.sh"

EXDEV=18 MAPPING=35
publish
mount_disk
pattern fill /mnt/disk/bounce 0 65536 pattern:1
sync
same "explain: a drive" "MAPPING" "$(peerdma explain /mnt/disk/bounce | awk '$1 == "reason" { sub(":", "", $2); print $2; exit }')"
same "a read" "$EXDEV $MAPPING 0" "$(timeout 20 pdio read /mnt/disk/bounce 0 65536 0 | cut -d' ' -f1-3)"
rm /mnt/disk/bounce
insmod "$(dirname "$LAB_MODULE")/kmod/edu.ko" segment=65536 || bail "edu.ko"
relay dmabuf "$(gpu_bdf)"
rmmod edu
plan $tap_n
