#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA by a network card whose own DMA engine moves the bytes, server and client in this guest, without the parameter for
# soft-RoCE: QEMU's record has each byte at the GPU once for a write and once for a read.
# group: rdma
# topologies: disks
# tier: all
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has rpcrdma nfsd nfsv3 nfsv4
publish
mib=1048576
far_ip=10.9.1.1
straight() { echo "0 0 $1 $1 0 0"; } # direct, unlike over soft-RoCE
says() { peerdma explain "$1" | awk '$1 == "reason" { sub(":", "", $2); reason = $2 } $1 == "mapping" { sub("mapping *", ""); map = $0 } END { print reason, map }'; }

card_begins $far_ip
drive=$(nvme_disk nvme1)
stored "$drive"
echo N >/sys/module/nfs/parameters/localio_enabled
fresh file $((8 * mib)) 1
insert peerdma_rdma peerdma_nfs
for version in 4.2 3; do
	client vers=$version,rdma,port=20049
	same "v$version: the kernel's rules allow it" "NONE bus address" "$(says $share/file)"
	for len in 4096 $((4 * mib)); do
		host dma-mark >/dev/null
		moves "v$version, $len bytes" $share/file $mib "$len"
		same "v$version, $len bytes: the function has moved them" "ok gpu0 $((2 * len))" "$(host dma | cut -d' ' -f1-3)"
	done
	umount $share
done
no_server
rmmod peerdma_nfs peerdma_rdma
card_ends
plan $tap_n
