#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The guest's part of `make demo`: copies one file of the drive's ext4 into the GPU's memory, as a user would.
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1

mount_disk
file=/mnt/disk/file
# Blocks of zeros were stored as holes, which no drive reads: allocate and write them.
if [ $(($(stat -c %b $file) * 512)) -lt "$(stat -c %s $file)" ]; then
	dd if=$file of=$file bs=1M conv=notrunc,fsync status=none
fi
publish
host dma-mark >/dev/null
json=$(peerdma cp $file gpu: --json)
status=$?
echo "# cp ${json//$'\n'/ }"
echo "# dma $(host dma)"
if [ $status = 0 ]; then ok "peerdma cp"; else not_ok "peerdma cp ended with status $status"; fi
