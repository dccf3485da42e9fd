#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The last part of `make demo-rdma`: target, server and client in this guest, connected by a network card whose own DMA engine moves the
# bytes (tests/kmod/dmacard_rdma.h). $DEMO_WAYS: nvme, nfs.
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/qemu/demo-rdma.sh"

publish
kernel_has nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv4 xfs
far_ip=10.9.1.1
card_begins $far_ip
insert peerdma_rdma peerdma_nfs
mkdir -p /mnt/far
mark() { host dma-mark >/dev/null; }
recorded() { host dma | awk '{ print $3 "/" $5 }'; }

for way in $DEMO_WAYS; do
	host way card-$way >/dev/null
	if [ "$way" = nvme ]; then
		target far "$(nvme_disk nvme1)"
		port 1 far rdma ipv4 $far_ip
		controller=$(connect transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) || bail "no connection"
		disk=$(disk_of far) || bail "no disk"
		mount -t xfs "$disk" /mnt/far || bail "no xfs"
		both_ways card-nvme /mnt/far
		extents /mnt/far/copy | placed card-nvme
		umount /mnt/far
		disconnect "$controller"
		check "the controller goes" soon 20 no_controller "$controller"
		no_targets
	else
		mount_disk nvme2 $store
		server || bail "no server"
		echo N >/sys/module/nfs/parameters/localio_enabled
		client vers=4.2,rdma,port=20049
		both_ways card-nfs $share
		sync
		extents $store/copy | placed card-nfs
		umount $share
		no_server
	fi
done
rmmod peerdma_nfs peerdma_rdma
plan $tap_n
