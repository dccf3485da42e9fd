#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The GPU node's part of `make demo-rdma`: copies a file of the storage node into the GPU's memory and back, by NVMe
# over RDMA and by NFS over RDMA. The storage node's part is tests/peer/store.sh.
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
plan 4

publish
kernel_has nvme-rdma rpcrdma nfsv4 xfs
plug
insert peerdma_rdma peerdma_nfs
echo 1 >$software
host log "$(dmesg | sed -n 's/.*\(peerdma_rdma: allow_software\)/\1/p')" >/dev/null
host hear ready 180 >/dev/null || bail "no storage node"

# takes WAY FILE: copies FILE into the GPU's memory as a user would. The host then compares the memory, before it is
# reused.
takes() {
	local json
	json=$(peerdma cp "$2" gpu: --json)
	check "$1: read" host took "$1" "${json//$'\n'/ }"
}

# gives WAY FILE: writes to FILE what the host has put into the GPU's memory
gives() {
	check "$1: write" host gave "$1" \
		"$(pdio write "$2" 0 "$DEMO_SIZE" 0 "$DEMO_ROOM" "host fill gpu0 %AT $DEMO_SIZE $LAB_OUT/source")"
}

# placed WAY: tells the host the extents (from stdin) of the new file on the storage node's drive
placed() { host placed "$1" "$(tr '\n' ' ')" >/dev/null; }

mkdir -p /mnt/far
host way nvme >/dev/null
controller=$(connect transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) || bail "no connection"
disk=$(disk_of far) || bail "no disk"
mount -t xfs "$disk" /mnt/far || bail "no xfs"
takes nvme /mnt/far/file
gives nvme /mnt/far/copy
sync /mnt/far/copy
extents /mnt/far/copy | placed nvme
umount /mnt/far
disconnect "$controller"

host way nfs >/dev/null
client vers=4.2,rdma,port=20049
takes nfs $share/file
gives nfs $share/copy
sync $share/copy
far "sync; extents $store/copy" | placed nfs
umount $share

dismiss
rmmod peerdma_nfs peerdma_rdma
rdma link del rxe0
