#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storage node loses its power while reads and writes of NVMe and NFS over RDMA are under way. Those of NVMe end with EIO
# by the controller's timeouts; those of NFS, whose mount is a hard one, wait until it is given up. Nothing comes into the
# GPU's memory afterwards, and nothing is left.
# group: rdma
# topologies: switch
# kernels: 7.2
# variants: plain
# peer: store storage
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has nvme-rdma rpcrdma nfsv4
plug
insert peerdma_rdma peerdma_nfs
echo 1 >$software
EIO=5
mib=1048576
len=$((8 * mib))
# Requests that nobody answers are given up after so many seconds.
timeout=/sys/module/nvme_core/parameters/io_timeout
read -r io_timeout <$timeout
echo 5 >$timeout
# A neighbour who is silent is given up soon. Who is thought to be there is called for a minute.
for setting in base_reachable_time_ms=1000 delay_first_probe_time=1 retrans_time_ms=200 ucast_solicit=1; do
	echo "${setting#*=}" >"/proc/sys/net/ipv4/neigh/eth0/${setting%=*}"
done

check "the storage node is there" host hear ready 60
controller=$(connect reconnect_delay=1,ctrl_loss_tmo=5,fast_io_fail_tmo=1,keep_alive_tmo=2,transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far) ||
	bail "no connection"
disk=$(disk_of far) || bail "no disk"
same "all is well" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"

client vers=4.2,rdma,port=20049
far "pattern fill $store/file 0 $len pattern:2; sync $store/file; echo 3 >/proc/sys/vm/drop_caches"
same "NFS: all is well" "$(straight 4096) 0" "$(pdio read $share/file 0 4096 0)"

far "throttle $((mib / 4)); throttle $((mib / 4)) disk1"
declare -A under_way file=([nvme]=$disk [nfs]=$share/file)
for name in nvme nfs; do
	for way in read write; do
		begins /tmp/$name-$way $way "${file[$name]}" 0 $len 0 $len
		under_way[$name-$way]=$begun
	done
done
for job in "${!under_way[@]}"; do check "$job: is under way" kill -0 "${under_way[$job]}"; done
host cut >/dev/null
# ends JOB: with the errno of a way that broke
ends() {
	local i got
	for ((i = 0; i < 200; i++)); do kill -0 "${under_way[$1]}" 2>/dev/null || break; sleep 0.1; done
	check "$1: it ends" [ $i -lt 200 ]
	read -r got _ <"/tmp/$1"
	same "$1: with its errno" $EIO "$got"
}
ends nvme-read
ends nvme-write
for way in read write; do check "nfs-$way: waits for the server" kill -0 "${under_way[nfs-$way]}"; done
for ((i = 0; i < 60; i++)); do umount -f $share 2>/dev/null && break; sleep 0.5; done
check "the share is given up" [ $i -lt 60 ]
ends nfs-read
ends nfs-write

# Whoever has this memory next has it alone.
host fill gpu0 0 $((4 * len)) pattern:7 >/dev/null
for ((i = 0; i < 400; i++)); do [ -e "/sys/class/nvme/$controller" ] || break; sleep 0.1; done
check "the controller goes" [ ! -e "/sys/class/nvme/$controller" ]
check "nothing came afterwards" host compare gpu0 0 $((4 * len)) pattern:7
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
rdma link del rxe0
echo "$io_timeout" >$timeout
plan $tap_n
