#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# md and dm over drives that are connected by NVMe over RDMA through a network card whose own DMA engine moves the bytes
# (tests/kmod/dmacard_rdma.h), and over one beside a drive of this machine: fabric_stack.sh, where every byte goes direct.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain
# needs: rdma
# timeout: 300
# long: plain
# shellcheck disable=SC2034 # of fabric_stack.sh
by_card=1
. "$LAB_ROOT/tests/guest/fabric/fabric_stack.sh"
