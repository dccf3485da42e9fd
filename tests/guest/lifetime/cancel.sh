#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Requests that wait inside a filesystem, for a file's lock or for a thaw, must not delay an unbind: they are canceled.
# Every kind of request, on ext4 and xfs. Checks that nothing was written, and that all memory is in the pool again.
# group: lifetime
# topologies: disks
# variants: plain debug
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/canceled.sh"

modprobe -d "$LAB_KERNEL" -a xfs 2>/dev/null
mkdir -p /mnt/disk /mnt/xfs
for disk in nvme0 nvme1; do
	wipefs -qa "$(nvme_disk $disk)"
done
mkfs.ext4 -q "$(nvme_disk nvme0)" || bail "no ext4"
mount "$(nvme_disk nvme0)" /mnt/disk || bail "ext4 is not mounted"
mkfs.xfs -q -f "$(nvme_disk nvme1)" || bail "no xfs"
mount "$(nvme_disk nvme1)" /mnt/xfs || bail "xfs is not mounted"
afresh
load_module

# on FILESYSTEM DIR
on() {
	local what file=$2/cancel before writing_fd writer
	fill_file "$file"
	lock_is_held "$1" "$file"

	what="$1, a frozen filesystem"
	pdio read "$file" 0 4096 0 >/tmp/before
	fsfreeze -f "$2"
	pdio write "$file" 8192 65536 0 >/tmp/said.0 2>&1 &
	pids=($!)
	check "$what: a write waits" soon 20 waits $!
	unbind &
	check "$what: unbind returns" soon 10 ended $!
	fsfreeze -u "$2"
	wait "${pids[0]}"
	same "$what: the write was canceled" "19 48 0" "$(tail -n 1 /tmp/said.0 | cut -d' ' -f1-3)"
	check "$what: the bytes are as before" is_filled "$file"

	what="$1, reset"
	publish
	pdio read "$file" 0 4096 0 >/tmp/before
	exec {writing_fd}< <(exec inode "$file")
	read -r _ writer <&"$writing_fd"
	pdio read "$file" 0 65536 0 >/tmp/said.0 2>&1 &
	pids=($!)
	check "$what: a read waits" soon 20 waits $!
	before=$SECONDS
	check "$what: it is done" bash -c "echo 1 >/sys/bus/pci/devices/$gpu/reset"
	check "$what: within 5 s, not 10" [ $((SECONDS - before)) -le 5 ]
	check "$what: while the lock is still held" kill -0 "$writer"
	kill -KILL "$writer"
	read -r said <&"$writing_fd"
	exec {writing_fd}<&-
	wait "${pids[0]}"
	same "$what: the read was canceled" "19 48 0" "$(tail -n 1 /tmp/said.0 | cut -d' ' -f1-3)"
	unbind
}
on ext4 /mnt/disk
on xfs /mnt/xfs
fill_file /mnt/xfs/first
cp --reflink=always /mnt/xfs/first /mnt/xfs/shared
lock_is_held "xfs, blocks shared with another file" /mnt/xfs/shared
check "xfs: the other file is as before" is_filled /mnt/xfs/first

# A file of 4 blocks and a hole of 8 loses its extents after a write of all 12 was checked. ext4 writes the 4 directly, and
# waits for the file's lock again, which a reader has got meanwhile, to write the others by the page cache.
loses_extents() {
	local what="ext4, a file that loses its extents" file=/mnt/disk/indirect
	local reading_fd reader losing writing
	rm -f "$file"
	pattern fill "$file" 0 16384 pattern:1
	truncate -s 49152 "$file"
	sync
	publish
	pdio read "$file" 0 4096 0 >/tmp/before
	hold_lock "$file"
	inode "$file" indirect &
	losing=$!
	check "$what: that waits" soon 20 waits $losing
	pdio write "$file" 0 49152 0 49152 "host fill gpu0 %AT 49152 pattern:5" >/tmp/said.0 2>&1 &
	writing=$!
	check "$what: a write waits" soon 20 waits $writing
	throttle 4096
	dd if="$(nvme_disk nvme0)" of=/dev/null bs=128k count=1 iflag=direct 2>/dev/null # passes; the next one does not
	release_lock
	wait $losing
	same "$what: it lost them" 0 $?
	exec {reading_fd}< <(exec inode "$file" hold read)
	read -r reader <&"$reading_fd"
	check "$what: a reader waits" soon 10 waits "$reader"
	throttle 0
	read -r <&"$reading_fd"
	check "$what: the write waits again" soon 10 waits $writing
	unbind &
	check "$what: unbind returns" soon 10 ended $!
	check "$what: while the lock is still held" kill -0 "$reader"
	kill -KILL "$reader"
	exec {reading_fd}<&-
	wait $writing
	same "$what: the write was short" "0 48 16384 16384" "$(tail -n 1 /tmp/said.0 | cut -d' ' -f1-4)"
	check "$what: these bytes are written" pattern compare "$file" 0 16384 pattern:5
	check "$what: the other bytes are as before" cmp -n 32768 -i 16384:0 "$file" /dev/zero
}
loses_extents
umount /mnt/xfs # later tests use the drive
[ -z "${FAR_nvme0:-}" ] || rmmod peerdma_rdma
check "the module is not used any more" rmmod peerdma
load_module
publish
moves "and a new one works" /mnt/disk/cancel.new 0 $mib
plan $tap_n
