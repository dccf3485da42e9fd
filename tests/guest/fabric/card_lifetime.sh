#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The lifetime of a buffer and its provider during I/O by NVMe over RDMA through a network card whose own DMA engine moves the bytes
# (tests/kmod/dmacard_rdma.h): revoke.sh and, on a debug kernel, failnth.sh, as fabric_lifetime.sh runs them with soft-RoCE. The loss of
# the card and of the drive: card_ways.sh.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain debug
# needs: rdma CONFIG_MEMCG CONFIG_BLK_DEV_DM dmsetup
# timeout: 900
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
card_drive
mke2fs -q -F -t ext4 "$(nvme_disk)" || bail "no ext4" # other tests may have wiped it
export LAB_EVENTS=$lifetime_events
carried revoke
unset LAB_EVENTS
if [ "$LAB_VARIANT" = debug ]; then
	publish
	carried failnth
fi
no_card_drive
plan $tap_n
