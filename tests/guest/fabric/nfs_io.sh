#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the block path's programs on a file of NFS over RDMA: rings, buffers and files by number, bad input, structs that
# change, cuFile; and an unbind while another process holds the file's lock. Soft-RoCE, server and client in this guest.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 420
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/nfs_share.sh"
. "$LAB_ROOT/tests/guest/canceled.sh"

kernel_has veth rpcrdma nfsd nfsv3 nfsv4
wire
drive=$(nvme_disk nvme1)
stored "$drive"
echo N >/sys/module/nfs/parameters/localio_enabled
publish
insert peerdma_rdma peerdma_nfs
echo 1 >$software
FAR_DISK=none programs_run # the CPU copies

no_server
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
unwire
wipefs -qa "$drive"
plan $tap_n
