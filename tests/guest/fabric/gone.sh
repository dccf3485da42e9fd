#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storage node loses power during a read and a write by NVMe over RDMA and a read by NFS. The NVMe requests must end
# with EIO by the controller's timeouts, the NFS read when the share is unmounted by force. Afterwards no byte may
# arrive in the GPU's memory and nothing may be left.
# group: rdma
# topologies: switch
# variants: plain debug
# peer: store storage
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 400
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has nvme-rdma rpcrdma nfsv3 nfsv4
plug
insert peerdma_rdma peerdma_nfs
echo 1 >$software
len=$((8 * mib))
# Give up requests without an answer after a few seconds.
timeout=/sys/module/nvme_core/parameters/io_timeout
read -r io_timeout <$timeout
echo 10 >$timeout
misses_peer_soon

check "the storage node is there" host hear ready 60
arrives() {
	controller=$(connect reconnect_delay=1,ctrl_loss_tmo=5,fast_io_fail_tmo=1,keep_alive_tmo=2,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) ||
		bail "no connection"
	disk=$(disk_of far) || bail "no disk"
}
arrives
same "all is well" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"

# Only this end loses its RDMA device or its link.
device_goes() { rdma link del rxe0; }
device_comes() { rdma link add rxe0 type rxe netdev eth0; }
link_goes() { ip link set eth0 down; }
link_comes() {
	device_goes
	plug
}
for part in device link; do
	for way in read write; do
		what="this end's $part goes under a $way"
		far "dd if=/dev/zero of=\$(nvme_disk nvme0) bs=1M count=8 oflag=direct status=none"
		far "throttle $((mib / 4))"
		begins /tmp/lost $way "$disk" 0 $len 0 $len "host fill gpu0 %AT $len byte:9 >/dev/null"
		check "$what: it is under way" kill -0 $begun
		${part}_goes
		wait $begun
		read -r got _ </tmp/lost
		same "$what: EIO" $EIO "$got"
		host fill gpu0 0 $len pattern:7 >/dev/null
		far "throttle 0"
		check "$what: the controller goes" soon 60 no_controller "$controller"
		${part}_comes
		check "$what: nothing came afterwards" host compare gpu0 0 $len pattern:7
		arrives
		same "$what: and comes back" "$(straight 4096)" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-6)"
		[ $way = read ] || same "$what: nothing was fetched afterwards" 0 "$(dd if="$disk" bs=1M count=8 iflag=direct status=none | tr -d '\000\011' | wc -c)"
	done
done

# NFSv3, which does not report the close of a file to the server.
client vers=3,rdma,port=20049,nolock,mountproto=tcp
far "pattern fill $store/slow 0 65536 pattern:1; sync $store/slow; echo 3 >/proc/sys/vm/drop_caches"
far "throttle 1024 disk1; dd if=$store/slow of=/dev/null bs=64k count=1 iflag=direct status=none"

begins /tmp/given_up read $share/slow 0 65536 0 65536
nfs=$begun
check "NFS: a read is under way" kill -0 $nfs
begins /tmp/given_too write $share/slow 0 65536 0 65536
nfs_write=$begun
check "NFS: a write is under way" kill -0 $nfs_write
far "throttle $((mib / 4))"
declare -A under_way
for way in read write; do
	begins /tmp/$way $way "$disk" 0 $len 0 $len
	under_way[$way]=$begun
done
for way in read write; do check "$way: is under way" kill -0 "${under_way[$way]}"; done
host cut >/dev/null
for way in read write; do
	for ((i = 0; i < 200; i++)); do kill -0 "${under_way[$way]}" 2>/dev/null || break; sleep 0.1; done
	check "$way: it ends" [ $i -lt 200 ]
	read -r got _ <"/tmp/$way"
	same "$way: with its errno" $EIO "$got"
done

# The next user of this memory must see no stray writes.
host fill gpu0 0 $((4 * len)) pattern:7 >/dev/null
for ((i = 0; i < 400; i++)); do [ -e "/sys/class/nvme/$controller" ] || break; sleep 0.1; done
check "the controller goes" [ ! -e "/sys/class/nvme/$controller" ]
check "nothing came afterwards" host compare gpu0 0 $((4 * len)) pattern:7

begun=$nfs
gives_up "NFS, the server is gone"
wait $nfs_write
read -r got _ </tmp/given_too
same "NFS, the server is gone under a write: EIO" $EIO "$got"
sleep 2
check "NFS, the server is gone: nothing came afterwards" host compare gpu0 0 65536 pattern:7
check "NFS, the server is gone: the share goes" soon 10 umount -i -f $share
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
echo "$io_timeout" >$timeout
plan $tap_n
