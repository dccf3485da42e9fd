#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Another thread holds the drive's device lock (as SR-IOV and error recovery do), its open lock, or its queue frozen (as
# a resetting driver does), and may want the provider's lock at the same time. Our code must therefore not wait for
# these locks inside anything that an unbind waits for. Who is waited for must be named: by destroying, for a file's lock;
# by unbinding, for a drive that does not answer (cancel.sh has a file's lock).
# group: lifetime
# topologies: switch
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
mount_disk
afresh
load_module
pattern fill /mnt/disk/locks 0 65536 pattern:1
sync

# waits PID: it is in an ioctl, and still is a little later
waits() {
	local nr
	for _ in {1..50}; do
		read -r nr _ <"/proc/$1/syscall"
		if [ "$nr" = 16 ]; then
			sleep 0.3
			read -r nr _ <"/proc/$1/syscall"
			[ "$nr" != 16 ] || return 0
		fi
		sleep 0.1
	done
	return 1
}

# idles PID: in one of three seconds it ran for less than a quarter of it, or has slept more than ten times. A task that
# spins does neither. (Time that the host takes from the guest is charged to the task too, so its own is not enough.)
idles() {
	local ran slept
	for _ in 1 2 3; do
		ran=$(cut -d' ' -f15 "/proc/$1/stat")
		slept=$(awk '/^voluntary/ { print $2 }' "/proc/$1/status")
		sleep 1
		ran=$(($(cut -d' ' -f15 "/proc/$1/stat") - ran))
		slept=$(($(awk '/^voluntary/ { print $2 }' "/proc/$1/status") - slept))
		echo "# in a second it ran for $ran ticks and slept $slept times"
		[ $ran -ge $(($(getconf CLK_TCK) / 4)) ] && [ $slept -le 10 ] || return 0
	done
	return 1
}

# while_held WHAT PARAMETER: while devlock.ko, loaded with PARAMETER, holds a lock
while_held() {
	local holder asker victim explainer start took said before
	# A fresh provider has no cached verdict on the drive, so the first request takes the drive's locks.
	publish
	before=$(dmesg | grep -c "devlock: holding")
	insmod "$(dirname "$LAB_MODULE")/kmod/devlock.ko" "$2" seconds=60 &
	holder=$!
	for _ in {1..50}; do [ "$(dmesg | grep -c "devlock: holding")" = "$before" ] || break; sleep 0.1; done
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/asked 2>&1 &
	asker=$!
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/victim 2>&1 &
	victim=$!
	peerdma explain /mnt/disk/locks >/tmp/explained 2>&1 &
	explainer=$!
	check "$1: a request waits" waits $asker
	check "$1: so does another" waits $victim
	kill -KILL $victim
	wait $victim 2>/dev/null
	same "$1: which can be killed meanwhile" "137 held" "$? $(kill -0 $holder && echo held)"
	check "$1: and uses little of the CPU" idles $asker
	# A frozen queue stops only tasks that submit.
	[[ $2 = queue=* ]] || check "$1: explaining waits" kill -0 $explainer
	start=$SECONDS
	check "$1: unbind returns" bash -c "echo $gpu >/sys/bus/pci/devices/$gpu/driver/unbind"
	took=$((SECONDS - start))
	wait $asker
	same "$1: the request learns that the provider is gone" "19 48 0" "$(cut -d' ' -f1-3 /tmp/asked)"
	wait $explainer
	said="$? $(grep -c 'No such device\|unpublished' /tmp/explained)"
	[[ $2 = queue=* ]] || same "$1: so does who wants it explained" "1 1" "$said"
	# devlock holds the lock for 60 s, part of which has passed.
	if [ $took -le 15 ] && kill -0 $holder; then ok "$1: while the lock is still held"; else not_ok "$1: it took $took s"; fi
	kill $holder
	wait $holder 2>/dev/null
	check "$1: the lock is free again" rmmod devlock
}

