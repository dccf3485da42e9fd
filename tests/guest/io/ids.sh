#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Buffers and files by number: ids.cpp has the cases.
# group: io
# topologies: switch
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
# With delayed allocation ext4 journals no data, whatever a file's flags say.
umount /mnt/disk && mount -o nodelalloc "$(nvme_disk)" /mnt/disk || bail "no filesystem"
pattern fill /mnt/disk/ids 0 1048576 pattern:1
sync
exec ids /mnt/disk/ids
