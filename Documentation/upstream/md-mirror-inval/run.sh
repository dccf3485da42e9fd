#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh ./mirror_p2p PROVIDER LEG LEG [LEVEL]: as root, with mdadm. LEG: NVMe drives whose contents may go, and which the
# provider cannot reach by peer-to-peer DMA, as below another root port of a host bridge that the kernel does not know.
set -u
program=$1 provider=$2 one=$3 two=$4 level=${5:-raid1}
modprobe "$level" 2>/dev/null
mdadm --create /dev/md77 --run --force --quiet --metadata=1.0 --assume-clean --level="$level" --raid-devices=2 "$one" "$two" || exit 2
dd if=/dev/zero of=/dev/md77 bs=4096 count=1 oflag=direct status=none
for disk in "$one" /dev/md77; do
	echo "a write to $disk:"
	"$program" "$provider" "$disk"
done
acknowledged=$?
status=0
for leg in "$one" "$two"; do
	nr=$(dd if="$leg" bs=4096 count=1 iflag=direct status=none | tr -dc Z | wc -c)
	echo "$leg has $nr of the 4096 bytes"
	[ $acknowledged != 0 ] || [ "$nr" = 4096 ] || status=1
done
grep -A 1 md77 /proc/mdstat
[ $status = 0 ] || echo "acknowledged, and not written"
mdadm --stop --quiet /dev/md77
mdadm --zero-superblock --quiet "$one" "$two"
exit $status
