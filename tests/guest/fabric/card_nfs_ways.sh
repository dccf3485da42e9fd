#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA, v4.2, by a network card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h), and what is under way when a
# queue pair errs, the link, the card or the server goes, or the GPU is unbound. Each request becomes whole, or a forced unmount ends it and
# nothing reaches the GPU's memory, or is fetched from it, afterwards. Server and client in this guest. With soft-RoCE: ways.sh.
# group: rdma
# topologies: disks
# wants: xprtrdma-release
# variants: plain debug
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 700
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has rpcrdma nfsd nfsv4
publish
far_ip=10.9.1.1
! mountpoint -q /mnt/disk || umount /mnt/disk
card_begins $far_ip
stored "$(nvme_disk nvme1)"
echo N >/sys/module/nfs/parameters/localio_enabled
insert peerdma_rdma peerdma_nfs
fresh file $mib 1
client vers=4.2,rdma,port=20049
device_goes() { unbind_card; }
device_is_back() { bind_card $far_ip; }

# An end that sends nothing does not learn of it.
an_end_has_erred() { [ "$(rdma res show qp link dmacard0 | grep -c "type RC state RTS")" -lt 2 ]; }
link_goes_and_comes() {
	local lost
	ip link set card0 down
	timeout 5 stat -f $share # has the client send
	soon 30 an_end_has_erred
	lost=$?
	ip link set card0 up
	ip addr add $far_ip/24 dev card0 2>/dev/null # removed with the link, perhaps
	return $lost
}
# outlasts_write DESCRIPTION COMMAND...: as outlasts, under a write of one call, which the server's frozen filesystem holds up. The server
# still answers other calls.
outlasts_write() {
	local before what="$1 under a write"
	fresh slow 65536 1
	begins /tmp/slow write $share/slow 0 65536 0 65536 "fsfreeze -f $store; host fill gpu0 %AT 65536 pattern:5"
	check "$what: a request is under way" kill -0 $begun
	before=$(connections)
	check "$what: it does happen" "${@:2}"
	fsfreeze -u $store
	soon 240 ended $begun || bail "$what: the request does not end"
	same "$what: it is whole" "$(straight 65536)" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
	check "$what: and its bytes" pattern compare $store/slow 0 65536 pattern:5
	check "$what: another connection" [ "$(connections)" -gt "$before" ]
}
queue_errs() { POST_SEND=dmacard_post_send qp_errs rpcrdma_wc_send timeout 60 stat -f $share; }
outlasts "NFS, a queue pair errs" disk1 queue_errs
outlasts_write "NFS, a queue pair errs" queue_errs
check "the module that made them err goes" rmmod qperr
outlasts "NFS, the link goes and comes" disk1 link_goes_and_comes
outlasts_write "NFS, the link goes and comes" link_goes_and_comes
device_is_lost disk1
server_is_lost
gpu_is_taken disk1

umount $share
no_server
wipefs -qa "$(nvme_disk nvme1)"
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
cards_end
plan $tap_n
