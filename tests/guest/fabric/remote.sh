#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two guests, a storage node and this one with the GPU. The other's drive is reached by NVMe over RDMA, raw and with
# xfs, and its files by NFS over RDMA. The host compares the GPU's memory here and the drives there.
# group: rdma
# topologies: switch
# variants: plain
# peer: store storage
# needs: rdma mkfs.xfs filefrag rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has nvme-rdma rpcrdma nfsv4 xfs
plug
insert peerdma_rdma peerdma_nfs
echo 1 >$software
check "the storage node is there" host hear ready 60
len=$((2 * mib + 65536))

# takes WHAT FILE SEED [OFF]: reads from a file or drive into the GPU's memory
takes() {
	same "$1: a read" "$(straight $len) 0" "$(pdio read "$2" "${4:-0}" $len 0 $len "host fill gpu0 0 $len pattern:9" | tail -n 1)"
	check "$1: what came" host compare gpu0 0 $len "pattern:$3" "${4:-0}"
}
# gives WHAT FILE SEED: writes from the GPU's memory
gives() {
	same "$1: a write" "$(straight $len)" \
		"$(pdio write "$2" 0 $len 0 $len "host fill gpu0 %AT $len pattern:$3" | tail -n 1 | cut -d' ' -f1-6)"
}

# --- The remote drive
controller=$(connect $soon,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) || bail "no connection"
disk=$(disk_of far) || bail "no disk"
host fill peer:disk0 0 $((8 * mib)) pattern:3 >/dev/null
takes "raw" "$disk" 3 $mib
gives "raw" "$disk" 5
check "raw: what the other's drive has" host compare peer:disk0 0 $len pattern:5
check "raw: and behind it" host compare peer:disk0 $len $mib pattern:3 $len
mkfs.xfs -q -f "$disk"
mkdir -p /mnt/far
mount -t xfs "$disk" /mnt/far || bail "no xfs"
pattern fill /mnt/far/file 0 $len pattern:1
sync /mnt/far/file
takes "xfs" /mnt/far/file 1
gives "xfs" /mnt/far/file 7
check "xfs: what the other's drive has" on_drive peer:disk0 "$(extents /mnt/far/file)" $len pattern:7
umount /mnt/far
disconnect "$controller"

# --- The remote files
client vers=4.2,rdma,port=20049
far "pattern fill $store/file 0 $len pattern:2; sync $store/file"
takes "nfs" $share/file 2
gives "nfs" $share/file 8
check "nfs: what the other's drive has" on_drive peer:disk1 "$(far "sync; extents $store/file")" $len pattern:8
umount $share

dismiss
rmmod peerdma_nfs peerdma_rdma
rdma link del rxe0
plan $tap_n
