#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA by a network card whose own DMA engine moves the bytes, server and client in this guest, without the parameter for
# soft-RoCE: QEMU's record has each byte at the GPU once for a write and once for a read. By bus address, host bridge and IOVA; refused
# where the host bridge is not trusted.
# group: rdma
# topologies: switch rp rp-vtd rp-intel
# tier: all
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has rpcrdma nfsd nfsv3 nfsv4
publish
DISTANCE=34
far_ip=10.9.1.1
says() { verdict "$1" reason mapping; }
case $LAB_TOPOLOGY in
switch) map="bus address" ;;
rp) map="host bridge" ;;
rp-vtd) map=iova ;;
esac

card_begins $far_ip
memory_drive store 256
stored /dev/store
echo N >/sys/module/nfs/parameters/localio_enabled
fresh file $((8 * mib)) 1
insert peerdma_rdma peerdma_nfs
for version in 4.2 3; do
	client vers=$version,rdma,port=20049
	if [ "$LAB_TOPOLOGY" = rp-intel ]; then
		same "v$version: the host bridge is not trusted" "DISTANCE none" "$(says $share/file)"
		same "v$version: a read" "$EXDEV $DISTANCE 0" "$(pdio read $share/file 0 4096 0 | cut -d' ' -f1-3)"
	else
		same "v$version: the kernel's rules allow it" "NONE $map" "$(says $share/file)"
		for len in 4096 $((4 * mib)); do
			[ "$LAB_TOPOLOGY" = rp-vtd ] || host dma-mark >/dev/null
			moves "v$version, $len bytes" $share/file $mib "$len"
			[ "$LAB_TOPOLOGY" = rp-vtd ] || # whose addresses are IOVAs
				same "v$version, $len bytes: the function has moved them" "ok gpu0 $((2 * len))" "$(host dma | cut -d' ' -f1-3)"
		done
	fi
	umount $share
done
no_server
no_memory_drive store
rmmod peerdma_nfs peerdma_rdma
cards_end
plan $tap_n
