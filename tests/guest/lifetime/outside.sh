#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The parameter wait_outside: a request that waits for a file's lock must delay neither destroying nor unbinding. What
# the filesystem cannot do without blocking goes through host memory; checks the bytes, the counters and the reason.
# group: lifetime
# topologies: disks
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
parameter=/sys/module/peerdma/parameters/wait_outside
mib=1048576
EBUSY=16 FILE_ALIGN=4 BUF_ALIGN=5 APPEND=10 FILE_WAIT=28
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
pattern fill /mnt/disk/locks 0 65536 pattern:1
sync
same "the parameter is off" N "$(cat $parameter)"
echo 1 >$parameter
publish

# --- Another process holds the file's lock for as long as it wants: inode.cpp.
gone() { ! kill -0 "$1" 2>/dev/null; }
start_writing() {
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/before # caches the route; inode.cpp takes any sleep for this lock
	exec {writing_fd}< <(exec inode /mnt/disk/locks)
	writing=$!
	read -r _ writer <&"$writing_fd"
}
end_writing() {
	kill -KILL "$writer"
	read -r said <&"$writing_fd"
	exec {writing_fd}<&-
	wait $writing
}
# blocked PID [SYSCALL]: it is in an ioctl, or in that call
blocked() { [ "$(cut -d' ' -f1 "/proc/$1/syscall")" = "${2:-16}" ]; }
io_uring_enter=426

start_writing
same "a write that nothing may bounce is refused while the lock is held" "$EBUSY $FILE_WAIT 0" \
	"$(NO_BOUNCE=1 pdio write /mnt/disk/locks 8192 4096 0 | cut -d' ' -f1-3)"
same "and so is a read" "$EBUSY $FILE_WAIT 0" "$(NO_BOUNCE=1 pdio read /mnt/disk/locks 8192 4096 0 | cut -d' ' -f1-3)"
pdio read /mnt/disk/locks 0 4096 0 >/tmp/reading &
reading=$!
check "another read waits" soon 5 blocked $reading
echo "$gpu" >"/sys/bus/pci/devices/$gpu/driver/unbind" &
unbind=$!
check "unbind returns" soon 5 gone $unbind
check "while the lock is still held" kill -0 "$writer"
check "and the requests wait" blocked $reading
same "nobody is named" "" "$(cat /sys/kernel/debug/peerdma/held)"
end_writing
same "the write, whose bytes were copied before, ends whole" "0 4096 1" "$said"
wait $reading
same "the read learns that the provider is gone" "19 48 0" "$(cut -d' ' -f1-3 /tmp/reading)"

publish
start_writing
same "a ring's write that nothing may bounce is refused while the lock is held" "$EBUSY 0" \
	"$(RING=1 NO_BOUNCE=1 pdio write /mnt/disk/locks 8192 4096 0 | cut -d' ' -f1,3)"
RING=1 pdio read /mnt/disk/locks 0 4096 0 >/tmp/reading &
reading=$!
check "a ring's read waits" soon 5 blocked $reading $io_uring_enter
check "and still does a second later" bash -c "sleep 1; [ ! -s /tmp/reading ] && kill -0 $reading"
echo "$gpu" >"/sys/bus/pci/devices/$gpu/driver/unbind" &
unbind=$!
check "unbind returns while a ring's read waits" soon 5 gone $unbind
check "and the lock is still held" kill -0 "$writer"
end_writing
same "the write beside the ring's read ends whole" "0 4096 1" "$said"
wait $reading
same "the ring's read learns that the provider is gone" "19 0" "$(cut -d' ' -f1,3 /tmp/reading)"

