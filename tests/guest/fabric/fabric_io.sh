#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the block path's tests on a drive that is connected by NVMe over RDMA: soft-RoCE, target and initiator in this
# guest. Leaves out tests of the drive itself, of routes, and of plain system calls on the proxy.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma udevadm CONFIG_MEMCG
# timeout: 600
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has xfs
# A controller with one polling queue.
far_drive nr_poll_queues=1
# The tests from `cli` on unload and reload the module.
for name in read write edges batch ids badinput hostile limits uring_poll selftest cufile access copy cli locks lifecycle; do
	carried $name
	publish
done
# These tests make filesystems of their own on three drives.
goes_far nvme1
goes_far nvme2
for name in meanwhile verify; do
	carried $name
	publish
done
no_far_drive
plan $tap_n
