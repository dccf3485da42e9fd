#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two network cards whose own DMA engines move the bytes (tests/kmod/dmacard_rdma.h), one below the GPU's switch and one elsewhere, where
# the GPU cannot be reached: which card leads to a server decides, for NFS over RDMA and for each path of a drive by NVMe over RDMA.
# group: rdma
# topologies: paths
# tier: all
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv4
publish
DISTANCE=34
near_ip=10.9.1.1 away_ip=10.9.2.1
# says FILE: reason, the PCI function that is asked
says() { verdict "$1" reason backing; }
reads() { pdio read "$1" 0 4096 0 | cut -d' ' -f1-3; }

card_begins $near_ip nvme0
near=$card
card_begins $away_ip nvme1
away=$card
insert peerdma_rdma peerdma_nfs

# --- NFS over RDMA
drive=$(nvme_disk nvme2)
stored "$drive"
echo N >/sys/module/nfs/parameters/localio_enabled
fresh file $((4 * mib)) 1
far_ip=$near_ip
client vers=4.2,rdma,port=20049
same "a share by the near card" "NONE $near" "$(says $share/file)"
moves_by "a share by the near card" $share/file $((4 * mib)) "$near" "$away"
umount $share
far_ip=$away_ip
client vers=4.2,rdma,port=20049
same "a share by the far card" "DISTANCE $away" "$(says $share/file)"
same "a share by the far card: a read" "$EXDEV $DISTANCE 0" "$(reads $share/file)"
umount $share
no_server
wipefs -qa "$drive"
rmmod peerdma_nfs

# --- NVMe over RDMA: paths of one disk
if lacks nvme-rdma-p2p; then
	skip "paths of NVMe over RDMA" "$lack"
else
	target far "$drive"
	port 1 far rdma ipv4 $near_ip
	port 2 far rdma ipv4 $away_ip
	# by IP PORT [OPTIONS]: one more path
	by() { connect "reconnect_delay=1,ctrl_loss_tmo=60,keep_alive_tmo=60${3:+,$3},transport=rdma,traddr=$1,trsvcid=442$2,nqn=far"; }
	one=$(by $near_ip 1 fast_io_fail_tmo=1) || bail "no connection by the near card"
	disk=$(disk_of far) || bail "no disk"
	same "a drive by the near card" "NONE $near" "$(says "$disk")"
	moves_by "a drive by the near card" "$disk" $((4 * mib)) "$near" "$away"
	other=$(by $away_ip 2) || bail "no connection by the far card"
	check "a path by the far card has come" soon 10 [ -e "/sys/class/block/$(path_of "$disk" "$other")" ]
	same "and one by the far card" "DISTANCE $away" "$(says "$disk")"
	same "and one by the far card: a read" "$EXDEV $DISTANCE 0" "$(reads "$disk")"
	disconnect "$other"
	check "the far card's has gone" soon 20 no_controller "$other"
	moves "the far card's has gone" "$disk" 0 65536

	# only_far_is_left read|write: the far card's path comes while a request is under way, and then the near one's target goes. The kernel
	# makes the request again by the far card, which cannot map it, until the target is back.
	only_far_is_left() {
		local what="only the far card is left under a $1" len=$((4 * mib)) seed=1 image=gpu0 fill=9 again
		[ "$1" = read ] || seed=5 image=disk2 fill=5
		pattern fill "$disk" 0 $len pattern:1
		blockdev --flushbufs "$disk"
		throttle $((128 << 10)) disk2
		begins /tmp/over "$1" "$disk" 0 $len 0 $len "host fill gpu0 %AT $len pattern:$fill"
		check "$what: it is under way" kill -0 "$begun"
		other=$(by $away_ip 2) || bail "no connection by the far card"
		check "$what: its path has come" soon 20 [ -e "/sys/class/block/$(path_of "$disk" "$other")" ]
		rm $nvmet/ports/1/subsystems/far
		check "$what: the near card's is broken" soon 20 eval '! live $one'
		throttle 0 disk2
		sleep 3
		check "$what: it waits" kill -0 "$begun"
		read -r again <"/sys/class/block/$(path_of "$disk" "$other")/diag/multipath_failover_count"
		check "$what: it is made again and again" [ "${again:-0}" -gt 10 ]
		diag "in about 3 s $again times"
		ln -s $nvmet/subsystems/far $nvmet/ports/1/subsystems/far
		wait "$begun"
		same "$what: it is whole" "$(straight $len)" "$(tail -n 1 /tmp/over | cut -d' ' -f1-6)"
		check "$what: and its bytes" host compare $image 0 $len pattern:$seed
		disconnect "$other"
		check "$what: the far card's path goes" soon 20 no_controller "$other"
		check "$what: the near card's comes back" soon 60 live "$one"
		moves "$what, and then not" "$disk" 0 65536
	}
	only_far_is_left read
	only_far_is_left write
	disconnect "$one"
	check "the controllers go" soon 20 no_controller "$one"
	no_targets
	wipefs -qa "$drive"
fi
rmmod peerdma_rdma
cards_end
plan $tap_n
