#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs cufile_ways.sh, the conformance tests of libcufile by each path, on a drive that is connected by NVMe over RDMA through a network
# card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h) and reaches both GPUs.
# group: rdma
# topologies: paths
# wants: nvme-rdma-p2p
# tier: all
# variants: plain
# needs: rdma
# timeout: 1500
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma
publish
finds_cards
ip=10.9.1.1
card_begins $ip
drive=$(nvme_disk nvme2) # not the card's own
own_drive "$drive"
wipefs -qa "$drive"
carried cufile_ways
# It demands that bytes go direct, by the library's counters; the card's record is full before that.
blockdev --flushbufs "$drive" # the target writes past its cache
check "its files were on the drive behind the card" blkid -p -t TYPE=ext4 "$drive"
no_own_drive "$drive"
plan $tap_n
