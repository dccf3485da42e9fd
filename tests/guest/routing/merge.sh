#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# While a route to a drive exists, none of its requests may be merged, whatever priorities its neighbors forge;
# afterwards the old setting must be back. A module removes the guard to prove that the same requests do merge without
# it. If the kernel itself keeps bios with peer pages apart, which another module simulates, there must be no guard.
# group: route
# topologies: paths
# needs: CONFIG_MD_RAID0 mdadm
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"

publish
gpu1=$(pci_of 0x1af4:0x1110 1)
peerdma publish "$gpu1" >/dev/null || bail "the second GPU"
disk=$(nvme_disk) name=$(basename "$(nvme_disk)")
queue=/sys/block/$name/queue kmod=$(dirname "$LAB_MODULE")/kmod
modprobe -d "$LAB_KERNEL" mq-deadline
pattern fill "$disk" $((16 << 20)) 1048576 pattern:1
sync
blockdev --flushbufs "$disk"

nomerges() { cat "$queue/nomerges"; }
# no_routes: all routes are gone, because no process holds a provider
no_routes() {
	peerdma unpublish "$gpu1" >/dev/null
	peerdma unpublish "$(gpu_bdf)" >/dev/null
	for _ in {1..50}; do [ "$(nomerges)" = 3 ] || break; sleep 0.1; done
}
# merged WHAT ARGS...: all bytes must be right, and a merge must have happened
merged() {
	local got
	got=$(forge "$name" "${@:2}")
	if [ "${got% *}" = 0 ] && [ "${got#* }" -gt 0 ]; then ok "$1 (${got#* })"; else not_ok "$1: $got"; fi
}
apart() { same "$1" "0 0" "$(forge "$name" "${@:2}")"; }

mkdir -p /mnt/cgroup
mount -t cgroup2 none /mnt/cgroup
echo +io >/mnt/cgroup/cgroup.subtree_control
mkdir /mnt/cgroup/rt
echo promote-to-rt >/mnt/cgroup/rt/io.prio.class
# in_rt COMMAND...: in a cgroup that overwrites priorities
in_rt() {
	echo $$ >/mnt/cgroup/rt/cgroup.procs
	"$@"
	echo $$ >/mnt/cgroup/cgroup.procs
}
all=hphphphphphphphp two=pqpqpqpqpqpqpqpq host=hhhhhhhhhhhhhhhh

read_one() { pdio read "$disk" $((16 << 20)) 4096 0 >/dev/null; }
keeper() { cat /sys/kernel/debug/peerdma/nomerge; }
# kernel_keeps WHAT: no request of ours is merged, and no drive is guarded except below md, which clears the kernel's
# flag
kernel_keeps() {
	local order write
	for order in up down halves; do
		for write in "" write; do
			# shellcheck disable=SC2086 # may be empty
			apart "$1, $order${write:+, writes}: forged priorities" forged $order $all $write
			# shellcheck disable=SC2086
			apart "$1, $order${write:+, writes}: two providers" none $order $two $write
		done
	done
	in_rt apart "$1: two providers in a cgroup that overwrites priorities" none up $two
	in_rt apart "$1: and host memory" none up $all
	merged "$1: ordinary requests merge while a route is there" none up $host
	same "$1: no drive is guarded" "kernel 0" "$(keeper) $(nomerges)"
	modprobe -d "$LAB_KERNEL" -a md_mod raid0
	mdadm --create /dev/md0 --run --force --quiet --metadata=1.0 --level=0 --raid-devices=1 "$disk"
	same "$1: md: a direct read" "0 0 4096 4096 0 0" "$(pdio read /dev/md0 0 4096 0 | cut -d' ' -f1-6)"
	same "$1: but below md it is" 3 "$(nomerges)"
	no_routes
	same "$1: while that route lasts" 0 "$(nomerges)"
	mdadm --stop --quiet /dev/md0
	mdadm --zero-superblock --quiet "$disk"
}
read_one
if [ "$(keeper)" = kernel ]; then
	kernel_keeps "this kernel"
	plan $tap_n
	exit
fi
same "this kernel merges bios with peer pages, so PeerDMA guards" peerdma "$(keeper)"
no_routes
publish
peerdma publish "$gpu1" >/dev/null

schedulers=(none mq-deadline)
[ "$LAB_VARIANT" != debug ] || schedulers=(mq-deadline)
for scheduler in "${schedulers[@]}"; do
	echo "$scheduler" >"$queue/scheduler"
	same "$scheduler: nobody is guarded yet" 0 "$(nomerges)"
	for order in up down halves; do
		# Without a scheduler only the last request is tried as a merge candidate.
		[ "$scheduler $order" = "none halves" ] || merged "$scheduler, $order: ordinary requests merge" none $order $host
	done
	for order in up down halves; do
		apart "$scheduler, $order: forged priorities" forged $order $all
		apart "$scheduler, $order: forged priorities, writes" forged $order $all write
	done
	apart "$scheduler: ordinary requests neither, while a route is there" none up $host
	apart "$scheduler: two providers" none up $two
	in_rt apart "$scheduler: two providers in a cgroup that overwrites priorities" none up $two
	in_rt apart "$scheduler: and host memory" none up $all
	same "$scheduler: it can be seen" 3 "$(nomerges)"

	insmod "$kmod/unguard.ko"
	merged "$scheduler: without the guard forged priorities merge" forged up $all
	merged "$scheduler: and writes" forged down $all write
	apart "$scheduler: and others do not" none up $all
	apart "$scheduler: nor two providers" none up $two
	in_rt merged "$scheduler: but in the cgroup two providers merge" none up $two
	in_rt merged "$scheduler: and host memory" none up $all
	rmmod unguard
	apart "$scheduler: the guard is back" forged up $all
	no_routes
	publish
	peerdma publish "$gpu1" >/dev/null
