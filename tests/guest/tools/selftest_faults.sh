#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma selftest on a failing drive: it must report each failure, continue, and end.
# group: cli
# topologies: switch
# kernels: newest
# because: what the command prints, which is the same on each kernel
# variants: debug
# timeout: 120
# needs: CONFIG_FAIL_MAKE_REQUEST
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
disk=$(nvme_disk)
faults=/sys/kernel/debug/fail_make_request
fail() {
	echo "$1" >"/sys/block/${disk#/dev/}/make-it-fail"
	echo 0 >$faults/verbose
	echo "$2" >$faults/space
	echo "$3" >$faults/times
	echo "$4" >$faults/probability
}

# A fault in a request of the filesystem itself would abort the filesystem. Keep off the journal's commits (every 5 s)
# and the lazy initialization of inode tables.
mount -o remount,commit=300,noinit_itable /mnt/disk
# Its first write stays in the page cache, which is synced when the first direct read bypasses it.
for spared in 4 12 40; do
	fail 1 $((spared * 65536)) 1 100
	peerdma selftest /mnt/disk >/tmp/answer 2>/tmp/err
	status=$?
	fail 0 0 0 0
	same "after $spared requests: it says so, and went on to the end" "1 15 1" \
		"$status $(grep -cE '^(good|bad)  ' /tmp/answer) $(grep -c '^result   does not work: ' /tmp/answer)"
	# A request whose second command fails returns a short count.
	check "after $spared requests: a step says what it met" \
		grep -qE '^bad  .*  (EIO: |a request ended with [0-9]+ bytes of [0-9]+$)' /tmp/answer
	check "after $spared requests: others are good" [ "$(grep -c '^good  ' /tmp/answer)" -ge 8 ]
	diag "$(grep '^bad' /tmp/answer; cat /tmp/err)"
done
peerdma selftest /mnt/disk >/tmp/answer
same "and then it works" 0 $?
umount /mnt/disk
mount_disk
plan $tap_n
