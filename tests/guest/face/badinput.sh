#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bad input must get a clear error and change nothing: abi.cpp has the cases.
# group: input
# topologies: switch
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/input 0 1048576 pattern:1
sync
exec abi /mnt/disk/input /mnt/disk
