#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counters, tracepoints and the commands that print them, for requests by NVMe over RDMA and NFS over RDMA through a network card whose own
# DMA engine moves the bytes (tests/kmod/dmacard_rdma.h): fabric_seeing.sh, where whole blocks and whole pages go direct. `witness` says of
# NFS that it cannot see the device.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# tier: all
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
# long: plain
# shellcheck disable=SC2034 # of fabric_seeing.sh
by_card=1
. "$LAB_ROOT/tests/guest/fabric/fabric_seeing.sh"
