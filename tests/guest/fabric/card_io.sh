#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the block path's tests on a drive that is connected by NVMe over RDMA through a network card whose own DMA engine moves the bytes
# (tests/kmod/dmacard_rdma.h), both ends in this guest: as on the drive itself, bytes go direct. With those that demand it, which fabric_io.sh leaves out.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain
# needs: rdma udevadm CONFIG_MEMCG CONFIG_KPROBES
# timeout: 1300
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has xfs nvmet nvmet-rdma nvme-rdma
finds_cards
far_ip=10.9.1.1
! mountpoint -q /mnt/disk || umount /mnt/disk
card_begins $far_ip nvme3
export FAR_PCI=$card # which moves the bytes
# A controller with one polling queue.
goes_far nvme0 nr_poll_queues=1
# The tests from `cli` on unload and reload the module.
for name in registered proxy bench read write edges batch ids uring observed readback badinput hostile limits uring_poll selftest cufile access copy cli locks lifecycle halt; do
	carried $name
	publish
done
if command -v fio-cufile >/dev/null; then
	carried fio
else
	skip fio "no fio-cufile"
fi
# These tests make filesystems of their own on two and three drives.
goes_far nvme1
goes_far nvme2
for name in cancel meanwhile verify; do
	publish
	carried $name
done
unset FAR_PCI
come_home
cards_end
plan $tap_n
