#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A ring that polls a drive which has queues for polling: nothing is said by an interrupt. uring.cpp has the cases. By way
# of a network whoever calls us has connected so, and the drive behind it interrupts.
# group: io
# topologies: switch
# variants: plain
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

# with_poll_queues N: the drive's driver begins anew with so many
with_poll_queues() {
	local bdf=$1 tries=0
	echo "$2" >/sys/module/nvme/parameters/poll_queues
	echo "$bdf" >/sys/bus/pci/drivers/nvme/unbind
	echo "$bdf" >/sys/bus/pci/drivers/nvme/bind
	while [ ! -b "$(nvme_disk)" ] && [ $((tries += 1)) -lt 200 ]; do sleep 0.1; done
}

drive=$(nvme_bdf)
! mountpoint -q /mnt/disk || umount /mnt/disk
[ -n "${FAR_DISK:-}" ] || with_poll_queues "$drive" 1
publish
mount_disk
pattern fill /mnt/disk/uring 0 1048576 pattern:1
sync
uring /mnt/disk/uring /mnt/disk/uring.scratch polled
status=$?
umount /mnt/disk
[ -n "${FAR_DISK:-}" ] || with_poll_queues "$drive" 0
mount_disk
exit $status
