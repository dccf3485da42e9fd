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
# timeout: 300
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/verbs_ends.sh"

publish
what_returns
roce
verbs_device=rxe0 verbs_netdev=roce0

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

if lacks rdma-on-demand; then
	relay verbs refused rxe0 VERBS_DEVICE no
	skip "WRITE, READ, SEND; what goes away under them; perftest" "$lack"
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
