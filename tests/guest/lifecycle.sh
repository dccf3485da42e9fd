#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Coming and going: load, publish, bind, unbind, kill, unload, each as often as a person would.
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

# A process that owns a buffer of 16 MiB and waits.
start_owner() {
	exec {owner_fd}< <(exec hold 16777216)
	owner=$!
	read -r held <&"$owner_fd"
	[ "$held" = holding ] || bail "hold: $held"
	read -r place <&"$owner_fd"
}
end_owner() {
	kill -"$1" "$owner"
	# Reading to the end waits for the process to be gone, its descriptors with it.
	cat <&"$owner_fd" >/dev/null
	exec {owner_fd}<&-
	wait "$owner" 2>/dev/null
}
unbinds() { timeout 20 bash -c "echo $gpu > $device/driver/unbind"; }

# An earlier test of this boot may have left it loaded and published.
[ ! -d /sys/module/peerdma ] || { peerdma unpublish "$gpu" >/dev/null; rmmod peerdma; }

for round in 1 2 3; do
	check "load $round" insmod "$LAB_MODULE"
	check "publish $round" peerdma publish "$gpu"
	check "unpublish $round returns" timeout 20 peerdma unpublish "$gpu"
	check "unload $round" rmmod peerdma
done

insmod "$LAB_MODULE"
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
check "unpublish" timeout 20 peerdma unpublish "$gpu"
same "no reference is left on the module" 0 "$(refs)"
check "unload" rmmod peerdma
plan $tap_n
