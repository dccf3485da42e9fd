#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Repeats load, publish, bind, unbind, kill and unload.
# group: lifetime
# topologies: switch rp-vtd
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
device=/sys/bus/pci/devices/$gpu
available() { cat "$device/p2pmem/available"; }
size() { cat "$device/p2pmem/size"; }
pool_is_full() { [ "$(available)" = "$(size)" ]; }
refs() { cat /sys/module/peerdma/refcnt; }

# Starts a process that owns a buffer of 16 MiB and waits.
start_owner() {
	exec {owner_fd}< <(exec hold 16777216)
	owner=$!
	read -r held <&"$owner_fd"
	[ "$held" = holding ] || bail "hold: $held"
	read -r place <&"$owner_fd"
}
end_owner() {
	kill -"$1" "$owner"
	# Reading until EOF waits until the process has exited and its descriptors are closed.
	cat <&"$owner_fd" >/dev/null
	exec {owner_fd}<&-
	wait "$owner" 2>/dev/null
}
unbind() { echo "$gpu" >"$device/driver/unbind"; }
unbinds() { timeout 20 bash -c "echo $gpu > $device/driver/unbind"; }

afresh

for round in 1 2 3; do
	check "load $round" insmod "$LAB_MODULE"
	check "publish $round" peerdma publish "$gpu"
	check "unpublish $round returns" timeout 20 peerdma unpublish "$gpu"
	check "unload $round" rmmod peerdma
done

load_module
check "a part that is no multiple of 2 MiB is refused" bash -c "! peerdma publish $gpu --bar 2 --offset 4096 --size 2097152 2>/dev/null"
check "publish a part of the BAR" peerdma publish "$gpu" --bar 2 --offset 2097152 --size 33554432
same "its size" 33554432 "$(size)"
start_owner
same "a buffer is out of the pool" $((33554432 - 16777216)) "$(available)"
same "it lies where the part begins" 2097152 "$place"
check "unloading is refused while the device node is open" bash -c '! rmmod peerdma 2>/dev/null'
end_owner KILL
check "what a killed process owned is back in the pool" pool_is_full

start_owner
check "unbind returns although a buffer is live" unbinds
check "nothing is published any more" bash -c '! peerdma providers --json | grep -q 0000:'
same "its owner learns of it" "-19 48" "$(kill -USR1 "$owner"; read -r line <&"$owner_fd"; echo "$line")"
end_owner TERM

check "publish after that" peerdma publish "$gpu"
mount_disk
check "reads run while it is unbound, again and again" stress --seconds 3 --unbind "$gpu"
check "threads allocate, read, write and destroy at once" stress --seconds 3
check "afterwards the pool is full" pool_is_full

# --- In the middle of long operations. A buffer of 448 of 512 MiB, with bytes at its end. No forks: zeroing is in
# progress.
pattern fill /mnt/disk/long 0 65536 pattern:1
sync
large=$((448 << 20)) at=$((447 << 20))
starts_large() {
	host fill gpu0 $at 1048576 pattern:9 >/dev/null
	pdio read /mnt/disk/long 0 4096 0 $large >/tmp/asked 2>&1 &
	asker=$!
	local all left
	read -r all <"$device/p2pmem/size"
	left=$all
	while [ "$left" = "$all" ] && kill -0 $asker 2>/dev/null; do read -r left <"$device/p2pmem/available"; done
}
not_zeroed() { check "$1" host compare gpu0 $at 1048576 pattern:9; }
if [ "$LAB_TOPOLOGY" = switch ]; then
	starts_large
	kill -KILL $asker
	wait $asker 2>/dev/null
	same "a process that allocates is killed" 137 $?
	check "all is back in the pool" pool_is_full
	not_zeroed "and nobody waited until it was zeroed"
	starts_large
	check "unbind returns while memory is zeroed" unbind
	wait $asker
	same "who wanted it learns of it" "buffer: No such device" "$(cat /tmp/asked)"
	not_zeroed "nor did unbind wait for that"
	check "publish once more" peerdma publish "$gpu"

	# The provider is unpublished when a request has read its first, partial block: the rest must not start.
	drive=$(nvme_disk)
	pdio read /mnt/disk/long 0 4096 0 >/dev/null # caches the route
	# The one request that passes the throttle must be ours, not the journal's.
	for _ in 1 2 3 4 5; do
		sync
		throttle 1
		timeout 5 dd if="$drive" of=/dev/null bs=4096 count=1 iflag=direct status=none && break
		throttle 0
	done
	pdio read /mnt/disk/long 1001 9000 1 >/tmp/asked 2>&1 &
	asker=$!
	reads=0
	while [ "$reads" = 0 ] && kill -0 $asker; do read -r reads _ <"/sys/block/${drive##*/}/inflight"; done
	unbind &
	unbind=$!
	while peerdma providers --json | grep -q 0000:; do :; done
	throttle 0
	wait $asker
	same "a request ends at the step that it is in" "0 48 23 0 23 0" "$(cut -d' ' -f1-6 /tmp/asked)"
	wait $unbind
	same "and unbind with it" 0 $?
fi
check "unpublish" timeout 20 peerdma unpublish "$gpu"
[ -z "${FAR_nvme0:-}" ] || rmmod peerdma_rdma
same "no reference is left on the module" 0 "$(refs)"
check "unload" rmmod peerdma
plan $tap_n
