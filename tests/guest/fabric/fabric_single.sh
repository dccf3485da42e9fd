#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe over RDMA without NVMe multipath (nvme_core.multipath=N): a disk belongs to one controller, has no hidden paths,
# and two connections to one namespace are two disks. Soft-RoCE, target and initiator in this guest.
# group: rdma
# topologies: disks
# boot: single
# variants: plain
# needs: rdma
# timeout: 200
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

modprobe -d "$LAB_KERNEL" -r nvme nvme_core
modprobe -d "$LAB_KERNEL" nvme_core multipath=N && modprobe -d "$LAB_KERNEL" nvme || bail "no nvme_core without multipath"
kernel_has veth nvmet nvmet-rdma nvme-rdma
nvme_is() { [ -b "$(nvme_disk nvme1)" ]; }
soon 20 nvme_is || bail "no drives"
publish
# Give up requests without an answer after a few seconds.
timeouts=/sys/module/nvme_core/parameters
read -r io_timeout <$timeouts/io_timeout
# A request that takes half a minute must end only because the path breaks.
echo 60 >$timeouts/io_timeout
same "the kernel knows no multipath" N "$(cat $timeouts/multipath)"

says() { verdict "$1" reason refused; }
# arrives OPTIONS: prints controller and disk
arrives() {
	controller=$(connect "$1,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far") || bail "no connection"
	disk=/dev/${controller}n1
	soon 10 [ -b "$disk" ] || bail "no disk"
}

wire
target far "$(nvme_disk nvme1)"
port 1 far rdma ipv4 $far_ip
arrives $patient
one=$controller
same "without its module" "RDMA_MODULE ${disk#/dev/}" "$(says "$disk")"
same "without its module: a read" "$EXDEV $RDMA_MODULE 0" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"
insert peerdma_rdma
same "software" "RDMA_SOFTWARE ${disk#/dev/}" "$(says "$disk")"
echo 1 >$software
same "with the parameter" "NONE -" "$(says "$disk")"
moves "the disk" "$disk" $mib $((2 * mib + 65536))
mke2fs -q -F -t ext4 "$disk" 64M
mkdir -p /mnt/far
mount -t ext4 "$disk" /mnt/far || bail "no ext4"
pattern fill /mnt/far/file 0 $((4 * mib)) pattern:1
sync
moves "ext4" /mnt/far/file $mib $((mib + 65536))
umount /mnt/far
for way in read write; do goes_on $way "the controller is reset" "$disk" disk1 reset "$one"; done

arrives "duplicate_connect,$soon"
two=$controller
check "a second connection is a second disk" [ "$disk" != "/dev/${one}n1" ]
moves "a second disk" "$disk" $mib 65536
gone() { echo 1 >"/sys/class/nvme/$two/delete_controller"; }
breaks "its controller goes" "$disk" disk1 gone
check "its disk with it" soon 10 [ ! -b "$disk" ]
same "the first is as it was" "$(straight 4096) 0" "$(pdio read "/dev/${one}n1" 0 4096 0)"

arrives "duplicate_connect,$soon"
# Without multipath nothing translates the driver's error.
# shellcheck disable=SC2034
ENOLINK=67
BREAKS_WITH=ENOLINK breaks "the target goes" "$disk" disk1 rm "$nvmet/ports/1/subsystems/far"
ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
check "the target comes: so does the controller" soon 60 live "$controller"
same "and the bytes" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"

# The module that goes below forgets this refusal.
echo 0 >$software
same "without the parameter again" "RDMA_SOFTWARE ${disk#/dev/}" "$(says "$disk")"
disconnect "$controller"
disconnect "$one"
no_targets
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
echo "$io_timeout" >$timeouts/io_timeout
plan $tap_n
