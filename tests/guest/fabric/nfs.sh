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
. "$LAB_ROOT/tests/guest/nfs_share.sh"

publish
kernel_has veth rpcrdma nfsd nfsv3 nfsv4
localio=/sys/module/nfs/parameters/localio_enabled
NFS_TRANSPORT=22 NFS_LOCAL=23 NFS_LAYOUT=24

says() { verdict "$1" reason mapping; }
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

went() { echo "0 $4 $3 0 0 $3"; } # the CPU copies
device_goes() { rdma link del rxe1 && rdma link add rxe1 type rxe netdev veth1; }

for version in 4.2 3; do share_is_right $version; done

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
