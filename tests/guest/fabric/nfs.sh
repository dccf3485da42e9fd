#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA through soft-RoCE, server and client in this guest, with the lab's parameter, v4.2 and v3. Tests the
# bytes as the host sees them in the GPU's memory and the server in its file, ends of files, other writers, the page
# cache, a server restart, a lost lease, removal of an RDMA device and a forced unmount. Must be refused: TCP, a server
# that is used past the network, and pNFS layouts, which the server hands out on 7.2. nfs_ways.sh tests several
# connections. Kerberos is not tested.
# group: rdma
# topologies: disks
# tier: all
# variants: plain
# needs: CONFIG_BLK_DEV_DM dmsetup filefrag rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 400
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth rpcrdma nfsd nfsv3 nfsv4
localio=/sys/module/nfs/parameters/localio_enabled
mib=1048576
BUF_ALIGN=5 END=20 NFS_TRANSPORT=22 NFS_LOCAL=23 NFS_LAYOUT=24

# says FILE: reason and mapping
says() { peerdma explain "$1" | awk '$1 == "reason" { sub(":", "", $2); reason = $2 } $1 == "mapping" { map = $2 } END { print reason, map }'; }
# refused DESCRIPTION FILE NUMBER NAME
refused() {
	same "explain: $1" "$4 none" "$(says "$2")"
	same "read: $1" "$EXDEV $3 0" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-3)"
	same "write: $1" "$EXDEV $3 0" "$(pdio write "$2" 0 4096 0 | cut -d' ' -f1-3)"
}

wire
# A drive that can be made to fail in one place.
modprobe -d "$LAB_KERNEL" -a dm-mod 2>/dev/null
export DM_DISABLE_UDEV=1
drive=$(nvme_disk nvme1)
sectors=$(blockdev --getsz "$drive")
dmsetup create far --table "0 $sectors linear $drive 0" || bail "no dm"
stored /dev/mapper/far
echo N >$localio
fresh file $((8 * mib + 12345)) 1

# --- Refusals and their reasons
client vers=4.2,proto=tcp
refused "NFS without its module" $share/file $RDMA_MODULE RDMA_MODULE
insert peerdma_rdma peerdma_nfs
refused "NFS over TCP" $share/file $NFS_TRANSPORT NFS_TRANSPORT
umount $share
client vers=4.2,rdma,port=20049
refused "soft-RoCE without the parameter" $share/file $RDMA_SOFTWARE RDMA_SOFTWARE
echo 1 >$software
same "explain: with the parameter" "NONE software" "$(says $share/file)"
check "explain: and that the CPU copies" grep -q '^bounced *RDMA_SOFTWARE: ' <(peerdma explain $share/file)
same "explain: what moves the bytes" "nfs4  not a PCI function's own" "$(peerdma explain $share/file | sed -n 's/^backing *//p')"
same "a read that nothing may bounce" "$EXDEV $RDMA_SOFTWARE 0" "$(NO_BOUNCE=1 pdio read $share/file 0 4096 0 | cut -d' ' -f1-3)"
umount $share
echo Y >$localio
client vers=4.2,rdma,port=20049
for _ in {1..50}; do [ "$(says $share/file)" = "NFS_LOCAL none" ] && break; sleep 0.1; done
refused "a server past the network" $share/file $NFS_LOCAL NFS_LOCAL
umount $share
echo N >$localio

# The connection to the server is RDMA, but a layout may give the files another route.
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0,pnfs "*:$store"
modprobe -d "$LAB_KERNEL" -q nfs_layout_flexfiles
client vers=4.2,rdma,port=20049
if grep -q CONFIG_NFSD_FLEXFILELAYOUT=y "$LAB_KERNEL/config"; then
	refused "a server that gives layouts away" $share/file $NFS_LAYOUT NFS_LAYOUT
	# A read by the client would wait for ever: this server gives layouts that need TCP.
	same "explain: it has read nothing" '' "$(pidof peerdma)"
else
	skip "a server that gives layouts away" "this kernel's server has none"
fi
umount $share
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$store"

# resize LEN: by another client. The server may have granted this client a delegation and recalls it then.
other=/mnt/other
resize() {
	for _ in {1..100}; do ! truncate -s "$1" $other/file 2>/dev/null || return 0; sleep 0.1; done
	return 1
}
# another OPTIONS: mounts the share with the other version
another() { mkdir -p $other && mount -t nfs -o "$1" $far_ip:"$2" $other || bail "no other client"; }

