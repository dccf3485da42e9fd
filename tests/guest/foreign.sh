# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # lib.sh assigns $mib, the test $program
# Sourced after lib.sh by tests of memory that another driver has allocated in the GPU's BAR: import.sh, nvidia.sh and card_moving.sh. For
# `part` the test sets program=(NAME ARGUMENT...), a program with the cases of tests/guest/memory/foreign.hpp.

GPU=$(gpu_bdf)
export GPU
modules=$(dirname "$LAB_MODULE")
keeper_PID= # of the test's coproc

bind_to() { echo "$1" >"/sys/bus/pci/devices/$GPU/driver_override" && echo "$GPU" >/sys/bus/pci/drivers_probe; }
# part WHAT ARGUMENT...: relays a run of the program under the name WHAT
part() {
	case ${LAB_BRIEF:+$2} in moves | races) return ;; esac
	relay_as "$1" "${program[@]}" "${@:2}"
}
has_faults() { has_option CONFIG_FAILSLAB; }
end_keeper() {
	kill -9 $keeper_PID
	wait $keeper_PID 2>/dev/null
}
# foreign_files: those that foreign.hpp reads and writes
foreign_files() {
	mount_disk
	pattern fill /mnt/disk/foreign 0 $mib pattern:1
	pattern fill /mnt/disk/scratch 0 $mib pattern:2
	sync
}
# beside_lock WHAT ADDRESS COMMAND...: runs COMMAND while another has the device lock of WHAT
beside_lock() {
	local locker held
	held=$(dmesg | grep -c "devlock: holding")
	is_held() { [ "$(dmesg | grep -c "devlock: holding")" -gt "$held" ]; }
	insmod "$modules/kmod/devlock.ko" device="$2" seconds=60 &
	locker=$!
	soon 10 is_held || not_ok "another has the device lock of $1"
	"${@:3}"
	kill $locker
	wait $locker 2>/dev/null
	check "the device lock of $1 is free again" soon 5 rmmod devlock
}
