#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A mirror with a leg that cannot reach the provider. Plain O_DIRECT on a mapping bypasses the check: 7.2 acknowledges
# the write and the legs differ. PeerDMA must refuse before anything is submitted.
# group: route
# topologies: paths
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a raid1 raid10
export MDADM_NO_UDEV=1
near=$(nvme_disk nvme0) far=$(nvme_disk nvme1)
EXDEV=18 DISTANCE=34 EREMOTEIO=121
wipefs -qa "$near" "$far"

for level in raid1 raid10; do
	# Metadata at the end: data starts at offset 0 of the array and its legs.
	mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --assume-clean --level=$level --size=128M \
		--raid-devices=2 "$near" "$far" 2>&1 | grep -v -e "appears to" -e "largest drive"
	[ -b /dev/md0 ] || bail "no $level"
	host fill disk0 0 65536 byte:17 >/dev/null
	host fill disk1 0 65536 byte:17 >/dev/null
	blockdev --flushbufs /dev/md0 "$near" "$far"

	same "$level: the far leg is named" "DISTANCE ${far##*/} $(backing "$near" "${far##*/}:DISTANCE")" "$(explained /dev/md0)"
	same "$level: a write is refused" "$EXDEV $DISTANCE 0" "$(pdio write /dev/md0 0 4096 0 | cut -d' ' -f1-3)"
	same "$level: a read is refused" "$EXDEV $DISTANCE 0" "$(pdio read /dev/md0 0 4096 0 | cut -d' ' -f1-3)"
	check "$level: nothing was sent to the near leg" host compare disk0 0 65536 byte:17
	check "$level: nor to the far one" host compare disk1 0 65536 byte:17

	got=$(plain_odirect /dev/md0 8192 34)
	if lacks md-p2p; then
		same "$level: on $LAB_K md takes no plain O_DIRECT of such memory at all" -$EREMOTEIO "$got"
		check "$level: the near leg is as it was" host compare disk0 0 65536 byte:17
	else
		same "$level: plain O_DIRECT is acknowledged" 4096 "$got"
		check "$level: the near leg has it" host compare disk0 8192 4096 byte:34
	fi
	check "$level: the far leg does not" host compare disk1 0 65536 byte:17
	same "$level: and md believes in both" 1 "$(grep -c '\[UU\]' /proc/mdstat)"
	mdadm --stop --quiet /dev/md0
	mdadm --zero-superblock --quiet "$near" "$far"
done
plan $tap_n
