# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # the tests assign what is used here
# Sourced after lib.sh by tests of verbs with two ends in this guest. $verbs_device: the RDMA device; $verbs_netdev: its network
# interface, with the address 10.9.1.1/24.

# what_returns: notes how much memory the GPU has
what_returns() {
	gpu=$(gpu_bdf)
	read -r pool <"/sys/bus/pci/devices/$gpu/p2pmem/size"
}

# post PORT DESCRIPTION: a process posts WRITEs to the end that serves there, until one of them fails; returns when they are under way.
# What it prints is in /tmp/busy.
post() {
	: >/tmp/busy # before the process begins there is what the last one printed
	verbs busy 127.0.0.1 "$1" "$verbs_device" >/tmp/busy &
	busy=$!
	check "$2: work requests are under way" soon 60 grep -qx busy /tmp/busy
}

# one_killed: kills the serving end under WRITEs of the other
one_killed() {
	local serving busy
	verbs serve 4795 "$verbs_device" &
	serving=$!
	post 4795 "one end is killed"
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
	verbs serve 4793 "$verbs_device" &
	serving=$!
	post 4793 "$1"
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
	local busy
	verbs serve 4794 "$verbs_device" &
	post 4794 "the link goes"
	ip link set "$verbs_netdev" down
	wait $busy
	# Soft-RoCE reports requests that it could not send as flushed.
	check "the link goes: they end with an error" grep -qx "transport retry counter exceeded\|Work Request Flushed Error" \
		<(tail -n 1 /tmp/busy)
	wait
	ip link set "$verbs_netdev" up
	ip addr add 10.9.1.1/24 dev "$verbs_netdev" 2>/dev/null # removed with the link, perhaps
	all_back "the link goes"
}

# asked MODE [GPU IMAGE]: runs one end against the other, whose memory is the first GPU's or that of GPU, which the host knows as IMAGE
asked() {
	VERBS_GPU=${2:-$gpu} verbs serve 4791 "$verbs_device" &
	local serving=$!
	relay env VERBS_GPU="$gpu" verbs "$1" 127.0.0.1 4791 "$verbs_device" "$gpu" "${3:-gpu0}"
	wait $serving || not_ok "the other end"
}
