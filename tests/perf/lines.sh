#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Eight CPUs read whole blocks of one registered file, and read and write the drive, through one buffer. No instruction
# of the module may write a cache line that two of them write. Stores by the kernel's own code are ignored.
# group: perf
# coverage: none
# topologies: switch
# variants: plain
# boot: lines
# tier: all
# long: oldest
# timeout: 240
. "$LAB_ROOT/tests/perf/lib.sh"

publish
mount_disk

# module_range: first and last address of peerdma.ko's code
module_range() {
	local base size
	read -r _ size _ _ _ base _ < <(grep '^peerdma ' /proc/modules)
	echo "$((base)) $((base + size))"
}

# watched DESCRIPTION r|rw FILE OFF: the number of stores, and of those into lines that two CPUs wrote
watched() {
	local report=$LAB_OUT/lines.txt line pc ours=0
	same "$1: all requests are good" 0 "$(crowded "$2" "$3" "$4" 8 50 >/run/crowded 2>&1; echo $?)"
	diag "$(cat /run/crowded)"
	read -r first last < <(module_range)
	diag "code at $(printf '0x%x to 0x%x' "$first" "$last")"
	echo 3 >/proc/sys/vm/drop_caches # the host writes this file
	[ -s "$report" ] || { not_ok "$1: QEMU has watched"; return; }
	while read -r -a line; do
		[ "${line[0]}" != end ] || { diag "$1: ${line[2]} stores into ${line[1]} lines"; continue; }
		for pc in "${line[@]:2}"; do
			((0x$pc < first || 0x$pc >= last)) && continue
			ours=$((ours + 1))
			diag "0x${line[0]} by CPUs 0x${line[1]}: $(printf 'peerdma+0x%x' $((0x$pc - first)))"
		done
	done <"$report"
	same "$1: no line that two CPUs write is the module's" 0 $ours
}

pattern fill /mnt/disk/crowded 0 $((8 * 65536)) pattern:1
sync
# While an ext4 file is written, its route is checked again after each change of its version, at most once per tick.
watched "a file of ext4" r /mnt/disk/crowded 0
watched "the drive itself" rw "$(nvme_disk)" $((600 << 20)) # without the filesystem's own stores
plan $tap_n
