#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fuzzes ioctls, io_uring commands, mappings, files and unbinding of the GPU, guided by KCOV (tests/fuzz). No forbidden
# effect, no leak and no kernel message may occur. `make fuzz` runs longer. LAB_FUZZ: options of fuzz run, or replay and
# its options. LAB_FUZZ_CORPUS: more programs to start from.
# group: fuzz
# topologies: switch
# variants: debug
# boot: fuzz
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
load_module
publish --bar 2 --size 16M
modprobe -d "$LAB_KERNEL" -a xfs dm-mod 2>/dev/null
export DM_DISABLE_UDEV=1
disk=$(nvme_disk)
wipefs -qa "$disk"
at=0
# part N MIB: creates the next partition
part() {
	addpart "$disk" "$1" $((at * 2048)) $(($2 * 2048)) || bail "no partition $1"
	at=$((at + $2))
}
part 1 256
part 2 400
part 3 64
part 4 64
mke2fs -q -F -t ext4 "${disk}p1" && mkfs.xfs -q -f "${disk}p2" || bail "no filesystems"
table stripe "0 $((64 * 2048)) striped 2 128 ${disk}p4 0 ${disk}p4 $((32 * 2048))"
mkdir -p /mnt/ext4 /mnt/xfs
mount "${disk}p1" /mnt/ext4 && mount "${disk}p2" /mnt/xfs || bail "nothing is mounted"

# fuzz_with WORD...: runs the fuzzer on what is set up
fuzz_with() {
	fuzz "$1" gpu="$gpu" ext4=/mnt/ext4 xfs=/mnt/xfs raw="${disk}p3" stacked=/dev/mapper/stripe \
		corpus="$LAB_ROOT/tests/fuzz/corpus" "${@:2}"
}

status=0
if [ -n "${LAB_FUZZ:-}" ]; then
	read -ra how <<<"$LAB_FUZZ"
	fuzz_with "${how[0]}" more="${LAB_FUZZ_CORPUS:-}" "${how[@]:1}" || status=$?
else
	# Its plan does not belong to this test.
	fuzz_with run seconds=30 | sed -u '/^1\.\./d' | tee /run/fuzz.tap
	status=${PIPESTATUS[0]}
	tap_n=$(grep -cE '^(not )?ok' /run/fuzz.tap)
	once() { fuzz_with run alone=1 seed=7 programs=40 | sed -n 's/^# digest //p' | tail -n 1; }
	first=$(once)
	same "the same seed, alone: the same answers" "some $first" "${first:+some} $(once)"
	# Checking the filesystems finds bytes that missed their file.
	umount /mnt/ext4 /mnt/xfs
	check "ext4 is whole" e2fsck -fn "${disk}p1"
	check "xfs is whole" xfs_repair -n "${disk}p2"
	# With five levels a debug kernel sometimes dies at boot: Documentation/upstream/x86-identify-cpu.
	check "pages have four levels" test -z "$(grep -ow la57 /proc/cpuinfo)"
	plan "$tap_n"
fi

mountpoint -q /mnt/ext4 && umount /mnt/ext4 /mnt/xfs
dmsetup remove stripe
for n in 1 2 3 4; do
	delpart "$disk" $n
done
wipefs -qa "$disk"
mke2fs -q -F -t ext4 "$disk"
exit $status