# --- The lock of a file, which another process holds for as long as it wants: inode.cpp.
held=/sys/kernel/debug/peerdma/held
after=/sys/module/peerdma/parameters/held_seconds
is_logged() { dmesg | grep -q "peerdma $gpu: $1"; }
start_writing() {
	exec {writing_fd}< <(exec inode /mnt/disk/locks)
	writing=$!
	read -r buffer writer <&"$writing_fd"
}
end_writing() {
	kill -KILL "$writer"
	read -r said <&"$writing_fd"
	exec {writing_fd}<&-
	wait $writing
}
start_unbinding() {
	echo "$gpu" >"/sys/bus/pci/devices/$gpu/driver/unbind" &
	unbind=$!
}
publish
echo 1 >$after
start_writing
kill -USR1 $writing
inside="1 requests still use buffer $buffer (pid $writing, inode), revoked [0-9]* s ago"
check "a file's lock: destroying says whom it waits for" soon 5 is_logged "$inside\$"
check "a file's lock: debugfs says it too" grep -Eqx \
	"inside provider=[0-9]+ pci=$gpu buffer=$buffer file=[0-9]+ pid=$writing requests=1 seconds=[0-9]+ comm=inode" $held
same "a file's lock: and fdinfo, to who asked" 1 "$(sed -n 's/^peerdma-inside-requests:\t//p' "/proc/$writing/fdinfo/"*)"
end_writing
same "a file's lock: what was begun is whole, then destroyed" "0 4096 0" "$said"
check "a file's lock: the log says when it ended" soon 5 is_logged "the last request on buffer $buffer of pid $writing ended after"
same "a file's lock: nobody is named any more" "" "$(cat $held)"

start_writing
kill -USR1 $writing
inside="1 requests still use buffer $buffer (pid $writing, inode), revoked [0-9]* s ago"
check "destroying, then unbinding: says whom it waits for" soon 5 is_logged "$inside\$"
start_unbinding
check "destroying, then unbinding: the unbind does not wait" soon 5 ended $unbind
check "destroying, then unbinding: while the lock is still held" kill -0 "$writer"
end_writing
same "destroying, then unbinding: what was begun is canceled, the buffer destroyed" "-19 0 0" "$said"
wait $unbind

# --- A drive that does not answer: QEMU lets it move 512 bytes per second, which others have used up.
if [ -z "${FAR_DISK:-}" ]; then
	publish
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/before # what is asked about the file is known then
	check "a drive that does not answer" throttle 512
	dd if="$(nvme_disk)" of=/dev/null bs=64k count=1 iflag=direct 2>/dev/null
	pdio write /mnt/disk/locks 8192 4096 0 >/tmp/asked & # a write is waited for inside the filesystem
	asker=$!
	check "a drive that does not answer: a request waits" waits $asker
	start_unbinding
	inside="1 requests still use buffer [0-9]* (pid $asker, pdio), revoked [0-9]* s ago"
	check "a drive that does not answer: unbind says whom it waits for" soon 5 is_logged "$inside; unbinding waits for them"
	check "a drive that does not answer: and waits" kill -0 $unbind
	insmod "$(dirname "$LAB_MODULE")/kmod/devlock.ko" device="$gpu" seconds=1 &
	locker=$!
	check "a drive that does not answer: others get the function's device lock meanwhile" soon 10 ended $locker
	check "a drive that answers again" throttle 0
	check "a drive that does not answer: unbind ends when it does" soon 5 ended $unbind
	check "a drive that does not answer: and the log says so" is_logged "the last request on buffer [0-9]* of pid $asker ended after"
	wait $asker
	same "a drive that does not answer: what was begun is whole" "0 0 4096" "$(cut -d' ' -f1-3 /tmp/asked)"
	same "a drive that does not answer: nobody is named any more" "" "$(cat $held)"
	wait $unbind
	wait $locker
	rmmod devlock
fi
echo 5 >$after

# A network drive has no PCI function; the network queue, not the path's, holds its requests.
[ -n "${FAR_nvme0:-}" ] || while_held "the device lock" device="$(nvme_bdf)"
while_held "the lock of opening" disk="$(nvme_disk)"
[ -n "${FAR_nvme0:-}" ] || while_held "a queue that is frozen" queue="$(nvme_disk)"
plan $tap_n
