#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every allocation and every user copy of each of our calls fails once: failnth.cpp has the table. LAB_CALLS: run only
# calls whose names contain this.
# group: fail
# topologies: switch
# variants: debug
# longer: debug
# needs: CONFIG_FAILSLAB CONFIG_FAIL_PAGE_ALLOC CONFIG_FAULT_INJECTION_USERCOPY
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/failnth 0 65536 pattern:1
sync
failnth /mnt/disk/failnth "/sys/bus/pci/devices/$(gpu_bdf)" "/sys/block/$(basename "$(nvme_disk)")"
status=$?
rm /mnt/disk/failnth
exit $status
