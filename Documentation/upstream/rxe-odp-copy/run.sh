#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh ./rxe_odp: as root, with modprobe able to find rdma_rxe and dummy, and iproute2's ip and rdma.
set -u
modprobe -a dummy rdma_rxe ib_uverbs
ip link add rxeodp type dummy
ip link set rxeodp mtu 9000 up
ip addr add 10.99.99.1/24 dev rxeodp
rdma link add rxeodp type rxe netdev rxeodp
sleep 1
status=0
# What is whole pages to a packet is right; the rest is not.
for case in "4096 0 4096" "4096 0 65536" "1024 0 4096" "4096 100 1000" "4096 4000 200"; do
	for verb in write read; do
		# shellcheck disable=SC2086
		"$1" rxeodp $case $verb || status=1
	done
done
rdma link del rxeodp
ip link del rxeodp
exit $status
