#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A provider's GPU is reset, reports an error or is shut down: no buffer may survive, and no read may return stale bytes
# as valid. Memory that does not respond afterwards must not be given out.
# group: lifetime
# topologies: switch
# variants: plain debug
# longer: debug
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

event="insmod $(dirname "$LAB_MODULE")/kmod/pcievent.ko bdf=$gpu"
relay_as "an error of the bus" halt $file "$(nvme_disk)" "$event && rmmod pcievent"
relay_as "shutdown" halt $file "$(nvme_disk)" "$event event=shutdown && rmmod pcievent"
# An error of the switch above GPU and drive. The kernel recovers by resetting the link; the drive must come back too.
if [ -n "${FAR_nvme0:-}" ]; then # card_io.sh
	skip "a fatal error of the switch" "it resets the card as well, and the connection ends: card_ways"
elif [ -e /sys/bus/pci_express/drivers/aer ]; then
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
# decode BYTE: writes the low byte of its command register, in which 2 enables its memory
decode() { printf %b "\\x$(printf %x "$1")" | dd of="$device/config" bs=1 seek=4 conv=notrunc status=none; }
read -r enabled < <(od -An -tu1 -j4 -N1 "$device/config")
decode $((enabled & ~2))
check "an error, after which its memory does not respond" bash -c "$event && rmmod pcievent"
same "that memory is not given out" "buffer: No such device" "$(pdio read $file 0 4096 0 2>&1)"
decode "$enabled"
check "an error, after which it responds again" bash -c "$event && rmmod pcievent"
same "then it is" "0 0 4096" "$(pdio read $file 0 4096 0 | cut -d' ' -f1-3)"
umount /mnt/disk
plan $tap_n
