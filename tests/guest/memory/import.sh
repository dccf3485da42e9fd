#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Other exporters' dma-bufs as buffers (import.cpp): our stand-in exporter (tests/kmod/expstand.c) with valid and faulty
# dma-bufs, the kernel's own exporter of host memory, and PeerDMA itself. If the drive is behind a translating IOMMU or
# does not reach the memory, all must be refused. LAB_BRIEF: as in nvidia.sh.
# group: lifetime
# topologies: switch rp rp-vtd rp-intel
# timeout: 180
# long: oldest debug
# coverage: gcov debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/foreign.sh"

drive=$(nvme_bdf)
program=(import "$drive")
ENOMEM=12 EBUSY=16 EOPNOTSUPP=95 EDQUOT=122
CGROUP_LIMIT=57 BUSY=72 REVOCABLE=78 IOMMU=80 HOST=84 ADDRESS=85 OURS=71 UNPUBLISHED=69
rounds=40
[ "$LAB_VARIANT" = plain ] || rounds=6

stand() { insmod "$modules/kmod/expstand.ko" "$@" && bind_to expstand; }
no_stand() { check "the exporter goes" soon 5 rmmod expstand; }
# allow 1|0: allows exporters that can revoke
allow() { echo "$1" >/sys/module/peerdma/parameters/revocable_imports; }
is() { [ "$(</sys/kernel/debug/expstand/"$1")" = "$2" ]; }
# keep KIND FILE: starts a process that imports memory and reads
keep() {
	coproc keeper { exec "${program[@]}" keep "$@"; } # sets keeper_PID
	read -r said <&"${keeper[0]}"
	same "a process keeps some" imported "$said"
}
lost() {
	read -r said <&"${keeper[0]}"
	same "$1" gone "$said"
}
# no_memory_for WHAT FUNCTION ARGS: a part for which this kernel function finds no memory
no_memory_for() { relay_as "no memory for $1" without_memory "$2" "${program[@]}" "${@:3}"; }
# region FILE: prints the GPU's value in a file of the dmem controller; nothing if there is no such region
region() { sed -n "s|^peerdma/$GPU ||p" "/mnt/cgroup/$1"; }
# with_dmem COMMAND...: if the kernel has that controller, runs the command with a cgroup "payer" beside this process's
with_dmem() {
	mkdir -p /mnt/cgroup
	mount -t cgroup2 none /mnt/cgroup
	if grep -qw dmem /mnt/cgroup/cgroup.controllers; then
		echo +dmem >/mnt/cgroup/cgroup.subtree_control
		mkdir /mnt/cgroup/payer
		"$@"
		rmdir /mnt/cgroup/payer
		echo -dmem >/mnt/cgroup/cgroup.subtree_control
	fi
	umount /mnt/cgroup
}
# who_pays: imported memory is charged to the importer's cgroup, up to its limit
who_pays() {
	same "nothing of another driver's is offered before it is imported" '' "$(region dmem.capacity)"
	echo $$ >/mnt/cgroup/payer/cgroup.procs
	keep dynamic /mnt/disk/foreign
	echo $$ >/mnt/cgroup/cgroup.procs
	same "who imports pays" 1048576 "$(region payer/dmem.current)"
	check "of what the GPU has" [ "$(region dmem.capacity)" -ge 1048576 ]
	echo "peerdma/$GPU 2031616" >/mnt/cgroup/payer/dmem.max
	echo $$ >/mnt/cgroup/payer/cgroup.procs
	part "beyond its cgroup's limit" beside $CGROUP_LIMIT $EDQUOT
	echo $$ >/mnt/cgroup/cgroup.procs
	end_keeper
	check "and does not once the process has ended" soon 5 eval '[ -z "$(region dmem.capacity)" ]'
}

afresh
load_module
stand || bail "expstand.ko"

case $LAB_TOPOLOGY in
rp-vtd)
	part "behind an IOMMU" refused $IOMMU $EOPNOTSUPP
	part "behind an IOMMU" host $IOMMU $EOPNOTSUPP
	no_stand
	plan $tap_n
	exit
	;;
rp-intel)
	part "out of reach" refused $ADDRESS $EOPNOTSUPP
	part "out of reach" host $HOST $EOPNOTSUPP
	no_stand
	plan $tap_n
	exit
	;;
esac

foreign_files

if has_faults; then
	# The first import that succeeds creates what only the drive's unbinding removes.
	no_memory_for "the drive" platform_device_alloc refused $BUSY $EBUSY
fi
part "scattered" moves static scattered
if [ "$LAB_VARIANT" = plain ]; then
	part "contiguous" moves static linear
	part "pinned, from a page on" moves dynamic page
fi
if [ "$LAB_TOPOLOGY" != switch ]; then
	no_stand
	plan $tap_n
	exit
fi
# By dma_buf_attach_revocable() an exporter asks whether an importer can be told. Without it our own refuses to pin.
if has_function dma_buf_attach_revocable; then asks=1; else asks=''; fi
if [ -z "$asks" ]; then
	skip "exporters that take back" "nobody on this kernel says whether it can be told"
