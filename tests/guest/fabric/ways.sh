#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The path to another machine's storage breaks under a request, on the debug kernel. NVMe over RDMA: the target, link or
# RDMA device goes, or the controller is reset. NFS: the RDMA device goes and returns, or the share is unmounted by
# force. Both: the GPU is unbound. Each pending request must end with the right errno and nothing may be left; the boot
# checks for leaks. Soft-RoCE, target and initiator in this guest. On plain kernels: fabric.sh, nfs.sh. For verbs:
# verbs.sh.
# group: rdma
# topologies: switch
# boot: ways
# variants: debug
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv4
insert peerdma_rdma peerdma_nfs
echo 1 >$software
mountpoint -q /mnt/disk && umount /mnt/disk
drive=$(nvme_disk)
# Give up requests without an answer after a few seconds, but not requests that are merely slow.
timeout=/sys/module/nvme_core/parameters/io_timeout
read -r io_timeout <$timeout
echo 60 >$timeout
wire

# --- NFS over RDMA
mkdir -p $store
mount "$drive" $store || bail "no store"
server || bail "no server"
echo N >/sys/module/nfs/parameters/localio_enabled
fresh file $mib 1
client vers=4.2,rdma,port=20049
throttle $((mib / 8)) disk0
echo 3 >/proc/sys/vm/drop_caches
begins /tmp/slow read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9"
check "NFS, the RDMA device goes: a request is under way" kill -0 $begun
check "NFS, the RDMA device goes: and comes" bash -c "rdma link del rxe1 && rdma link add rxe1 type rxe netdev veth1"
throttle 0 disk0
wait $begun
survives "NFS, the RDMA device goes" /tmp/slow $share/file $mib
fresh file $mib 1
throttle $((mib / 8)) disk0
echo 3 >/proc/sys/vm/drop_caches
begins /tmp/slow read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9"
check "NFS, a queue pair errs: a request is under way" kill -0 $begun
check "NFS, a queue pair errs: it does" qp_errs rpcrdma_wc_send timeout 60 stat -f $share
throttle 0 disk0
wait $begun
survives "NFS, a queue pair errs" /tmp/slow $share/file $mib
given_up "NFS, given up" disk0
device_goes() { rdma link del rxe1 && [ ! -e /sys/class/infiniband/rxe1 ]; }
device_is_back() { rdma link add rxe1 type rxe netdev veth1; }
# The server's file has either its old bytes or the new ones.
all_or_nothing() { pattern compare $store/slow 0 65536 pattern:1 || [ "$(tr -d '\011' <$store/slow | wc -c)" = 0 ]; }
given_up "NFS, the RDMA device goes under a read" disk0 device_goes device_is_back
fresh slow 65536 1
same "NFS, the RDMA device is back: a read" "$(straight 65536) 0" "$(pdio read $share/slow 0 65536 0)"
for kind in "write" "ring's write"; do
	what="NFS, the RDMA device goes under a $kind"
	fresh slow 65536 1
	[ "$kind" = write ] || export RING=1
	begins /tmp/given_up write $share/slow 0 65536 0 65536 "fsfreeze -f $store; host fill gpu0 %AT 65536 byte:9"
	device_goes &
	gives_up "$what"
	fsfreeze -u $store
	wait $!
	same "$what: it does happen" 0 $?
	device_is_back
	wait
	sleep 1
	check "$what: nothing was fetched afterwards" all_or_nothing
done
unset RING
fresh slow 65536 1
same "NFS: a read" "$(straight 65536) 0" "$(pdio read $share/slow 0 65536 0)"
begins /tmp/given_up read $share/slow 0 65536 0 65536 "rpc.nfsd 0"
gives_up "NFS, the server goes"
serve
wait $begun
check "NFS, the server comes: nothing came afterwards" host compare gpu0 0 65536 pattern:7
begins /tmp/given_up write $share/slow 0 65536 0 65536 "rpc.nfsd 0; host fill gpu0 %AT 65536 byte:9"
gives_up "NFS, the server goes under a write"
serve
wait $begun
sleep 1
check "NFS, the server comes: nothing was fetched afterwards" pattern compare $store/slow 0 65536 pattern:1
# The RDMA device returns meanwhile: the request is retried.
fresh file $mib 1
begins /tmp/slow read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9; rpc.nfsd 0"
check "NFS, the server restarts: a request is under way" kill -0 $begun
serve
wait $begun
survives "NFS, the server restarts" /tmp/slow $share/file $mib
throttle $((mib / 8)) disk0
fresh file $mib 1
echo 3 >/proc/sys/vm/drop_caches
taken read "NFS" $share/file disk0 $mib
umount $share
client vers=4.2,rdma,port=20049
begins /tmp/slow write $share/file 0 $mib 0 $mib "rpc.nfsd 0; host fill gpu0 %AT $mib pattern:5"
peerdma unpublish "$(gpu_bdf)" >/dev/null &
sleep 1
check "NFS, the GPU is unbound under a write: who unbinds waits for it" kill -0 $!
serve
wait $begun
same "NFS, the GPU is unbound under a write: the request is whole" "$(straight $mib)" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
check "NFS, the GPU is unbound under a write: and its bytes" pattern compare $store/file 0 $mib pattern:5
wait
publish
umount $share
rm -f $store/file $store/slow
no_server

