#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A GPU is reset, suspended, or errs, while it is a provider: no buffer outlives that, and nobody gets old bytes as good ones.
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
	relay_as "reset through sysfs" halt $file "echo 1 >$device/reset"
else
	skip "reset through sysfs" "the function has no way to be reset"
fi

# Every device's driver is told to suspend, and to resume 5 s later.
if [ -w /sys/power/pm_test ]; then
	echo devices >/sys/power/pm_test
	relay_as "suspend to idle" halt $file "echo freeze >/sys/power/state"
	if grep -qw disk /sys/power/state; then
		relay_as "hibernation" halt $file "echo devices >/sys/power/pm_test && echo test_resume >/sys/power/disk && echo disk >/sys/power/state"
	fi
	echo none >/sys/power/pm_test
else
	skip "suspend to idle" "this kernel cannot suspend"
fi
umount /mnt/disk
plan $tap_n
