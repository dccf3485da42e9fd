#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Stacked devices: all disks below must be checked, the bytes must be right on each, and a change of the stack must be
# noticed.
# group: route
# topologies: disks
# tier: all
# timeout: 150
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/stacked.sh"

publish
modprobe -d "$LAB_KERNEL" -a raid0 raid1 raid10 raid456 md-linear dm-mod dm-crypt dm-zero dm-snapshot dm-mirror \
	dm-unstripe 2>/dev/null
modprobe -d "$LAB_KERNEL" null_blk gb=1 memory_backed=1
STACKED=32 INTEGRITY=36 DM_TARGET=37 MD_LEVEL=38
a=$(nvme_disk nvme0) b=$(nvme_disk nvme1) c=$(nvme_disk nvme2) pi=$(nvme_disk nvme3)
for disk in "$a" "$b" "$c" "$pi"; do
	wipefs -qa "$disk"
done

# --- md
array raid0 "$a" "$b" "$c"
moves_on "raid0" /dev/md0 "$a" "$b" "$c"
disband "$a" "$b" "$c"
if modprobe -d "$LAB_KERNEL" -qn md-linear; then
	array linear "$a" "$b"
	moves_on "linear" /dev/md0 "$a" "$b"
	disband "$a" "$b"
fi
array raid10 "$a" "$b" "$c"
moves_on "raid10" /dev/md0 "$a" "$b" "$c"
disband "$a" "$b" "$c"
array 5 "$a" "$b" "$c"
refused "raid5" /dev/md0 $MD_LEVEL MD_LEVEL md0
disband "$a" "$b" "$c"
array raid1 "$a" /dev/nullb0
refused "a mirror with a leg in memory" /dev/md0 $STACKED STACKED nullb0 "$a"
disband "$a" /dev/nullb0

array raid1 "$a" "$b"
moves_on "raid1" /dev/md0 "$a" "$b"
pdio write /dev/md0 $off $len 0 $((2 * mib)) \
	"host fill gpu0 %AT $((2 * mib)) pattern:7" >/dev/null
check "raid1: the first leg has it" host compare disk0 $off $len pattern:7
check "raid1: the second leg has it" host compare disk1 $off $len pattern:7

# --- A stack that changes under a route that was just used
mdadm --manage --quiet /dev/md0 --add /dev/nullb0
refused "a mirror that got a spare in memory" /dev/md0 $STACKED STACKED nullb0 "$a" "$b"
mdadm --manage --quiet /dev/md0 --remove /dev/nullb0
opens "and lost it again" /dev/md0 "$a" "$b"
disband "$a" "$b"

# --- device-mapper
half=$((192 * 2048))
table lin "0 $half linear $b 2048
$half $half linear $a 4096"
moves_on "dm linear" /dev/mapper/lin "$a" "$b"
dmsetup reload lin --table "0 $half crypt aes-ecb-null 00112233445566778899aabbccddeeff 0 $b 2048
$half $half linear $a 4096" && dmsetup resume lin
refused "dm linear, then crypt over the same drives" /dev/mapper/lin $DM_TARGET DM_TARGET "$(dm lin)"
dmsetup reload lin --table "0 $half linear $c 2048" && dmsetup resume lin
opens "then linear over another" /dev/mapper/lin "$c"
dmsetup reload lin --table "0 $half linear $pi 2048" && dmsetup resume lin
refused "then over a drive with checksums" /dev/mapper/lin $INTEGRITY INTEGRITY "${pi##*/}" "$pi:INTEGRITY"
dmsetup remove lin
table stripe "0 $half striped 3 128 $a 2048 $b 2048 $c 2048"
moves_on "dm striped" /dev/mapper/stripe "$a" "$b" "$c"
table top "0 $((half / 2)) linear /dev/mapper/stripe 2048"
opens "linear over striped" /dev/mapper/top "$a" "$b" "$c"
dmsetup remove top
dmsetup remove stripe
table nothing "0 2048 zero"
refused "dm zero, which has nothing below" /dev/mapper/nothing $STACKED STACKED "$(dm nothing)"
dmsetup remove nothing
table mirror "0 $half mirror core 2 1024 nosync 2 $a 2048 $b 2048"
refused "dm mirror" /dev/mapper/mirror $DM_TARGET DM_TARGET "$(dm mirror)"
dmsetup remove mirror

# --- md and dm on top of each other, and a partition
array raid0 "$a" "$b"
table top "0 $half linear /dev/md0 2048"
moves_on "dm linear over raid0" /dev/mapper/top "$a" "$b"
dmsetup remove top
disband "$a" "$b"
table one "0 $half linear $a 2048"
table two "0 $half linear $a $((half + 2048))"
array raid1 /dev/mapper/one /dev/mapper/two
opens "raid1 over two parts of one drive" /dev/md0 "$a"
disband /dev/mapper/one /dev/mapper/two
dmsetup remove one two
deep=$a
for i in 1 2 3 4 5 6 7 8 9; do
	table deep$i "0 $((half - i * 2048)) linear $deep 2048"
	deep=/dev/mapper/deep$i
	[ $i != 8 ] || opens "eight levels" $deep "$a"
done
refused "nine levels" "$deep" $STACKED STACKED "$(dm deep1)"
for i in 9 8 7 6 5 4 3 2 1; do dmsetup remove deep$i; done

# --- A filesystem on top
array raid0 "$a" "$b"
files_on "raid0" "$a" "$b"
disband "$a" "$b"
check "the drives are free" wipefs -qa "$a" "$b" "$c"
plan $tap_n
