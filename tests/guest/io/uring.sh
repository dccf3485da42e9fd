#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Reads and writes as io_uring commands: uring.cpp has the cases.
# group: io
# topologies: switch
# tier: quick
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/uring 0 1048576 pattern:1
sync
queue=/sys/block/$(basename "$(nvme_disk)")/queue
[ -z "${FAR_nvme0:-}" ] || queue=none # a network drive's is that of a path
exec uring /mnt/disk/uring /mnt/disk/uring.scratch "$queue"