publish
start_writing
kill -USR1 $writing
check "destroying returns" soon 5 bash -c "grep -q '^peerdma-buffers:[[:space:]]*0$' /proc/$writing/fdinfo/* &&
	[ \$(cat /proc/$writing/task/*/syscall | grep -c '^16 ') = 1 ]"
check "while the lock is still held" kill -0 "$writer"
end_writing
same "the write of a destroyed buffer ends whole" "0 4096 0" "$said"

start_writing
pdio read /mnt/disk/locks 8192 4096 0 >/tmp/reading &
reading=$!
check "a read waits" soon 5 blocked $reading
end_writing
wait $reading
same "and ends when the lock is free, by host memory" "0 $FILE_WAIT 4096 0 0 4096" "$(cut -d' ' -f1-6 /tmp/reading)"
check "its bytes" host compare gpu0 "$(cut -d' ' -f7 /tmp/reading)" 4096 pattern:1 8192

# --- The bytes and their route
# wrote DESCRIPTION FILE OFF LEN BUF_OFF REASON HOST: HOST bytes through host memory; REASON any: depends on the
# filesystem
wrote() {
	local got reason moved direct near host
	got=$(pdio write "$2" "$3" "$4" "$5" $((8 * mib)) "host fill gpu0 %AT $((8 * mib)) pattern:5")
	read -r _ reason moved direct near host _ <<<"${got##*$'\n'}"
	if [ "$6" != any ]; then
		same "$1: how" "$6 $4 $(($4 - $7)) 0 $7" "$reason $moved $direct $near $host"
	else
		same "$1: all of it" "$4 $4" "$moved $((direct + near + host))"
	fi
	check "$1" pattern compare "$2" "$3" "$4" pattern:5 "$5"
}
# was_read DESCRIPTION FILE OFF LEN BUF_OFF REASON HOST SOURCE: into a buffer of bytes 77
was_read() {
	local got reason moved direct near host at
	got=$(pdio read "$2" "$3" "$4" "$5" $((4 * mib)) "host fill gpu0 %AT $((4 * mib)) byte:77")
	read -r _ reason moved direct near host at <<<"${got##*$'\n'}"
	same "$1: how" "$6 $4 $(($4 - $7)) 0 $7" "$reason $moved $direct $near $host"
	check "$1" host compare gpu0 $((at + $5)) "$4" "$8" "$3"
	check "$1: before it" host compare gpu0 "$at" "$5" byte:77
	check "$1: behind it" host compare gpu0 $((at + $5 + $4)) $((4 * mib - $5 - $4)) byte:77
}
# by_ring DESCRIPTION FILE: the same by commands of a ring, which return only errno and bytes
by_ring() {
	local got at
	got=$(RING=1 pdio write "$2" 0 100000 512 $mib "host fill gpu0 %AT $mib pattern:7")
	same "$1: a ring's write" "0 100000" "$(tail -n 1 <<<"$got" | cut -d' ' -f1,3)"
	check "$1: what it wrote" pattern compare "$2" 0 100000 pattern:7 512
	got=$(RING=1 pdio read "$2" 1001 70001 8193 $mib "host fill gpu0 %AT $mib byte:77")
	at=${got##* }
	same "$1: a ring's read" "0 70001" "$(tail -n 1 <<<"$got" | cut -d' ' -f1,3)"
	check "$1: what it read" host compare gpu0 $((at + 8193)) 70001 pattern:7 1513
	check "$1: before that" host compare gpu0 "$at" 8193 byte:77
	check "$1: and behind" host compare gpu0 $((at + 78194)) $((mib - 78194)) byte:77
}
# on FILESYSTEM DIR BLOCK EXISTS ODD PARTIAL: BLOCK is its block size, the last three are the reasons of three writes.
# xfs cannot write without blocking when it has to update the modification time.
on() {
	local edges=$(($3 - 100 + (70000 - $3 + 100) % $3))
	rm -f "$2"/out.*
	pattern fill "$2/out.old" 0 $((3 * mib)) pattern:6
	sync
	# Before the first write to an inode ext4 may have to remove privileges, which it cannot do without blocking.
	pdio write "$2/out.old" $((3 * mib - 4096)) 4096 0 >/tmp/first
	wrote "$1: whole blocks that exist" "$2/out.old" $mib $mib 4096 "$4" 0
	was_read "$1: what exists" "$2/out.old" $((2 * mib)) 65536 8192 0 0 pattern:6
	was_read "$1: at odd places" "$2/out.old" $((2 * mib + 100)) 70001 8193 $BUF_ALIGN 70001 pattern:6
	was_read "$1: partial blocks" "$2/out.old" $((2 * mib + 100)) 70000 4196 $FILE_ALIGN $edges pattern:6
	wrote "$1: odd places" "$2/out.old" 1000 3000 1001 "$5" 3000
	check "$1: before odd places" pattern compare "$2/out.old" 0 1000 pattern:6
	check "$1: behind them" pattern compare "$2/out.old" 4000 $((mib - 4000)) pattern:6 4000
	wrote "$1: partial blocks" "$2/out.old" $((mib / 2 + 100)) 70000 100 "$6" $edges
	check "$1: before them" pattern compare "$2/out.old" $((mib / 2)) 100 pattern:6 $((mib / 2))
	check "$1: behind" pattern compare "$2/out.old" $((mib / 2 + 70100)) 1000 pattern:6 $((mib / 2 + 70100))
	wrote "$1: a new file" "$2/out.new" 0 $mib 0 $FILE_WAIT $mib
	wrote "$1: the file grows" "$2/out.new" $((2 * mib)) $mib 512 $FILE_WAIT $mib
	check "$1: what was skipped is zeros" pattern compare "$2/out.new" $mib $mib byte:0
	by_ring "$1: a new file" "$2/out.ring"
	truncate -s $mib "$2/out.hole"
	wrote "$1: into a hole" "$2/out.hole" 131072 131072 0 $FILE_WAIT 131072
	check "$1: the hole before" pattern compare "$2/out.hole" 0 131072 byte:0
	check "$1: the hole behind" pattern compare "$2/out.hole" 262144 $((mib - 262144)) byte:0
	was_read "$1: a hole" "$2/out.hole" 524288 65536 4096 0 0 byte:0
	pattern fill "$2/out.tail" 0 1000 pattern:6
	pdio append "$2/out.tail" 0 100000 4096 $((8 * mib)) "host fill gpu0 %AT $((8 * mib)) pattern:5" >/tmp/appended
	same "$1: appended, how" "0 $APPEND 100000 0 0 100000" "$(tail -1 /tmp/appended | cut -d' ' -f1-6)"
	check "$1: appended" pattern compare "$2/out.tail" 1000 100000 pattern:5 4096
	check "$1: before that" pattern compare "$2/out.tail" 0 1000 pattern:6
	same "$1: a write that nothing may bounce and that allocates is refused" "$EBUSY $FILE_WAIT 0" \
		"$(NO_BOUNCE=1 pdio write "$2/out.none" 0 4096 0 | cut -d' ' -f1-3)"
	same "$1: and nothing is written" 0 "$(stat -c %s "$2/out.none")"
}
on ext4 /mnt/disk 512 0 $BUF_ALIGN $FILE_ALIGN
on xfs /mnt/xfs 4096 any $FILE_ALIGN any
umount /mnt/xfs # later tests use the drive
echo 0 >$parameter
moves "off again" /mnt/disk/out.new 0 $mib
plan $tap_n
