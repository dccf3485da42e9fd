# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # lib.sh assigns $mib
# Sourced after lib.sh (and rdma.sh) by tests of stacked devices.

export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
EXDEV=18

# moves_on DESCRIPTION DEVICE LEAF...: the backing devices must be named, and a write and a read must go direct and be
# right. The range crosses the chunks of all stripes twice.
off=$mib len=$((mib + 65536))
moves_on() {
	same "$1: explained" "NONE - $(backing "${@:3}")" "$(explained "$2")"
	moves "$1" "$2" $off $len
}

# opens DESCRIPTION DEVICE LEAF...: checks only that a route exists
opens() {
	same "$1: explained" "NONE - $(backing "${@:3}")" "$(explained "$2")"
	same "$1: a read goes direct" "$(straight 4096)" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-6)"
}

# refused DESCRIPTION DEVICE NUMBER REASON BY [LEAF...]
refused() {
	same "explain: $1" "$4 $5 $(backing "${@:6}")" "$(explained "$2")"
	same "read: $1" "$EXDEV $3 0" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-3)"
	same "write: $1" "$EXDEV $3 0" "$(pdio write "$2" 0 4096 0 | cut -d' ' -f1-3)"
}

# array LEVEL DEVICE...: creates /dev/md0, small enough that any disk can join. Its data starts at offset 0 of its legs.
array() {
	local size=()
	[[ $1 == raid0 || $1 == linear ]] || size=(--size=128M)
	mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --assume-clean --level="$1" "${size[@]}" \
		--raid-devices=$(($# - 1)) "${@:2}" 2>&1 | grep -v -e "appears to" -e "largest drive" || true
	[ -b /dev/md0 ] || bail "no md array of level $1"
}

disband() {
	mdadm --stop --quiet /dev/md0
	mdadm --zero-superblock --quiet "$@" || true
}

# files_on LEVEL LEAF...: a file of ext4 on /dev/md0
files_on() {
	mke2fs -q -F -t ext4 /dev/md0
	mkdir -p /mnt/stack
	mount /dev/md0 /mnt/stack
	pattern fill /mnt/stack/file 0 $((4 * mib)) pattern:1
	sync
	moves_on "a file of ext4 on $1" /mnt/stack/file "${@:2}"
	umount /mnt/stack
	check "the filesystem is clean" e2fsck -fn /dev/md0
}
