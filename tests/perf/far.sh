#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# For make bench: reads of a file by NVMe and NFS over RDMA, by soft-RoCE and through a card that moves the bytes itself, as diagnostics
# for the host. Target and initiator, server and client are all in this guest, on one CPU.
# group: bench
# topologies: disks
# variants: plain
# boot: counting
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 900
. "$LAB_ROOT/tests/perf/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

# bench_far NAME FILE DISK
bench_far() {
	bench far "$2" "$3" "$(gpu_bdf)" | sed -u "s/^count /# count $1_/"
	same "$1 is counted" 0 "${PIPESTATUS[0]}"
}

# bench_nvme NAME IP: a file on ext4 on a drive by NVMe over RDMA
bench_nvme() {
	local controller disk
	target far "$drive"
	port 1 far rdma ipv4 "$2"
	controller=$(connect transport=rdma,traddr="$2",trsvcid=4421,nqn=far) || bail "no connection"
	disk=$(disk_of far) || bail "no disk"
	mke2fs -q -F -t ext4 "$disk" 200M
	mkdir -p /mnt/far
	mount -o commit=3000 "$disk" /mnt/far || bail "no ext4"
	moves "$1" /mnt/far/bench 0 65536
	pattern fill /mnt/far/bench 0 67108864 pattern:1
	sync
	bench_far "$1" /mnt/far/bench "$disk"
	umount /mnt/far
	disconnect "$controller"
	no_targets
}

# bench_nfs NAME IP: a file of a server's ext4
bench_nfs() {
	mke2fs -q -F -t ext4 "$drive" 200M
	mkdir -p $store
	mount -o commit=3000 "$drive" $store
	server || bail "no server"
	pattern fill $store/bench 0 67108864 pattern:1
	sync
	far_ip=$2
	client vers=4.2,rdma,port=20049
	bench_far "$1" $share/bench $share/bench
	umount $share
	no_server
}

publish
kernel_has veth nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv4
insert peerdma_rdma peerdma_nfs
echo 1 >$software
wire
echo N >/sys/module/nfs/parameters/localio_enabled
drive=$(nvme_disk nvme1)

bench_nvme nvme_rdma $far_ip
bench_nfs nfs_rdma $far_ip
rmmod peerdma_nfs peerdma_rdma || bail "our modules stay"
rdma link del rxe0
rdma link del rxe1
ip link del veth0

card_begins 10.9.1.1
insert peerdma_rdma peerdma_nfs
lacks nvme-rdma-p2p || bench_nvme nvme_card 10.9.1.1
bench_nfs nfs_card 10.9.1.1
rmmod peerdma_nfs peerdma_rdma
cards_end
plan $tap_n
