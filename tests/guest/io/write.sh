#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Writes: the host fills the GPU's memory, the drive reads it from there, the host compares the drive.
# group: io
# topologies: switch rp-vtd
# check: rp-vtd
# tier: quick
# variants: plain
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk

# write_case DESCRIPTION FILE FILE_OFF LEN BUF_OFF: writes from a buffer at the start of the BAR that holds pattern 5.
write_case() {
	local what=$1 file=$2 file_off=$3 len=$4 buf_off=$5 got moved direct
	got=$(pdio write "$file" "$file_off" "$len" "$buf_off" $((8 * mib)) \
		"host fill gpu0 0 $((8 * mib)) pattern:5") || { not_ok "$what"; diag "$got"; return; }
	read -r _ _ moved direct _ <<<"${got##*$'\n'}"
	if [ "$moved $direct" != "$len $([ -n "${FAR_DISK:-}" ] && echo 0 || echo "$len")" ]; then
		not_ok "$what"
		diag "errno reason done direct near host at: $got"
		return
	fi
	check "$what" pattern compare "$file" "$file_off" "$len" pattern:5 "$buf_off"
}

file=/mnt/disk/written
pattern fill $file 0 $((3 * mib)) pattern:6
sync
write_case "one block in the middle of a file" $file 1024 512 4096
check "its neighbours are as they were" pattern compare $file 0 1024 pattern:6
check "and on the other side" pattern compare $file 1536 $((3 * mib - 1536)) pattern:6 1536
write_case "a MiB into cached pages" $file $mib $mib 512
write_case "past the end: the file grows" $file $((4 * mib)) $mib 0
same "its size" $((5 * mib)) "$(stat -c %s $file)"
check "what was skipped is zeros" pattern compare $file $((3 * mib)) $mib byte:0
write_case "a new file" /mnt/disk/new 0 $((6 * mib)) $mib

# Holes and unwritten extents: the written bytes must be there, with zeros around them.
rm -f /mnt/disk/{sparse,unwritten} # left by other tests
truncate -s $mib /mnt/disk/sparse
write_case "into a hole" /mnt/disk/sparse 131072 65536 512
write_case "into a hole, less than a page of it" /mnt/disk/sparse 524288 1024 0
check "what is around it is zeros" bash -c "pattern compare /mnt/disk/sparse 0 131072 byte:0 &&
	pattern compare /mnt/disk/sparse 196608 $((524288 - 196608)) byte:0 &&
	pattern compare /mnt/disk/sparse 525312 $((mib - 525312)) byte:0"
same "and the hole is still one" yes "$([ "$(stat -c %b /mnt/disk/sparse)" -lt 400 ] && echo yes)"
fallocate -l $mib /mnt/disk/unwritten
write_case "into an unwritten extent" /mnt/disk/unwritten 262656 65536 1024
check "what is around it is zeros" bash -c "pattern compare /mnt/disk/unwritten 0 262656 byte:0 &&
	pattern compare /mnt/disk/unwritten 328192 $((mib - 328192)) byte:0"

check "the buffer itself did not change" host compare gpu0 0 $((8 * mib)) pattern:5

umount /mnt/disk
check "the filesystem is clean" e2fsck -fn "$(nvme_disk)"
disk=$(nvme_disk)
end=$(($(blockdev --getsize64 "$disk") - 2 * mib))
write_case "the raw drive" "$disk" $end $mib 8192
check "as the host sees the drive" host compare disk0 $end $mib pattern:5 8192
plan $tap_n
