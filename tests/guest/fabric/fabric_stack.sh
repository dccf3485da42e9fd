#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# md and dm over NVMe-over-RDMA drives, and over such a drive beside a local one. Each leaf must be checked, the bytes
# must be right on each, and a leg whose path breaks must be an error. Soft-RoCE, target and initiator in this guest.
# card_stack.sh sources this, with by_card set.
# group: rdma
# topologies: disks
# boot: fabric
# variants: plain
# needs: rdma
# timeout: 200
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/stacked.sh"

publish
kernel_has veth nvmet nvmet-rdma nvme-rdma nvme-loop
modprobe -d "$LAB_KERNEL" -a raid0 raid1 raid10 raid456 md-linear dm-mod dm-crypt 2>/dev/null
DM_TARGET=37 MD_LEVEL=38 FABRIC_LOOP=43
insert peerdma_rdma
timeouts=/sys/module/nvme_core/parameters
read -r io_timeout <$timeouts/io_timeout
# A card's copies are slow.
[ -n "${by_card:-}" ] || echo 5 >$timeouts/io_timeout
! mountpoint -q /mnt/disk || umount /mnt/disk
if [ -n "${by_card:-}" ]; then
	far_ip=10.9.1.1
	card_begins $far_ip nvme3
	how='' unbounced="0 0 4096"
	soon=${soon/keep_alive_tmo=2/keep_alive_tmo=60}
else
	echo 1 >$software
	wire
	how=:software unbounced="$EXDEV $RDMA_SOFTWARE 0"
fi
here=$(nvme_disk nvme2)
for name in nvme0 nvme1 nvme2; do wipefs -qa "$(nvme_disk $name)"; done
# away NUMBER: connects the drive of that number over the network; records its controller and leaf
away() {
	target "far$1" "$(nvme_disk "nvme$1")"
	port $(($1 + 1)) "far$1" rdma ipv4 $far_ip
	controller[$1]=$(connect "$soon,transport=rdma,traddr=$far_ip,trsvcid=$((4421 + $1)),nqn=far$1") || bail "no connection"
	disk[$1]=$(disk_of "far$1") || bail "no disk"
	path=${disk[$1]%n1}c${controller[$1]#nvme}n1
	leaf[$1]=${path##*/}$how
}
declare -a controller disk leaf
away 0
away 1
a=${disk[0]} b=${disk[1]}

# --- md
for level in raid0 linear raid1 raid10; do
	[ $level != linear ] || modprobe -d "$LAB_KERNEL" -qn md-linear || continue
	array $level "$a" "$b"
	moves_on "$level" /dev/md0 "${leaf[@]}"
	same "$level: a read that nothing may bounce" "$unbounced" "$(NO_BOUNCE=1 pdio read /dev/md0 0 4096 0 | cut -d' ' -f1-3)"
	disband "$a" "$b"
done
array raid1 "$a" "$b"
pdio write /dev/md0 $off $len 0 $((2 * mib)) "host fill gpu0 %AT $((2 * mib)) pattern:7" >/dev/null
check "raid1: the first leg has it" host compare disk0 $off $len pattern:7
check "raid1: the second leg has it" host compare disk1 $off $len pattern:7
disband "$a" "$b"
array 5 "$a" "$b" "$here"
refused "raid5" /dev/md0 $MD_LEVEL MD_LEVEL md0
disband "$a" "$b" "$here"

# If one of two legs has no path to the GPU, the whole has none and the refusal names that leg.
port 3 far1 loop
other=$(connect transport=loop,nqn=far1) || bail "no loop"
disband_other() { disconnect "$other"; rm $nvmet/ports/3/subsystems/far1; rmdir $nvmet/ports/3; }
both_paths() { peerdma explain "$b" | grep -q FABRIC_LOOP; }
check "raid1: a path of a leg by nvme-loop" soon 10 both_paths
array raid1 "$a" "$b"
other_path=${b#/dev/}
refused "raid1 with such a leg" /dev/md0 $FABRIC_LOOP FABRIC_LOOP "${other_path%n1}c${other#nvme}n1" "${leaf[@]}"
disband "$a" "$b"
disband_other

# --- device-mapper
half=$((192 * 2048))
table lin "0 $half linear $b 2048
$half $half linear $a 4096"
moves_on "dm linear" /dev/mapper/lin "${leaf[@]}"
dmsetup reload lin --table "0 $half crypt aes-ecb-null 00112233445566778899aabbccddeeff 0 $b 2048" && dmsetup resume lin
refused "then crypt over one of them" /dev/mapper/lin $DM_TARGET DM_TARGET "$(dm lin)"
dmsetup remove lin
table stripe "0 $half striped 2 128 $a 2048 $b 2048"
moves_on "dm striped" /dev/mapper/stripe "${leaf[@]}"
dmsetup remove stripe

# --- Beside a local drive, whose bytes no CPU touches. With soft-RoCE they count like the whole: through the host.
array raid0 "$a" "$here"
moves_on "raid0 with a drive of this machine" /dev/md0 "${leaf[0]}" "$here"
disband "$a" "$here"

# --- A filesystem on top
array raid0 "$a" "$b"
files_on "raid0" "${leaf[@]}"

# --- A leg is removed
breaks "the target of a leg goes" /dev/md0 disk1 rm $nvmet/ports/2/subsystems/far1
same "and the next one" "$EIO 0" "$(pdio read /dev/md0 0 $((2 * mib)) 0 | cut -d' ' -f1,2)"
disband "$a"

for name in "${controller[@]}"; do disconnect "$name"; done
ln -s $nvmet/subsystems/far1 $nvmet/ports/2/subsystems/far1
no_targets
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
if [ -n "${by_card:-}" ]; then cards_end; else unwire; fi
echo "$io_timeout" >$timeouts/io_timeout
for name in nvme0 nvme1 nvme2; do wipefs -qa "$(nvme_disk $name)"; done
plan $tap_n