else
	part "not allowed" revocable $REVOCABLE $EOPNOTSUPP
fi
allow 1
part "pinned, and might be taken back" moves dynamic linear
part "numbers" numbers
part "on its way" late
part "troubles" troubles
part "two of them" once
if has_faults; then
	keep static /mnt/disk/foreign
	no_memory_for "its number" __xa_alloc_cyclic beside 0 $ENOMEM
	end_keeper
	check "no memory for its number: the exporter has all of it back" soon 5 is attached 0
fi
beside_lock "the drive" "$drive" part "another has the drive's device lock" refused $BUSY $EBUSY
insmod "$modules/kmod/astray.ko" || bail "astray.ko"
part "mapped elsewhere" refused $ADDRESS $EOPNOTSUPP
rmmod astray
part "not ours" host $HOST $EOPNOTSUPP
part "taken back" moved
part "all at once" races $rounds

with_dmem who_pays
keep dynamic /mnt/disk/foreign
check "the exporter stays meanwhile" eval '! rmmod expstand 2>/dev/null'
end_keeper
check "a process that is killed keeps nothing" soon 5 is attached 0
for kind in static dynamic; do
	keep $kind /mnt/disk/foreign
	check "$kind: the GPU is unbound" timeout 20 bash -c "echo $GPU >/sys/bus/pci/drivers/expstand/unbind"
	lost "$kind: who had some has lost it"
	check "$kind: the exporter had all of it back first" is mapped 0
	end_keeper
	bind_to expstand
done

driver=/sys/bus/pci/drivers/nvme
keep static /mnt/disk/foreign
hold_lock /mnt/disk/foreign
echo "$drive" >$driver/unbind &
check "the drive is unbound during a read that waits for a file's lock" soon 20 ended $!
check "which another still has" kill -0 "$locker"
check "and the exporter has the memory back" soon 5 is mapped 0
release_lock
lost "who had some has lost it"
end_keeper
umount -l /mnt/disk
echo "$drive" >$driver/bind
check "the drive comes back from that" soon 20 nvme_disk

# The drive is unbound during reads of the raw device, not of a filesystem.
keep static "$(nvme_disk)"
# A read takes 16 s. A thread that needs the drive's device lock to end it must get the lock.
throttle 4096
soon 20 waits $keeper_PID || not_ok "a slow read is under way"
echo "$drive" >$driver/unbind &
unbind=$!
sleep 0.5
insmod "$modules/kmod/devlock.ko" device="$drive" seconds=0 &
locker=$!
check "others get the drive's device lock while its unbinding waits for a read" eval 'soon 10 ended $locker && kill -0 $unbind'
throttle 0
check "the drive is unbound" soon 40 ended $unbind
wait $locker
rmmod devlock
lost "who had some has lost it with the drive"
check "and the exporter has it back" soon 5 is mapped 0
same "nothing wrong" 0 "$(</sys/kernel/debug/expstand/wrong)"
part "no driver" refused 79 $EOPNOTSUPP
end_keeper # with the drive still open it would get a different name
echo "$drive" >$driver/bind
check "the drive comes back" soon 20 nvme_disk
same "nothing wrong" 0 "$(</sys/kernel/debug/expstand/wrong)"
no_stand

stand publish=0
part "a BAR that nobody has published" refused $UNPUBLISHED $EOPNOTSUPP
no_stand
publish --bar 2 --size 16M
offers() { same "what is published is offered, all of it" 16777216 "$(region dmem.capacity)"; }
with_dmem offers
if [ -z "$asks" ]; then # our own cannot be pinned there
	part "our own exporter" ours 81 $EOPNOTSUPP
else
	part "our own exporter" ours $OURS $EOPNOTSUPP
	allow 0
	part "our own exporter, not allowed" ours $REVOCABLE $EOPNOTSUPP
fi
peerdma unpublish "$GPU" >/dev/null
if ! has_option CONFIG_VFIO_PCI_DMABUF; then
	skip "vfio-pci" "it exports no dma-bufs before 6.19"
elif [ "$LAB_VARIANT" != plain ]; then
	skip "vfio-pci" "the kernel leaks its scatterlists: Documentation/upstream"
else
	allow 1
	modprobe -d "$LAB_KERNEL" vfio enable_unsafe_noiommu_mode=1
	modprobe -d "$LAB_KERNEL" -a iommufd vfio-pci
	bind_to vfio-pci
	group=$(readlink "/sys/bus/pci/devices/$GPU/iommu_group")
	part "vfio-pci" vfio $UNPUBLISHED $EOPNOTSUPP "$GPU" "/dev/vfio/noiommu-${group##*/}"
	allow 0
	echo "$GPU" >/sys/bus/pci/drivers/vfio-pci/unbind
	modprobe -d "$LAB_KERNEL" -r vfio-pci
fi
check "our module goes" soon 5 rmmod peerdma

plan $tap_n
