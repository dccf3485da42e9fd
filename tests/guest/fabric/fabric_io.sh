#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The block path's own tests, on the drive that they have elsewhere, by way of NVMe over RDMA: soft-RoCE, target and
# initiator in this guest. Not those of the drive itself, of routes, and of plain system calls on the proxy.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma udevadm CONFIG_MEMCG
# timeout: 600
# long: 6.12 7.2
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has xfs
# A controller with a queue to poll.
far_drive nr_poll_queues=1
# Those from cli on take the module out and in again.
for name in read write edges batch ids badinput hostile limits uring_poll selftest cufile access copy cli locks lifecycle; do
	carried $name
	publish
done
# Filesystems of their own, on three drives.
goes_far nvme1
goes_far nvme2
for name in meanwhile verify; do
	carried $name
	publish
done
no_far_drive
plan $tap_n