# --- NVMe over RDMA
target far "$drive"
port 1 far rdma ipv4 $far_ip
# comes DESCRIPTION OPTIONS
comes() {
	controller=$(connect "$2,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far") && disk=$(disk_of far) || bail "no connection"
	same "$1: a read" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
}
target_goes() { rm "$nvmet/ports/1/subsystems/far"; }
target_comes() { ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"; }
# fails DESCRIPTION: the next request fails too
fails() { same "$1: the next one" "$EIO 0 0" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"; }

comes "connected with patience" "$soon"
taken_twice "NVMe" "$disk" disk0 $((2 * mib))
disconnect "$controller"
comes "connected with more patience" "$patient"
goes_on read "NVMe, a controller is reset" "$disk" disk0 reset "$controller"
queue_errs() { qp_errs nvme_rdma_send_done timeout 60 pdio read "$disk" 0 4096 0; }
for way in read write; do goes_on $way "NVMe, a queue pair errs" "$disk" disk0 queue_errs; done
# A second path, which must take over when the first one's target goes.
port 2 far rdma ipv6 fd09::2
six=$(connect "$patient,transport=rdma,traddr=fd09::2,trsvcid=4422,nqn=far") || bail "no second path"
two_paths() { set -- /sys/class/block/nvme*c*n1; [ $# = 2 ]; }
for file in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin >"$file"; done
for way in read write; do
	check "NVMe, one of two paths: the controller is there, before a $way" soon 60 live "$controller"
	check "NVMe, one of two paths: both are one disk's" soon 10 two_paths
	goes_on $way "NVMe, one of two paths goes" "$disk" disk0 target_goes
	target_comes
done
check "NVMe, one of two paths comes back" soon 60 live "$controller"
disconnect "$six"
rm "$nvmet/ports/2/subsystems/far"
rmdir "$nvmet/ports/2"
disconnect "$controller"
comes "connected" "$soon"
breaks "the target goes" "$disk" disk0 target_goes
fails "the target goes"
target_comes
check "the target comes: so does the controller" soon 60 live "$controller"
same "the target comes: a read" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
write_breaks "the target goes under a write" "$disk" disk0 "$drive" target_goes
target_comes
check "the target comes: the controller, too" soon 60 live "$controller"
RING=1 breaks "the target goes under a ring" "$disk" disk0 target_goes
target_comes
check "the target comes: the controller, once more" soon 60 live "$controller"

# A queue pair fails, and the controller reconnects.
breaks "a queue pair errs under a read" "$disk" disk0 queue_errs
check "a queue pair has erred: the controller, after a read" soon 60 live "$controller"
write_breaks "a queue pair errs under a write" "$disk" disk0 "$drive" queue_errs
check "a queue pair has erred: the controller, after a write" soon 60 live "$controller"
RING=1 write_breaks "a queue pair errs under a ring's write" "$disk" disk0 "$drive" queue_errs
check "a queue pair has erred: the controller, after a ring's write" soon 60 live "$controller"

# The RDMA device and the link break, each under a read, a write and a ring's write; the controller is removed with
# them.
device_comes() {
	target_goes
	rdma link add rxe1 type rxe netdev veth1
	target_comes
}
link_goes() { ip link set veth1 down && [ "$(cat /sys/class/net/veth1/operstate)" = down ]; }
# Soft-RoCE may never reconnect after it lost its link: Documentation/upstream/rxe-link-down.
link_comes() {
	ip link set veth1 up
	sleep 1
	check "the link is up: nothing came afterwards" host compare gpu0 0 $((8 * mib)) pattern:7
	target_goes
	rdma link del rxe0
	rdma link del rxe1
	rdma link add rxe0 type rxe netdev veth0
	rdma link add rxe1 type rxe netdev veth1
	target_comes
}
# loses DESCRIPTION goes comes: of a controller that does not reconnect
loses() {
	local way
	for way in read write ring; do
		comes "$1, before a $way: connected for once" "$once"
		case $way in
		read) breaks "$1 under a read" "$disk" disk0 "$2" ;;
		write) write_breaks "$1 under a write" "$disk" disk0 "$drive" "$2" ;;
		ring) RING=1 write_breaks "$1 under a ring's write" "$disk" disk0 "$drive" "$2" ;;
		esac
		check "$1 under a $way: and the controller with it" soon 30 no_controller "$controller"
		"$3"
	done
}
disconnect "$controller"
loses "the RDMA device goes" device_goes device_comes
loses "the link goes" link_goes link_comes
no_targets

# --- Teardown
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
same "as many queue pairs have erred as were told to" 6 "$(cat /sys/module/qperr/parameters/errors)"
check "the module that made them err goes" rmmod qperr
unwire
echo "$io_timeout" >$timeout
plan $tap_n
