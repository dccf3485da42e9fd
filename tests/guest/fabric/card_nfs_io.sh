#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What the tests nfs (reads, writes, ends of files, other writers, the client's page cache, what goes under a request) and nfs_io (the block
# path's programs, a lock that is held) do with a share, by a network card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h):
# server and client in this guest, v4.2 and v3.
# group: rdma
# topologies: disks
# variants: plain
# needs: filefrag rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 1000
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/nfs_share.sh"
. "$LAB_ROOT/tests/guest/canceled.sh"

kernel_has rpcrdma nfsd nfsv3 nfsv4
publish
far_ip=10.9.1.1
# Whole pages go direct, and the rest by way of a page near them. Where the buffer's offset in a page is another one than the file's,
# all goes through the host.
FILE_ALIGN=4
went() {
	local first=$((($1 + 4095) / 4096 * 4096)) last=$((($1 + $3) / 4096 * 4096)) direct=0 reason=$4
	[ "$4" != $BUF_ALIGN ] || { echo "0 $4 $3 0 0 $3"; return; }
	[ $last -le $first ] || direct=$((last - first))
	[ "$4" != 0 ] || [ $direct = "$3" ] || reason=$FILE_ALIGN
	echo "0 $reason $3 $direct $(($3 - direct)) 0"
}
card_begins $far_ip
device_goes() { unbind_card && bind_card $far_ip; }

stored "$(nvme_disk nvme1)"
echo N >/sys/module/nfs/parameters/localio_enabled
insert peerdma_rdma peerdma_nfs
for version in 4.2 3; do share_is_right $version; done
programs_run
no_server
wipefs -qa "$(nvme_disk nvme1)"
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
cards_end
plan $tap_n