# read_case DESCRIPTION OFF LEN BUF_OFF WANT REASON SEED
read_case() {
	local got
	got=$(pdio read $share/file "$2" "$3" "$4" $((10 * mib)) "host fill gpu0 0 $((10 * mib)) pattern:9")
	same "$1" "0 $6 $5 0 0 $5" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
	check "$1: what came" same_bytes "$2" "$4" "$5" "$7"
}
same_bytes() {
	{ [ "$3" = 0 ] || host compare gpu0 "$2" "$3" "pattern:$4" "$1"; } &&
		{ [ "$2" = 0 ] || host compare gpu0 0 "$2" pattern:9; } &&
		host compare gpu0 $(($2 + $3)) $((10 * mib - $2 - $3)) pattern:9 $(($2 + $3))
}

# outlives read|write DESCRIPTION COMMAND...: a slow request must complete in full although COMMAND runs meanwhile
outlives() {
	local seed=9 len=$((8 * mib)) what="$version: $2 under a $1"
	[ "$1" = read ] || seed=5
	throttle $((2 * mib)) disk1
	echo 3 >/proc/sys/vm/drop_caches
	begins /tmp/slow "$1" $share/file 0 $len 0 $((10 * mib)) "host fill gpu0 0 $((10 * mib)) pattern:$seed"
	check "$what: it is under way" kill -0 $begun
	check "$what: it happens" "${@:3}"
	throttle 0 disk1
	[ "$3" != leases_go ] || recovers eval "! kill -0 $begun 2>/dev/null"
	wait $begun
	if [ "$3" = device_goes ]; then
		survives "$what" /tmp/slow $share/file $len
		return
	fi
	same "$what: it is whole" "$(straight $len)" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
	if [ "$1" = read ]; then
		check "$what: and its bytes" host compare gpu0 0 $len pattern:1
	else
		check "$what: and its bytes" pattern compare $store/file 0 $len pattern:5
		check "$what: and behind it" pattern compare $store/file $len 12345 pattern:1 $len
	fi
}
# The server forgets its clients and their open files.
leases_go() { for ctl in /proc/fs/nfsd/clients/*/ctl; do echo expire >"$ctl"; done; }
# recovers COMMAND...: must succeed in the end. A client that asks while the server is about to expire it may never
# report that it has reclaimed its state (Documentation/upstream/nfs-lease-expired). It does so once the server has
# expired it again.
recovers() {
	for _ in {1..4}; do
		! soon 20 "$@" || return 0
		diag "the client has not recovered by itself"
		leases_go
	done
	return 1
}
read_clients() { clients=(/proc/fs/nfsd/clients/*); }
other_clients() { local before=${clients[*]}; read_clients; [ "$before" != "${clients[*]}" ]; }
server_restarts() { rpc.nfsd 0; serve; }
device_goes() { rdma link del rxe1 && rdma link add rxe1 type rxe netdev veth1; }

for version in 4.2 3; do
	options=vers=$version,rdma,port=20049,actimeo=60
	if [ $version = 4.2 ]; then
		another vers=3,tcp,nolock,mountproto=tcp $store
	else
		options+=,nolock,mountproto=tcp
		another vers=4.2,tcp /
	fi
	client $options
	fresh file $((8 * mib + 12345)) 1
	cat $share/file >/dev/null
	length=$((8 * mib + 12345))
	read_case "$version: a page" 4096 4096 8192 4096 $RDMA_SOFTWARE 1
	read_case "$version: several requests of the client's" 8192 $((4 * mib)) 4096 $((4 * mib)) $RDMA_SOFTWARE 1
	read_case "$version: odd places" 1001 70001 1001 70001 $RDMA_SOFTWARE 1
	read_case "$version: where no device can put it" 0 4096 1 4096 $BUF_ALIGN 1
	read_case "$version: more of that" 4096 70001 8193 70001 $BUF_ALIGN 1
	read_case "$version: the end of the file" $((8 * mib)) $mib 0 12345 $END 1
	read_case "$version: behind it" $((9 * mib)) 4096 0 0 $END 1

	host fill gpu0 0 $mib pattern:9 >/dev/null
	for at in "0 4096" "$mib $((2 * mib))" "4097 10000"; do
		read -r off len <<<"$at"
		got=$(pdio write $share/file "$off" "$len" $((off % 4096)) $((4 * mib)) "host fill gpu0 0 $((4 * mib)) pattern:5")
		same "$version: a write of $len bytes at $off" "0 $len" "$(cut -d' ' -f1,3 <<<"${got##*$'\n'}")"
		check "$version: what the server has" pattern compare $store/file "$off" "$len" pattern:5 $((off % 4096))
	done
	check "$version: and around" pattern compare $store/file 14097 $((mib - 14097)) pattern:1 14097

	# Another client changes the length that this client has cached.
	fresh file $length 1
	cat $share/file >/dev/null
	resize $((mib + 100)) || bail "not truncated"
	read_case "$version: truncated by another, the end" $mib 8192 0 100 $END 1
	fresh file $length 1
	cat $share/file >/dev/null
	got=$(pdio read $share/file 0 65536 0 65536 "other=$other; $(declare -f resize); host fill gpu0 0 65536 pattern:9; resize 10000")
	same "$version: truncated by another, while it is open" "0 $END 10000" "$(tail -n 1 <<<"$got" | cut -d' ' -f1-3)"
	check "$version: what came" host compare gpu0 0 10000 pattern:1
	check "$version: what is behind it" host compare gpu0 10000 55536 pattern:9 10000
	fresh file $length 1
	read_case "$version: made longer by another" $((2 * mib)) $mib 0 $mib $RDMA_SOFTWARE 1
	resize $((2 * mib + 4096)) || bail "not truncated"
	read_case "$version: whole pages that are gone" $((2 * mib)) $mib 0 4096 $END 1

	fresh file $length 1
	outlives read "the server restarts" server_restarts
	outlives read "the RDMA device goes and comes" device_goes
	outlives write "the server restarts" server_restarts
	if [ $version = 4.2 ]; then
		fresh file $length 1
		read_clients
		outlives read "the lease is lost" leases_go
		outlives write "the lease is lost" leases_go
		check "$version: it was: the server knows another client" other_clients
		# The client's recovery of its open files and the server's own work on the file interfere.
		check "$version: and what was open is open again" recovers eval "timeout 5 head -c 1 $share/file >/dev/null"
	fi

	# Bytes in the client's page cache, and bytes that bypass it.
	fresh file $length 1
	pattern fill $share/file 8192 8192 pattern:5
	same "$version: a read of what is not written back yet" "$(straight 65536) 0" "$(pdio read $share/file 0 65536 0)"
	check "$version: what came" host compare gpu0 8192 8192 pattern:5
	check "$version: and around" host compare gpu0 16384 49152 pattern:1 16384
	cat $share/file >/dev/null
	pdio write $share/file 4096 16384 0 16384 "host fill gpu0 %AT 16384 pattern:6" >/dev/null
	check "$version: a write of what is cached, and a look by the cache" pattern compare $share/file 4096 16384 pattern:6
	check "$version: and around" pattern compare $share/file 20480 16384 pattern:1 20480

	fresh file $length 1
	given_up "$version: given up" disk1
	umount $share $other
done

# The server's drive fails in the middle of a file. NFS stops there, and only the next request gets the error.
fresh bad $mib 1
at=$(filefrag -b512 -v $store/bad | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 + 1536 }')
dmsetup suspend far
dmsetup load far --table "0 $at linear $drive 0
$at 8 error
$((at + 8)) $((sectors - at - 8)) linear $drive $((at + 8))"
dmsetup resume far
echo 3 >/proc/sys/vm/drop_caches
client vers=4.2,rdma,port=20049
read -r err reason got _ <<<"$(pdio read $share/bad 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9" | tail -n 1)"
diag "$got bytes before the bad place"
same "the server's drive fails in the middle: short, and nobody says that the file ends" "0 $RDMA_SOFTWARE" "$err $reason"
same "the server's drive fails in the middle: so far and not farther" 1 $((got > 0 && got <= 768 * 1024))
check "the server's drive fails in the middle: what came" host compare gpu0 0 "$got" pattern:1
same "the server's drive fails in the middle: the next request" $EIO "$(pdio read $share/bad $((768 * 1024)) 4096 0 | cut -d' ' -f1)"
umount $share
rm $store/bad

# Open a file, then make the server local to this machine. A new lease must trigger a new lookup.
client vers=4.2,rdma,port=20049
what="a server past the network, while the file is open"
if ! has_function nfs_local_probe_async; then
	skip "$what" "this kernel's client looks for it only once"
else
	same "$what" "$EXDEV $NFS_LOCAL 0" \
		"$(pdio read $share/file 0 4096 0 4096 "$(declare -f leases_go); echo Y >$localio; leases_go; ls $share >/dev/null; sleep 3" |
			tail -n 1 | cut -d' ' -f1-3)"
fi
umount $share
echo N >$localio

# --- Teardown
no_server
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
unwire
dmsetup remove --retry far
wipefs -qa "$drive"
plan $tap_n
