#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cuFileBufRegister() of libcufile.so.0 on memory of a GPU with its own driver: peerdma_nvidia.ko registers it with a
# stand-in for NVIDIA's driver (tests/kmod/nvstand.c). I/O to it must go direct (registered.cpp).
# group: cufile
# topologies: switch
# variants: plain debug
# timeout: 150
# long: oldest debug
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
modules=$(dirname "$LAB_MODULE")
file=/mnt/disk/registered
# program WHAT [ARGS]: its GPU addresses are the same in all processes, so address-space randomization must be off
program() { SOFTGPU_STAND=$gpu setarch -R registered "$1" $file "${@:2}"; }
strict() { PEERDMA_REQUIRE_DIRECT=1 program "$@"; }

afresh
load_module
mount_disk
pattern fill $file 0 2097152 pattern:1
sync
insmod "$modules/kmod/nvstand.ko" && echo nvstand >"/sys/bus/pci/devices/$gpu/driver_override" &&
	echo "$gpu" >/sys/bus/pci/drivers_probe || bail "nvstand.ko"

relay program refused 64
relay strict refused 64
insmod "$modules/peerdma_nvidia.ko" || bail "peerdma_nvidia.ko"
relay program moves
for how in program strict; do
	pattern fill $file 0 2097152 pattern:1
	sync
	relay $how tensors
done
pattern fill $file 0 2097152 pattern:1
sync
echo 1 >/sys/module/peerdma_nvidia/parameters/callback
echo 0 >/sys/module/peerdma_nvidia/parameters/persistent
relay program lost
echo 1 >/sys/module/peerdma_nvidia/parameters/persistent
same "nothing happened that must not" 0 "$(</sys/kernel/debug/nvstand/wrong)"
check "the driver's stand-in goes, as nothing of it is registered" soon 5 rmmod nvstand
check "and ours" rmmod peerdma_nvidia
plan $tap_n
