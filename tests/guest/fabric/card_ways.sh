#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe over RDMA by a network card whose own DMA engine moves the bytes, and what is under way when something goes: the card, its link,
# the target, a queue pair, the controller, the GPU. Each read, write and write of a ring ends with the right errno or is made again whole,
# and nothing reaches the GPU's memory, or is fetched from it, afterwards. And a drive of the target of which a block is bad. Both ends in
# this guest.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain debug
# needs: rdma CONFIG_BLK_DEV_DM dmsetup
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
	RING=1 breaks "$slow, the target goes under a ring's read" "$disk" $image rm "$nvmet/ports/1/subsystems/far"
	ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
	comes_back "$slow, after a ring's read, the target"
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

taken_twice "its memory" "$disk" disk1 $((2 * mib))
# Requests wait for this one's target, however long.
disconnect "$controller"
check "the controller goes" soon 20 no_controller "$controller"
options=${options/fast_io_fail_tmo=1,/}
connected
goes_on read "the controller is reset" "$disk" disk1 reset "$controller"
goes_on write "the controller is reset" "$disk" disk1 reset "$controller"
for way in read write; do goes_on $way "a queue pair errs" "$disk" disk1 queue_errs; done
check "the module that made them err goes" rmmod qperr

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

# --- One block of the target's drive can neither be read nor written.
export DM_DISABLE_UDEV=1
modprobe -d "$LAB_KERNEL" -q dm-mod
pattern fill "$drive" 0 $((8 * mib)) pattern:1
blockdev --flushbufs "$drive"
bad=$((2 * mib))
table bad "0 $((bad / 512)) linear $drive 0
$((bad / 512)) 8 error
$((bad / 512 + 8)) $((6 * mib / 512 - 8)) linear $drive $((bad / 512 + 8))"
target bad /dev/mapper/bad
port 1 bad rdma ipv4 $ip
controller=$(connect "${options%nqn=far}nqn=bad") || bail "no connection to the bad drive"
disk=$(disk_of bad) || bail "no bad disk"
for len in 4096 65536; do
	first=$((bad - (len > 4096 ? 32768 : 0)))
	what="$len bytes, a block of which is bad"
	same "$what: a read" "$EIO 0 0" "$(pdio read "$disk" $first $len 0 $len "host fill gpu0 %AT $len pattern:9" | cut -d' ' -f1-3)"
	check "$what: a read has moved nothing" host compare gpu0 0 $len pattern:9
	same "$what: a read before it" "$(straight $len) 0" "$(pdio read "$disk" $((bad - len)) $len 0 $len "host fill gpu0 %AT $len pattern:9")"
	check "$what: and its bytes" host compare gpu0 0 $len pattern:1 $((bad - len))
	same "$what: a read behind it" "$(straight $len) 0" "$(pdio read "$disk" $((bad + 4096)) $len 0 $len "host fill gpu0 %AT $len pattern:9")"
	check "$what: and its bytes, too" host compare gpu0 0 $len pattern:1 $((bad + 4096))
done
same "a bad block: a write" "$EIO 0 0" "$(pdio write "$disk" $bad 4096 0 4096 "host fill gpu0 %AT 4096 pattern:5" | cut -d' ' -f1-3)"
check "a bad block: the drive is as before" host compare disk1 0 $((8 * mib)) pattern:1
check "a bad block: the controller is there" live "$controller"
disconnect "$controller"
check "the bad drive's controller goes" soon 20 no_controller "$controller"
no_targets
check "the bad drive goes" dmsetup remove --retry bad
rmmod peerdma_rdma
echo "$io_timeout" >$timeouts/io_timeout
echo "$admin_timeout" >$timeouts/admin_timeout
cards_end
plan $tap_n
