#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Memory of CUDA's, HIP's and Level Zero's in one process, whose libraries it loads one after the other: each is found by its
# address, comes as a dma-buf and goes direct, by libpeerdma and by libcufile: vendors.cpp. The libraries are stand-ins
# (tests/softgpu), and so is the driver that makes the dma-bufs (tests/kmod/expstand.c): one GPU for all of them.
# group: cufile
# topologies: switch
# variants: plain
# timeout: 90
# long: 6.12
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
modules=$(dirname "$LAB_MODULE")
file=/mnt/disk/vendors
# program WHAT: its addresses are those of all processes, so nothing else may be there
program() { SOFTGPU_STAND=$gpu setarch -R vendors "$(nvme_bdf)" "$1" $file; }
stand() {
	insmod "$modules/kmod/expstand.ko" "$@" && echo expstand >"/sys/bus/pci/devices/$gpu/driver_override" &&
		echo "$gpu" >/sys/bus/pci/drivers_probe || bail "expstand.ko"
}
no_stand() {
	same "nothing happened that must not" 0 "$(</sys/kernel/debug/expstand/wrong)"
	check "the GPU's driver goes, as nothing of it is a buffer" soon 5 rmmod expstand
}

afresh
load_module
mount_disk
pattern fill $file 0 2097152 pattern:1
sync
stand
relay program moves
pattern fill $file 0 2097152 pattern:1
sync
relay program cufile
no_stand
stand publish=0
relay program unpublished
no_stand
check "our module goes" soon 5 rmmod peerdma
plan $tap_n
