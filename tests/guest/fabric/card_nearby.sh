#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A network card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h) reaches the second GPU but not the first: libcufile.so.0
# routes the bytes of a drive by NVMe over RDMA through the second one's memory, as it does for a drive in the same place (nearby.sh).
# group: rdma
# topologies: far
# tier: all
# wants: nvme-rdma-p2p
# variants: plain debug
# needs: rdma CONFIG_OVERLAY_FS
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma
publish
finds_cards
ip=10.9.1.1
card_begins $ip
# The target's drive is not the card's own, and the host sees what is on it.
drive=/dev/vda
wipefs -qa $drive
mke2fs -q -F -t ext4 $drive 64M || bail "no ext4"
own_drive $drive
export FAR_IMAGE=disk1
record_anew "$card"
carried nearby
same "at the first GPU, by the card" "0 0" "$(at_gpu "$card")"
# nearby.cpp reads a file of 6 MiB and writes half of it, besides less.
read -r out in < <(at_gpu "$card" "$(pci_of 0x1af4:0x1110 1)")
check "at the second one, by the card: read" [ "$out" -ge $((3 * mib)) ]
check "at the second one, by the card: written" [ "$in" -ge $((6 * mib)) ]
unset FAR_IMAGE
no_own_drive $drive
plan $tap_n
