#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GPU memory to GPU memory by RDMA verbs (verbs.cpp): WRITE, READ and SEND between two buffers, compared by the host;
# the faults of soft-RoCE and the library's workarounds; buffers and a GPU that are revoked under work requests. Kernels
# without correct support must refuse, with the reason. The debug kernel runs only the revocations.
# group: rdma
# topologies: edu
# tier: all
# boot: verbs
# needs: rdma ib_write_bw
# timeout: 240
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"

publish
gpu=$(gpu_bdf)
read -r pool <"/sys/bus/pci/devices/$gpu/p2pmem/size"
roce

# one_killed: kills the serving end under WRITEs of the other
one_killed() {
	local serving busy
	verbs serve 4795 rxe0 &
	serving=$!
	verbs busy 127.0.0.1 4795 rxe0 >/tmp/busy &
	busy=$!
	check "one end is killed: work requests are under way" soon 60 [ -s /tmp/busy ]
	kill -9 $serving
	wait $serving 2>/dev/null
	wait $busy
	# The region may go before the queue pair, or both before the next WRITE.
	check "one end is killed: the other's end with an error" grep -qx "remote access error\|transport retry counter exceeded" \
		<(tail -n 1 /tmp/busy)
	all_back "one end is killed"
}

# all_back DESCRIPTION: the pool is soon full again
all_back() {
	local at
	for _ in {1..50}; do
		read -r at <"/sys/bus/pci/devices/$gpu/p2pmem/available"
		[ "$at" != "$pool" ] || break
		sleep 0.1
	done
	same "$1: all memory is back" "$pool" "$at"
}

# killed DESCRIPTION [COMMAND...]: both ends are killed under work requests; nothing of them may be left. COMMAND, if
# given, starts before and must end then.
killed() {
	local serving busy command=''
	verbs serve 4793 rxe0 &
	serving=$!
	verbs busy 127.0.0.1 4793 rxe0 >/tmp/busy &
	busy=$!
	for _ in {1..300}; do [ ! -s /tmp/busy ] || break; sleep 0.1; done
	check "$1: work requests are under way" kill -0 $busy
	if [ $# -gt 1 ]; then
		"${@:2}" &
		command=$!
		sleep 0.5
	fi
	kill -9 $busy $serving 2>/dev/null # if the command has not ended them
	wait $busy $serving 2>/dev/null
	[ -z "$command" ] || { wait "$command"; same "$1: it ends" 0 $?; }
	all_back "$1"
}

# link_goes: the link breaks under WRITEs, which are retransmitted and then fail
link_goes() {
	verbs serve 4794 rxe0 &
	verbs busy 127.0.0.1 4794 rxe0 >/tmp/busy &
	local busy=$!
	check "the link goes: work requests are under way" soon 60 [ -s /tmp/busy ]
	ip link set roce0 down
	wait $busy
	# Soft-RoCE reports requests that it could not send as flushed.
	check "the link goes: they end with an error" grep -qx "transport retry counter exceeded\|Work Request Flushed Error" \
		<(tail -n 1 /tmp/busy)
	wait
	ip link set roce0 up
	ip addr add 10.9.1.1/24 dev roce0 2>/dev/null # removed with the link, perhaps
	all_back "the link goes"
}

# asked MODE: runs one end against the other
asked() {
	verbs serve 4791 rxe0 &
	relay verbs "$1" 127.0.0.1 4791 rxe0 "$gpu" gpu0
	wait $! || not_ok "the other end"
}

# device_goes: soft-RoCE's device is removed only after its last user has closed it
device_goes() {
	killed "the RDMA device goes" rdma link del rxe0
	rdma link add rxe0 type rxe netdev roce0
}

# watched FILE: prints each new minimum of the number in it, until killed
watched() {
	local least now
	read -r least <"$1"
	while echo "$least"; do
		now=$least
		until [ "$now" -lt "$least" ]; do read -r now <"$1"; done
		least=$now
	done
}

if ! has_option CONFIG_INFINIBAND_ON_DEMAND_PAGING; then
	relay verbs refused rxe0 VERBS_DEVICE no
	skip "WRITE, READ, SEND; what goes away under them; perftest" "memory regions on demand are right from 6.16 on"
elif [ "$LAB_VARIANT" = debug ]; then
	skip "all of WRITE, READ, SEND; perftest" "of these the plain kernel sees all: here is what breaks"
	asked break
	one_killed
	link_goes
	device_goes
else
	ip link set roce0 mtu 1500
	relay verbs refused rxe0 VERBS_MTU yes
	ip link set roce0 mtu 9000
	modprobe -d "$LAB_KERNEL" siw && rdma link add siw0 type siw netdev roce0 || bail "no siw"
	relay verbs refused siw0 VERBS_DEVICE yes
	rdma link del siw0
	asked ask
	one_killed
	killed "both ends are killed"
	device_goes

	# perftest cannot use our buffers, but can use memory of the same provider.
	available=/sys/bus/pci/devices/$gpu/p2pmem/available
	for program in ib_write_bw ib_read_bw ib_send_bw; do
		read -r before <"$available"
		perftest=("$program" -d rxe0 -F -c RC -m 4096 -s 65536 -n 50 --odp "--mmap=/sys/bus/pci/devices/$gpu/p2pmem/allocate")
		"${perftest[@]}" >/tmp/perftest 2>&1 &
		for _ in {1..300}; do ! grep -qi ":$(printf %x 18515) " /proc/net/tcp /proc/net/tcp6 || break; sleep 0.1; done
		end=$!
		watched "$available" >/tmp/least &
		check "perftest: $program" "${perftest[@]}" 127.0.0.1
		wait $end || { not_ok "perftest: $program: its other end"; diag "$(cat /tmp/perftest)"; }
		kill $!
		wait $!
		check "perftest: $program: both ends have had memory of the GPU" [ $((before - $(tail -n 1 /tmp/least))) -ge $((2 * 65536)) ]
	done
fi
no_roce
plan $tap_n
