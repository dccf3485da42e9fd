#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Reads: the host compares every byte. The destination holds other bytes before, and those outside the returned range
# must not change.
# group: io
# topologies: switch rp rp-vtd mf-vtd
# check: rp-vtd
# tier: quick
# variants: plain
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
other=pattern:99
span=$((8 * mib))

# read_case DESCRIPTION FILE FILE_OFF LEN BUF_OFF WANT [SOURCE SOURCE_OFF]: reads into a buffer of 8 MiB at the start of
# the BAR. WANT bytes must arrive and equal the source (by default the file itself).
read_case() {
	local what=$1 file=$2 file_off=$3 len=$4 buf_off=$5 want=$6 source=${7:-pattern:1} source_off=${8:-$3} got moved direct near through_host at
	got=$(pdio read "$file" "$file_off" "$len" "$buf_off" "$span" \
		"host fill gpu0 0 $((span + mib)) $other") || { not_ok "$what"; diag "$got"; return; }
	read -r _ _ moved direct near through_host at <<<"${got##*$'\n'}"
	local edge=$((want % 512)) ways
	ways="$((want - edge)) $edge 0"
	[ -z "${FAR_DISK:-}" ] || ways="0 0 $want" # the CPU copies
	if [ "$moved $direct $near $through_host $at" != "$want $ways 0" ]; then
		not_ok "$what"
		diag "errno reason done direct near host at: $got, want $want bytes at 0"
		return
	fi
	check "$what" same_bytes
}

# Skips the page behind the buffer: it is unallocated, and partial blocks are bounced through it.
same_bytes() {
	{ [ "$want" = 0 ] || host compare gpu0 "$buf_off" "$want" "$source" "$source_off"; } &&
		{ [ "$buf_off" = 0 ] || host compare gpu0 0 "$buf_off" $other 0; } &&
		host compare gpu0 $((buf_off + want)) $((span - buf_off - want)) $other $((buf_off + want)) &&
		host compare gpu0 $((span + 4096)) $((mib - 4096)) $other $((span + 4096))
}

file=/mnt/disk/read
pattern fill $file 0 5000003 pattern:1
sync

read_case "one block" $file 0 512 0 512
read_case "one page" $file 4096 4096 8192 4096
read_case "a block inside a page of the buffer" $file 1536 512 2560 512
read_case "4 bytes into the buffer" $file 0 4096 4 4096
read_case "a MiB, one command" $file 512 $mib 4096 $mib
read_case "several MiB, several commands" $file 4096 $((4 * mib)) 512 $((4 * mib))
read_case "the whole file, whose end is inside a block" $file 0 $((5 * mib)) 0 5000003
read_case "only the partial block at its end" $file 4999680 512 1024 323
read_case "the end in the middle of the request" $file $((4 * mib)) $((2 * mib)) 512 $((5000003 - 4 * mib))
read_case "past the end: nothing" $file $((8 * mib)) 4096 0 0

# The page cache holds newer bytes than the drive.
pattern fill $file 65536 65536 pattern:2 65536
read_case "bytes that were only in the page cache" $file 65536 65536 0 65536 pattern:2 65536

truncate -s $mib /mnt/disk/sparse
pattern fill /mnt/disk/sparse 524288 4096 pattern:1 524288
sync
read_case "a hole is zeros" /mnt/disk/sparse 0 524288 0 524288 byte:0 0
fallocate -l $mib /mnt/disk/unwritten
read_case "an unwritten extent is zeros" /mnt/disk/unwritten 0 $mib 0 $mib byte:0 0
: >/mnt/disk/empty
read_case "an empty file" /mnt/disk/empty 0 4096 0 0

# A buffer that takes all of the provider's memory: without a free page, a partial block goes through host memory and is
# counted so.
all=$(cat "/sys/bus/pci/devices/$(gpu_bdf)/p2pmem/size")
got=$(pdio read $file 4997120 4096 0 "$all" "host fill gpu0 0 $mib $other")
ways="2560 0 323"
[ -z "${FAR_DISK:-}" ] || ways="0 0 2883"
same "no room for the partial block: counted as through the host" "0 20 2883 $ways" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
check "its bytes" host compare gpu0 0 2883 pattern:1 4997120
check "and what lies behind" host compare gpu0 2883 $((mib - 2883)) $other 2883

disk=$(nvme_disk)
read_case "the raw drive" "$disk" 0 $((2 * mib)) 0 $((2 * mib)) disk0 0
read_case "the end of the raw drive" "$disk" $(($(blockdev --getsize64 "$disk") - 4096)) 8192 0 4096 disk0 $(($(blockdev --getsize64 "$disk") - 4096))
plan $tap_n
