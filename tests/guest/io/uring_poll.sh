#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A polling ring on a drive with polling queues: no completion may raise an interrupt (uring.cpp). With a network drive
# the initiator has polling queues, while the drive behind the target does interrupt.
# group: io
# topologies: switch
# variants: plain
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

# with_poll_queues N: rebinds the drive's driver with N polling queues
with_poll_queues() {
	local bdf=$1 tries=0
	echo "$2" >/sys/module/nvme/parameters/poll_queues
	echo "$bdf" >/sys/bus/pci/drivers/nvme/unbind
	echo "$bdf" >/sys/bus/pci/drivers/nvme/bind
	while [ ! -b "$(nvme_disk)" ] && [ $((tries += 1)) -lt 200 ]; do sleep 0.1; done
}

drive=$(nvme_bdf)
! mountpoint -q /mnt/disk || umount /mnt/disk
[ -n "${FAR_nvme0:-}" ] || with_poll_queues "$drive" 1
publish
mount_disk
pattern fill /mnt/disk/uring 0 1048576 pattern:1
sync
uring /mnt/disk/uring /mnt/disk/uring.scratch polled
status=$?
umount /mnt/disk
[ -n "${FAR_nvme0:-}" ] || with_poll_queues "$drive" 0
mount_disk
exit $status
