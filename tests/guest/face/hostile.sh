#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Structs of every size at the edge of mapped memory, and structs that change while the kernel reads them: hostile.cpp.
# group: input
# topologies: switch
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/hostile 0 1048576 pattern:1
sync
exec hostile /mnt/disk/hostile
