#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Memory of CUDA, HIP and Level Zero in one process that loads their libraries one after the other. Each is found by its
# address, exported as a dma-buf, and must go direct through libpeerdma and through libcufile, which gets it by
# cuFileBufRegister() alone (vendors.cpp). `peerdma selftest` loads the libraries itself. The libraries (tests/softgpu)
# and the exporting driver (tests/kmod/expstand.c) are stand-ins that share one GPU.
# group: cufile
# topologies: switch
# variants: plain debug
# timeout: 120
# long: oldest debug
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
modules=$(dirname "$LAB_MODULE")
file=/mnt/disk/vendors
# program WHAT: its GPU addresses are the same in all processes, so address-space randomization must be off
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
pattern fill $file 0 2097152 pattern:1
sync
PEERDMA_REQUIRE_DIRECT=1 relay program others

# self MEMORY: runs peerdma selftest on it; sets status to its exit status
self() {
	SOFTGPU_STAND=$gpu LD_LIBRARY_PATH=$LAB_BUILD/tests/softgpu setarch -R peerdma selftest --memory "$1" /mnt/disk >/run/self 2>&1
	status=$?
}
for memory in cuda hip ze; do
	self $memory
	same "selftest of $memory: it works, each step, and says whose memory it was" "0 15 1 1" \
		"$status $(grep -c '^good ' /run/self) $(grep -c '^result   works: 15 of 15' /run/self) $(grep -c "^memory   $memory$" /run/self)"
	[ $status = 0 ] || diag "$(cat /run/self)"
	check "selftest of $memory: whole blocks went direct" grep -qE '^good +read, whole blocks +524288 direct, 0 near, 0 host$' /run/self
	check "selftest of $memory: all is given back" soon 5 grep -qx 0 /sys/kernel/debug/expstand/attached
done
no_stand
pattern fill $file 0 2097152 pattern:1
sync
stand publish=0
relay program unpublished
for memory in cuda hip ze; do
	self $memory
	same "selftest of $memory that nobody published: the reason, and no step" "1 1 0" \
		"$status $(grep -c VENDOR_UNPUBLISHED /run/self) $(grep -c '^good ' /run/self)"
	diag "$(cat /run/self)"
done
peerdma selftest --memory cuda /mnt/disk >/run/self 2>&1
same "selftest without the vendor's library says so" "1 1" "$? $(grep -c 'cannot load libcuda.so.1' /run/self)"
no_stand
check "our module goes" soon 5 rmmod peerdma
plan $tap_n
