#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd on a drive with added latency (dm-delay), cold: sequential reads of a view, and reads in an order that it was told,
# take less time with prefetch than without; its memory stays within its bound. With the streams of 64 hosts: hosts.sh.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_DM_DELAY
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

modprobe -d "$LAB_KERNEL" dm-delay || bail "no drive with latency"
size=32 # MiB
memory=16 threads=4
make_drive 48

image halves /mnt/data/tokens $size # what the reads are compared with
cp /mnt/data/tokens /run/files/tokens
begin
idle=$(memory_of VmRSS)
conf=$'file = /run/files/tokens\ncodec = u32:u16\n'
same "a view" '' "$(image publish $socket ahead "$conf")"
same "another one" '' "$(image publish $socket beside "$conf")"
same "and one without prefetch" '' "$(image publish $socket behind "$conf"$'prefetch = no')"
for view in ahead beside behind; do published "$view: is published" $view; done
chunks=$((size / 2)) in_order=$(seq -s, 0 $((size / 2 - 1)))
# A permutation without neighbours.
shuffled=$(for ((i = 0; i < chunks; i++)); do echo $((i * 7 % chunks)); done | paste -sd,)

latency=200 # milliseconds
drive "$(delayed $latency)"
# timed VIEW ORDER: the seconds that it takes
timed() {
	# Neither the drive's files nor the service's chunks of the view: reads of the other view take their memory.
	drive "$(delayed 0)"
	image read "$(field "$3" device)" /mnt/data/tokens "$in_order" >/dev/null || echo "no bytes of $3"
	drive "$(delayed $latency)"
	cold
	image read "$(field "$1" device)" /mnt/data/tokens "$2"
}
faster() { awk "BEGIN { exit !($1 >= 1.5 * $2) }"; }
# The file's pieces of a chunk are fetched at once. One after the other they took nine times the latency.
fetched() { awk "BEGIN { exit !($1 <= 3 * $chunks * $latency / 1000) }"; }

without=$(timed behind "$in_order" ahead) with=$(timed ahead "$in_order" behind)
diag "in order: $without s without prefetch, $with s with it"
check "in order it is 1.5 x as fast" faster "$without" "$with"
check "a chunk takes little more than the latency" fetched "$without"
without=$(timed behind "$shuffled" ahead)
elements=$((mib / 2))
ranges=()
for chunk in ${shuffled//,/ }; do ranges+=("$((chunk * elements)),$elements"); done
drive "$(delayed $latency)"
same "a plan" '' "$(image plan $socket behind "${ranges[@]}")"
same "is withdrawn by another" '' "$(image plan $socket behind 0,1)"
# Cold once more, as the plan has begun to be followed.
drive "$(delayed 0)"
image read "$(field ahead device)" /mnt/data/tokens "$in_order" >/dev/null
drive "$(delayed $latency)"
cold
same "its ranges" '' "$(image plan $socket behind "${ranges[@]}")"
with=$(image read "$(field behind device)" /mnt/data/tokens "$shuffled")
diag "in another order: $without s without a plan, $with s with it"
check "with a plan it is 1.5 x as fast" faster "$without" "$with"
same "its position is its end" "$chunks $chunks" "$(field behind plan_position) $(field behind plan_ranges)"
same "a plan that goes beyond the view" "behind: range 0 of the plan: 2 elements from $((size * mib / 4 - 1)) on; the view has $((size * mib / 4))" \
	"$(image plan $socket behind $((size * mib / 4 - 1)),2)"

bound=$((idle + memory * 1024 * 11 / 10 + 2048)) # 2048: what a scan takes beside it
most=$(memory_of VmHWM)
diag "memory: idle $idle KiB, at most $most, now $(memory_of RssAnon) of its own; bound $bound"
check "its memory stayed within its bound" [ "$most" -le $bound ]
drive "$(delayed 0)"

# What a small read costs: the chunk that it is of.
cold
same "reads of 4 KiB anywhere" 0 "$(image small "$(field behind device)" 200 >/run/small; echo $?)"
diag "$(cat /run/small) reads of 4 KiB a second, of random chunks of $chunks with memory for $memory"
ends "it ends"
plan $tap_n
