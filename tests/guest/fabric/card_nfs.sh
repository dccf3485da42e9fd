#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA by a network card whose own DMA engine moves the bytes, server and client in this guest, without the parameter for
# soft-RoCE: QEMU's record has each byte at the GPU once for a write and once for a read. By bus address, host bridge and IOVA; refused
# where the host bridge is not trusted.
# group: rdma
# topologies: switch rp rp-vtd rp-intel
# tier: all
# variants: plain debug
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
# long: debug
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
		record_anew "$card"
		same "v$version: a read" "$EXDEV $DISTANCE 0" "$(pdio read $share/file 0 4096 0 | cut -d' ' -f1-3)"
		same "v$version: nothing at the GPU, by the card" "0 0" "$(at_gpu "$card")"
	else
		same "v$version: the kernel's rules allow it" "NONE $map" "$(says $share/file)"
		for len in 4096 $((4 * mib)); do
			[ "$LAB_TOPOLOGY" = rp-vtd ] || host dma-mark >/dev/null
			moves "v$version, $len bytes" $share/file $mib "$len"
			[ "$LAB_TOPOLOGY" = rp-vtd ] || # whose addresses are IOVAs
				same "v$version, $len bytes: the function has moved them" "ok gpu0 $((2 * len))" "$(host dma | cut -d' ' -f1-3)"
			round_trip "v$version, $len bytes" $share/file $mib "$len"
		done
		same "v$version, a read: the function writes where the kernel has mapped the GPU's memory for it" \
			"$(straight 65536) 0"$'\n'"0 65536 65536" "$(at_mapped "$card" pdio read $share/file $mib 65536 0)"
		same "v$version, a write: the function reads where the kernel has mapped the GPU's memory for it" \
			"$(straight 65536) 0"$'\n'"65536 0 65536" \
			"$(at_mapped "$card" pdio write $share/file $mib 65536 0 65536 "host fill gpu0 %AT 65536 pattern:7")"
		check "v$version, a write: the server has it" pattern compare $store/file $mib 65536 pattern:7
	fi
	umount $share
done

# Calls of 1 MiB: with 1 GiB of memory the server's default is 128 KiB. It invalidates the region of a call that has one. Of several, here
# of 32 pages each, the client invalidates all.
local_invalidates() { awk '$1 == "xprt:" && $2 == "rdma" { n += $(NF - 2) } END { print n + 0 }' /proc/self/mountstats; }
if [ "$LAB_TOPOLOGY" != rp-intel ]; then
	rpc.nfsd 0
	read -r block </proc/fs/nfsd/max_block_size
	echo $mib >/proc/fs/nfsd/max_block_size
	serve
	client vers=3,rdma,port=20049
	moves "calls of 1 MiB" $share/file $mib $((4 * mib))
	check "calls of 1 MiB: the client invalidates each region" [ "$(local_invalidates)" -ge $((2 * 4 * mib / (32 * 4096))) ]
	diag "$(local_invalidates) regions"
	umount $share
	rpc.nfsd 0
	echo "$block" >/proc/fs/nfsd/max_block_size
fi
no_server
no_memory_drive store
rmmod peerdma_nfs peerdma_rdma
cards_end
plan $tap_n
