#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the block path's programs on a file of NFS over RDMA: rings, buffers and files by number, bad input, structs that
# change; and an unbind while another process holds the file's lock. Soft-RoCE, server and client in this guest.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/canceled.sh"

kernel_has veth rpcrdma nfsd nfsv3 nfsv4
wire
drive=$(nvme_disk nvme1)
stored "$drive"
echo N >/sys/module/nfs/parameters/localio_enabled
publish
insert peerdma_rdma peerdma_nfs
echo 1 >$software
rm -f /run/elsewhere # other tests may have left a longer one
pattern fill /run/elsewhere 0 100000 pattern:2

# group DESCRIPTION PROGRAM ARGUMENT...: runs the program on a fresh file
group() {
	publish # abi unpublishes the provider
	fresh file $mib 1
	host fill gpu0 0 $((4 * mib)) pattern:9 >/dev/null
	FAR_DISK=none whole "$@"
}
for options in vers=4.2 vers=3,nolock,mountproto=tcp; do
	client $options,rdma,port=20049
	version=${options%%,*}
	group "$version: rings" uring $share/file $share/scratch none
	group "$version: many at once" batch $share/file /run/elsewhere
	group "$version: by number" ids $share/file
	group "$version: bad input" abi $share/file $share
	group "$version: structs that change" hostile $share/file
	publish
	fill_file "$store/held"
	lock_is_held "$version" $share/held
	umount $share
done

no_server
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
unwire
wipefs -qa "$drive"
plan $tap_n
