#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Other components of a disk: a partition counts as its drive; a virtio disk and each device-mapper target that inspects
# or stores the data must be refused before anything is submitted.
# group: route
# topologies: paths
# tier: all
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a raid0 raid1 dm-mod dm-crypt dm-integrity dm-thin-pool dm-cache dm-cache-smq dm-snapshot \
	dm-delay dm-flakey dm-raid 2>/dev/null
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
drive=$(nvme_disk) name=$(basename "$(nvme_disk)") virtio=/dev/vda
EXDEV=18 QUEUE=33 DM_TARGET=37

# refused DESCRIPTION DEVICE NUMBER REASON BY [LEAF...]
refused() {
	same "explain: $1" "$4 $5 $(backing "${@:6}")" "$(explained "$2")"
	same "read: $1" "$EXDEV $3 0" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-3)"
}
# looks NAME TABLE: a target that must be refused
looks() {
	table "$1" "$2"
	refused "dm $1" "/dev/mapper/$1" $DM_TARGET DM_TARGET "$(dm "$1")"
	dmsetup remove "$1"
}

# --- partitions
wipefs -qa "$drive"
# The kernel's own partition tool needs no table on the disk: number, start, length.
addpart "$drive" 1 2048 262144
addpart "$drive" 2 264192 262144
one=${drive}p1 two=${drive}p2
mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --assume-clean --level=raid0 --raid-devices=2 "$one" "$two"
pattern fill /dev/md0 0 $((2 * mib)) pattern:8
sync /dev/md0
blockdev --flushbufs /dev/md0
same "raid0 over two partitions: the drive is the backing device, once" "NONE - $(backing "$drive")" "$(explained /dev/md0)"
same "a read goes direct" "0 0 $((2 * mib)) $((2 * mib)) 0 0 0" "$(pdio read /dev/md0 0 $((2 * mib)) 0)"
check "what was read" host compare gpu0 0 $((2 * mib)) pattern:8
mdadm --stop --quiet /dev/md0
mdadm --zero-superblock --quiet "$one" "$two"
table part "0 65536 linear $two 0"
same "dm linear over a partition" "NONE - $(backing "$drive")" "$(explained /dev/mapper/part)"
same "a read of it" "0 0 4096 4096 0 0" "$(pdio read /dev/mapper/part 0 4096 0 | cut -d' ' -f1-6)"
dmsetup remove part
# replaced DESCRIPTION OFFSET LEN BUFFER_OFFSET DONE: the first step of a read waits in the suspended device and must be
# the last, because the new table is one that no request may use
replaced() {
	local asker state=''
	table part "0 65536 linear $two 0"
	dmsetup suspend --noflush --nolockfs part
	pdio read /dev/mapper/part "${@:2:3}" >/tmp/steps 2>&1 &
	asker=$!
	until [ "$state" = D ] || ! kill -0 $asker; do # blocked in the first step
		sleep 0.1
		state=$(awk '$1 == "State:" { print $2 }' /proc/$asker/status 2>/dev/null)
	done
	dmsetup reload part --table "0 65536 flakey $two 0 60 0" && dmsetup resume part
	wait $asker
	same "a table is replaced under a read, $1: it ends there" "0 $DM_TARGET $5" "$(cut -d' ' -f1-3 /tmp/steps)"
	dmsetup remove part
}
replaced "after the head" 1001 9000 489 23
replaced "before the tail" 0 8201 0 8192

# --- A disk whose driver does not support peers
refused "virtio-blk" $virtio $QUEUE QUEUE vda vda:QUEUE
mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --assume-clean --level=raid1 --size=64M --raid-devices=2 \
	"$one" $virtio 2>&1 | grep -v -e "appears to" -e "largest drive"
refused "a mirror with virtio-blk" /dev/md0 $QUEUE QUEUE vda "$drive" vda:QUEUE
mdadm --stop --quiet /dev/md0
mdadm --zero-superblock --quiet "$one" $virtio
table split "0 2048 linear $one 0
2048 2048 linear $virtio 0"
refused "dm linear with virtio-blk" /dev/mapper/split $QUEUE QUEUE vda "$drive" vda:QUEUE
dmsetup remove split

# --- device-mapper targets that inspect or store the data
dd if=/dev/zero of="$one" bs=1M count=16 status=none oflag=direct
dd if=/dev/zero of="$two" bs=1M count=16 status=none oflag=direct
table meta "0 8192 linear $one 0"
table data "0 65536 linear $two 0"
looks crypt "0 65536 crypt aes-ecb-null 00112233445566778899aabbccddeeff 0 /dev/mapper/data 0"
looks delay "0 65536 delay /dev/mapper/data 0 0"
looks flakey "0 65536 flakey /dev/mapper/data 0 60 0"
looks snapshot-origin "0 65536 snapshot-origin /dev/mapper/data"
looks snapshot "0 65536 snapshot /dev/mapper/data /dev/mapper/meta N 8"
looks raid "0 65536 raid raid1 3 0 region_size 1024 1 - /dev/mapper/data"
table pool "0 65536 thin-pool /dev/mapper/meta /dev/mapper/data 128 0"
dmsetup message pool 0 "create_thin 0"
looks thin "0 65536 thin /dev/mapper/pool 0"
dmsetup remove pool
dd if=/dev/zero of=/dev/mapper/meta bs=1M count=1 status=none oflag=direct
table origin "0 65536 linear $one 16384"
looks cache "0 65536 cache /dev/mapper/meta /dev/mapper/data /dev/mapper/origin 128 1 writethrough smq 0"
dmsetup remove origin
# The first load formats it; 64 sectors, without its own hash.
looks integrity "0 1 integrity /dev/mapper/data 0 4 D 0"
dmsetup remove data
dmsetup remove meta
delpart "$drive" 1
delpart "$drive" 2
check "$name is free" wipefs -qa "$drive"
plan $tap_n
