#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh ./merge_p2p PROVIDER LEG: as root, with mdadm. LEG: an NVMe drive whose contents may go, and which reaches the
# provider by peer-to-peer DMA.
set -u
program=$1 provider=$2 leg=$3
merges() {
	read -r _ reads _ <"/sys/class/block/$(basename "$leg")/stat"
	echo "$reads"
}
# merged DISK: what the leg merges while the program reads from DISK
merged() {
	before=$(merges)
	"$program" "$provider" "$1" || exit 2
	echo "$1: $(($(merges) - before)) reads merged on the leg"
}
merged "$leg"
modprobe raid0 2>/dev/null
mdadm --create /dev/md77 --run --force --quiet --metadata=1.0 --level=0 --raid-devices=1 "$leg" || exit 2
udevadm settle 2>/dev/null
merged /dev/md77
mdadm --stop --quiet /dev/md77
mdadm --zero-superblock --quiet "$leg"
