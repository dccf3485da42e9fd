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
device_goes() { rdma link del rxe1 && [ ! -e /sys/class/infiniband/rxe1 ]; }
device_is_back() { rdma link add rxe1 type rxe netdev veth1; }
device_goes_and_comes() { device_goes && device_is_back; }
outlasts "NFS, the RDMA device goes" disk0 device_goes_and_comes
outlasts "NFS, a queue pair errs" disk0 qp_errs rpcrdma_wc_send timeout 60 stat -f $share
given_up "NFS, given up" disk0
device_is_lost disk0
server_is_lost
# The server returns meanwhile: the request is retried.
fresh file $mib 1
begins /tmp/slow read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9; rpc.nfsd 0"
check "NFS, the server restarts: a request is under way" kill -0 $begun
serve
wait $begun
survives "NFS, the server restarts" /tmp/slow $share/file $mib
gpu_is_taken disk0
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
for way in read write ring; do
	breaks_under $way "a queue pair errs" "$disk" disk0 "$drive" queue_errs
	check "a queue pair has erred: the controller, after a $way" soon 60 live "$controller"
done

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
		breaks_under $way "$1" "$disk" disk0 "$drive" "$2"
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