done
echo none >"$queue/scheduler"

# --- The file nomerges
for value in 0 1 2; do
	echo $value >"$queue/nomerges"
	read_one
	same "nomerges was $value, and is held" 3 "$(nomerges)"
	no_routes
	same "and is $value again" $value "$(nomerges)"
	publish
done
peerdma publish "$gpu1" >/dev/null
forge "$name" none up pqpq >/dev/null # two routes: the queue stays guarded while one is reestablished
for value in 2 0 1; do
	echo $value >"$queue/nomerges"
	read_one
	same "somebody writes $value meanwhile: it is held again" 3 "$(nomerges)"
done
no_routes
same "and what they wrote last is there in the end" 1 "$(nomerges)"
publish
read_one
echo 0 >"$queue/nomerges"
no_routes
same "also if nothing was read since" 0 "$(nomerges)"
publish
read_one
for _ in {1..130}; do [ "$(nomerges)" = 3 ] || break; sleep 0.1; done
same "a drive that is not used is let go after a while" 0 "$(nomerges)"

# --- The first request waits for submitters that may have looked before the guard was set
# asks: a request on a drive without a route, while another submitter is inside its queue
asks() {
	insmod "$kmod/inside.ko" disk="$disk" || bail "inside.ko"
	pdio read "$disk" 0 4096 0 >/tmp/asked 2>&1 &
	asker=$!
	sleep 1.5
}
asks
check "the first request waits for them" kill -0 $asker
rmmod inside
wait $asker
same "until they have left" "0 0 4096 4096 0 0" "$(cut -d' ' -f1-6 /tmp/asked)"
no_routes
publish
asks
check "meanwhile the provider can go" timeout 30 "$(command -v peerdma)" unpublish "$(gpu_bdf)"
wait $asker
same "the request learns that the provider is gone" "19 48 0" "$(cut -d' ' -f1-3 /tmp/asked)"
rmmod inside
same "nothing is held" 0 "$(nomerges)"

# --- A caller that gets no CPU does not keep the queue frozen: a worker freezes it
# freezers: the names of tasks that wait for a frozen queue to drain
freezers() {
	local task at
	for task in /proc/[0-9]*; do
		# The task may have exited.
		{ read -r at <"$task/wchan"; } 2>/dev/null
		[ "$at" != blk_mq_freeze_queue_wait_timeout ] || cat "$task/comm"
	done
}
# freezes: there is one; $names has the names
freezes() { names=$(freezers) && [ -n "$names" ]; }
# Once continued, it occupies CPU 1 for 20 s. By default the kernel reserves a share for ordinary tasks.
fair=/sys/kernel/debug/sched/fair_server/cpu1/runtime
[ ! -e $fair ] || { read -r fair_was <$fair && echo 0 >$fair; }
read -r rt_was </proc/sys/kernel/sched_rt_runtime_us
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
taskset -c 1 chrt -f 50 bash -c 'kill -STOP $$; end=$((SECONDS + 20)); while [ $SECONDS -lt $end ]; do :; done' &
hog=$!
publish
insmod "$kmod/inside.ko" disk="$disk" || bail "inside.ko"
taskset -c 1 pdio read "$disk" 0 4096 0 >/tmp/asked 2>&1 &
asker=$!
soon 10 freezes || bail "nobody freezes the queue"
kill -CONT $hog
case $names in
kworker/*) ok "a starved caller: by a worker" ;;
*) not_ok "a starved caller: by $names" ;;
esac
rmmod inside
began=$SECONDS
taskset -c 0 dd if="$disk" of=/dev/null bs=4096 count=1 iflag=direct status=none
took=$((SECONDS - began))
check "a starved caller: the other CPU is kept busy meanwhile" kill -0 $hog
if [ $took -le 8 ]; then ok "a starved caller: others read"; else not_ok "a starved caller: others read after $took s"; fi
kill $hog
wait $hog 2>/dev/null
wait $asker
echo "$rt_was" >/proc/sys/kernel/sched_rt_runtime_us
[ ! -e $fair ] || echo "$fair_was" >$fair
same "a starved caller: and so does it, once it runs" "0 0 4096 4096 0 0" "$(cut -d' ' -f1-6 /tmp/asked)"
no_routes

# --- Under load: nomerges is written in a loop, then the drive is removed
publish
load() { while forge "$name" none up $all; do :; done >/tmp/load 2>&1; }
load &
loader=$!
for i in {0..59}; do
	echo $((i % 3)) >"$queue/nomerges"
	sleep 0.03
done
same "all bytes right and nothing merged, while nomerges is written" "0 0" "$(sort -u /tmp/load)"
read_one
same "it is held in the end" 3 "$(nomerges)"
bdf=$(nvme_bdf)
check "the drive is removed under load" bash -c "echo 1 >/sys/bus/pci/devices/$bdf/remove"
wait $loader
echo 1 >/sys/bus/pci/rescan
for _ in {1..100}; do ! disk=$(nvme_disk) || break; sleep 0.1; done
name=$(basename "$disk") queue=/sys/block/$(basename "$disk")/queue
same "it comes back as it was made" 0 "$(nomerges)"
read_one
same "and is guarded" 3 "$(nomerges)"

# --- A kernel that keeps such bios apart
no_routes
afresh
insmod "$kmod/nomerge.ko"
publish
peerdma publish "$gpu1" >/dev/null
same "what a kernel does is not known before the first route" unknown "$(keeper)"
kernel_keeps "a kernel with the patch"
rmmod peerdma nomerge
plan $tap_n
