#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# One drive by NVMe over RDMA through two network cards whose own DMA engines move the bytes (tests/kmod/dmacard_rdma.h), one below the
# GPU's switch and one that reaches the GPU through the host bridge. The kernel's multipath takes the path that the target's asymmetric
# namespace access (ANA) prefers, and the other one while that is gone, also when it goes under a read or a write; `explain` names the
# distance of each.
# group: rdma
# topologies: bridges
# wants: nvme-rdma-p2p
# tier: all
# variants: plain
# needs: rdma
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma
publish
near_ip=10.9.1.1 away_ip=10.9.2.1
! mountpoint -q /mnt/disk || umount /mnt/disk
card_begins $near_ip nvme0
near=$card
card_begins $away_ip nvme1
away=$card
insert peerdma_rdma
drive=$(nvme_disk nvme2)
target far "$drive"
port 1 far rdma ipv4 $near_ip
port 2 far rdma ipv4 $away_ip
# prefers NUMBER: the path by this port is optimized, the other one is not
prefers() {
	echo non-optimized >"$nvmet/ports/$((3 - $1))/ana_groups/1/ana_state"
	echo optimized >"$nvmet/ports/$1/ana_groups/1/ana_state"
}
prefers 1
by() { connect "reconnect_delay=1,ctrl_loss_tmo=60,fast_io_fail_tmo=1,keep_alive_tmo=60,transport=rdma,traddr=$1,trsvcid=442$2,nqn=far"; }
# The far one first, so that the order does not decide.
other=$(by $away_ip 2) || bail "no connection by the far card"
one=$(by $near_ip 1) || bail "no connection by the near card"
disk=$(disk_of far) || bail "no disk"
# is_state CONTROLLER STATE: of the path, as the host knows it
is_state() { [ "$(cat "/sys/class/block/$(path_of "$disk" "$1")/ana_state")" = "$2" ]; }
check "both paths have come" soon 10 [ -e "/sys/class/block/$(path_of "$disk" "$one")" -a -e "/sys/class/block/$(path_of "$disk" "$other")" ]
check "the host knows which path is preferred" soon 20 is_state "$other" non-optimized
peerdma explain "$disk" >/tmp/said
diag "$(cat /tmp/said)"
check "explain: the near card's distance" grep -Eq "$near.* distance 4, bus address" /tmp/said
check "explain: the far card's is longer" grep -Eq "$away.* distance [6-9], host bridge" /tmp/said
moves_by "the near card is preferred" "$disk" $((2 * mib)) "$near" "$away"

near_goes() { rm $nvmet/ports/1/subsystems/far; }
near_comes() {
	ln -s $nvmet/subsystems/far $nvmet/ports/1/subsystems/far
	check "$1: the near card's path is back" soon 60 live "$one"
	check "$1: and is preferred again" soon 20 is_state "$one" optimized
}
near_goes
check "the near card's path goes" soon 20 eval '! live $one'
moves_by "without it" "$disk" $((2 * mib)) "$away" "$near"
near_comes "without it"
moves_by "the near card's path is back" "$disk" $((2 * mib)) "$near" "$away"
# The kernel makes the request again by the far card, with the same pages of the GPU.
for way in read write; do
	what="the near card's path goes under a $way"
	record_anew "$away"
	goes_on $way "$what" "$disk" disk2 near_goes
	diag "at the GPU, by the far card: $(at_gpu "$away")"
	read -r out in < <(at_gpu "$away")
	[ $way = read ] || in=$out
	check "$what: the far card moves the rest" [ "$in" -gt 0 ]
	near_comes "$what"
done

prefers 2
check "the host knows that the far one is preferred now" soon 20 is_state "$other" optimized
check "and the near one not" soon 20 is_state "$one" non-optimized
moves_by "the far card is preferred" "$disk" $((2 * mib)) "$away" "$near"

for controller in "$one" "$other"; do disconnect "$controller"; done
for controller in "$one" "$other"; do check "$controller goes" soon 20 no_controller "$controller"; done
no_targets
wipefs -qa "$drive"
rmmod peerdma_rdma
cards_end
plan $tap_n
