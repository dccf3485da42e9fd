#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The block path's own tests, on the drive that they have elsewhere, by way of NVMe over RDMA: soft-RoCE, target and
# initiator in this guest. Not those of the drive itself, of routes, and of plain system calls on the proxy.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma CONFIG_MEMCG
# timeout: 400
# long: 6.12 7.2
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth nvmet nvmet-rdma nvme-rdma xfs
insert peerdma_rdma
echo 1 >$software
wire
mountpoint -q /mnt/disk && umount /mnt/disk
target home "$(nvme_disk)"
port 1 home rdma ipv4 $far_ip
home=$(connect $soon,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=home) || bail "no connection to the drive"
FAR_DISK=$(disk_of home) || bail "no disk of the drive"
export FAR_DISK

# group NAME: all of it is ok
group() {
	"$LAB_ROOT/tests/guest/$1.sh" >/tmp/group 2>&1
	grep -q "^1\.\." /tmp/group && ! grep -A 5 "^not ok\|^Bail" /tmp/group
}
# The last two make filesystems of their own.
for name in read write edges batch ids badinput hostile limits meanwhile verify; do
	check "$name.sh" group $name
	diag "$(grep -c "^ok" /tmp/group) of it"
	! mountpoint -q /mnt/disk || umount /mnt/disk
done

unset FAR_DISK
disconnect "$home"
no_targets
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
rdma link del rxe0
rdma link del rxe1
ip link del veth0
plan $tap_n
