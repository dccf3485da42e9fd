#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe over RDMA by a network card whose own DMA engine moves the bytes, and what is under way when something goes: the card, its link,
# the target, a queue pair, the controller, the GPU. Each read, write and write of a ring ends with the right errno or is made again whole,
# and nothing reaches the GPU's memory, or is fetched from it, afterwards. Both ends in this guest.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain debug
# needs: rdma
# timeout: 900
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma
publish
ip=10.9.1.1

# A request that takes half a minute must end only because of what goes.
timeouts=/sys/module/nvme_core/parameters
read -r io_timeout <$timeouts/io_timeout
read -r admin_timeout <$timeouts/admin_timeout
echo 60 >$timeouts/io_timeout
echo 10 >$timeouts/admin_timeout

card_begins $ip
drive=$(nvme_disk nvme1)
wipefs -qa "$drive"
target far "$drive"
port 1 far rdma ipv4 $ip
# Without an answer for so long, as the card is slow in what follows.
options="reconnect_delay=1,ctrl_loss_tmo=60,fast_io_fail_tmo=1,keep_alive_tmo=60,transport=rdma,traddr=$ip,trsvcid=4421,nqn=far"
connected() {
	controller=$(connect "$options") || bail "no connection"
	disk=$(disk_of far) || bail "no disk"
}
connected_again() { controller=$(connects_once "$options"); }
connected
insert peerdma_rdma
moves "before" "$disk" 0 $mib
comes_back() {
	check "$1 comes back: the controller connects again" soon 60 live "$controller"
	moves "$1 comes back" "$disk" 0 65536
}
pattern fill "$disk" 0 $((8 * mib)) pattern:1
blockdev --flushbufs "$disk"

# --- By disk1 the target's drive is slow, by disk0 the card's own copies are: bytes are moved while something goes.
for image in disk1 disk0; do
	slow="the drive is slow"
	[ $image = disk1 ] || slow="the card is slow"
	for way in read write ring; do
		breaks_under $way "$slow, the target goes" "$disk" $image "$drive" rm "$nvmet/ports/1/subsystems/far"
		ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
		comes_back "$slow, after a $way, the target"
	done
done

link_goes() { ip link set card0 down; }
for way in read write ring; do
	breaks_under $way "the link goes" "$disk" disk0 "$drive" link_goes
	ip link set card0 up
	ip addr add $ip/24 dev card0 2>/dev/null # removed with the link, perhaps
	comes_back "the link, gone under a $way,"
done

queue_errs() { POST_SEND=dmacard_post_send qp_errs nvme_rdma_send_done timeout 30 pdio read "$disk" 0 4096 0; }
for way in read write ring; do
	breaks_under $way "a queue pair errs" "$disk" disk1 "$drive" queue_errs
	comes_back "a queue pair errs under a $way: the controller"
done
check "the module that made them err goes" rmmod qperr

taken_twice "its memory" "$disk" disk1 $((2 * mib))
# Requests wait for this one's target, however long.
disconnect "$controller"
check "the controller goes" soon 20 no_controller "$controller"
options=${options/fast_io_fail_tmo=1,/}
connected
goes_on read "the controller is reset" "$disk" disk1 reset "$controller"
goes_on write "the controller is reset" "$disk" disk1 reset "$controller"

# --- The card itself. nvme-rdma gives its controllers up then; the target's port is made anew by hand.
for way in read write ring; do
	what="the card goes under a $way"
	breaks_under $way "the card goes" "$disk" disk0 "$drive" unbind_card
	check "$what: so does the controller" soon 60 no_controller "$controller"
	check "$what: it is back" bind_card $ip
	rm "$nvmet/ports/1/subsystems/far"
	ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
	soon 30 connected_again
	same "$what: the target is connected again" 0 $?
	disk=$(disk_of far) || bail "no disk"
	moves "$what and comes" "$disk" 0 $mib
done

disconnect "$controller"
check "the controller goes" soon 20 no_controller "$controller"
no_targets
rmmod peerdma_rdma
echo "$io_timeout" >$timeouts/io_timeout
echo "$admin_timeout" >$timeouts/admin_timeout
cards_end
plan $tap_n
