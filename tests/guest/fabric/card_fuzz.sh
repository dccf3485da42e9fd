#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs fuzz.sh on a drive that is connected by NVMe over RDMA through a network card whose own DMA engine moves the bytes
# (tests/kmod/dmacard_rdma.h), set up as in card_io.sh.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# tier: all
# boot: fuzz
# variants: debug
# needs: rdma
# timeout: 400
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

load_module
card_drive
carried fuzz
no_card_drive
plan $tap_n
