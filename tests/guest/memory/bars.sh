#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Which BARs can be published, and how a BAR that may hold registers is treated (bars.cpp). QEMU's qxl has its memory in
# a BAR that is not prefetchable.
# group: input
# topologies: cmb
. "$LAB_ROOT/tests/guest/lib.sh"

device=$(pci_of 0x1b36:0x0100) || bail "no qxl"
gpu=$(gpu_bdf)
# ours BDF [DRIVER]: binds the function to the peerdma driver; not_ours returns it
ours() { echo peerdma >"/sys/bus/pci/devices/$1/driver_override" && echo "$1" >/sys/bus/pci/drivers/peerdma/bind; }

afresh
load_module
mount_disk
pattern fill /mnt/disk/bars 0 65536 pattern:1
sync
check "the command publishes no registers" bash -c "! peerdma publish $device --bar 0 2>/tmp/said"
check "and says why, and how" grep -q NOT_PREFETCHABLE /tmp/said
same "the device was not touched" "(null)" "$(cat "/sys/bus/pci/devices/$device/driver_override")"
check "on demand it does" peerdma publish "$device" --bar 0 --size 4M --non-prefetchable
check "and takes it back" peerdma unpublish "$device"

drive=$(nvme_bdf nvme1)
check "memory of a function whose MSI-X table is in another BAR is published" peerdma publish "$drive" --bar 2 --size 4M --force
check "and taken back" peerdma unpublish "$drive"
echo >"/sys/bus/pci/devices/$drive/driver_override"
echo "$drive" >/sys/bus/pci/drivers_probe
check "its drive comes back" soon 20 nvme_disk nvme1

ours "$device"
relay bars registers "$device" 0 /mnt/disk/bars
echo >"/sys/bus/pci/devices/$device/driver_override"
ours "$gpu"
relay bars combined "$gpu" 2
echo >"/sys/bus/pci/devices/$gpu/driver_override"
plan $tap_n
