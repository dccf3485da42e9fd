#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A provider's GPU is reset or reports an error: no buffer may survive, and no read may return stale bytes as valid.
# group: lifetime
# topologies: switch
# variants: plain debug
# timeout: 90
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
file=/mnt/disk/halt
pattern fill $file 0 65536 pattern:1
sync
gpu=$(gpu_bdf)
device=/sys/bus/pci/devices/$gpu

if [ -w "$device/reset" ]; then
	diag "reset by $(cat "$device/reset_method")"
	relay_as "reset through sysfs" halt $file "$(nvme_disk)" "echo 1 >$device/reset"
else
	skip "reset through sysfs" "the function has no way to be reset"
fi

relay_as "an error of the bus" halt $file "$(nvme_disk)" "insmod $(dirname "$LAB_MODULE")/kmod/pcievent.ko bdf=$gpu && rmmod pcievent"
# An error of the switch above GPU and drive. The kernel recovers by resetting the link; the drive must come back too.
if [ -e /sys/bus/pci_express/drivers/aer ]; then
	{
		declare -f host
		echo host_id=0
		echo 'host qmp '"'"'{"execute":"human-monitor-command","arguments":{"command-line":"pcie_aer_inject_error up0 MALF_TLP"}}'"'"
		echo 'timeout 60 dmesg -w | grep -qm1 "AER: device recovery successful"'
	} >/tmp/inject
	relay_as "a fatal error of the switch" halt $file "$(nvme_disk)" "bash /tmp/inject"
else
	skip "a fatal error of the switch" "this kernel does not recover from errors of the bus"
fi
umount /mnt/disk
plan $tap_n
