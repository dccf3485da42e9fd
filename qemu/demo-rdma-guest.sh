#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The GPU node's part of `make demo-rdma`: copies a file of the storage node into the GPU's memory and back, by NVMe
# over RDMA and by NFS over RDMA. The storage node's part is tests/peer/store.sh.
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/qemu/demo-rdma.sh"
plan 4

publish
kernel_has nvme-rdma rpcrdma nfsv4 xfs
plug
insert peerdma_rdma peerdma_nfs
echo 1 >$software
host log "$(dmesg | sed -n 's/.*\(peerdma_rdma: allow_software\)/\1/p')" >/dev/null
host hear ready 180 >/dev/null || bail "no storage node"

mkdir -p /mnt/far
host way nvme >/dev/null
controller=$(connect transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) || bail "no connection"
disk=$(disk_of far) || bail "no disk"
mount -t xfs "$disk" /mnt/far || bail "no xfs"
both_ways nvme /mnt/far
extents /mnt/far/copy | placed nvme
umount /mnt/far
disconnect "$controller"

host way nfs >/dev/null
client vers=4.2,rdma,port=20049
both_ways nfs $share
far "sync; extents $store/copy" | placed nfs
umount $share

dismiss
rmmod peerdma_nfs peerdma_rdma
rdma link del rxe0
