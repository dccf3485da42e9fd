#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counters, tracepoints and the commands that print them must match the requests made by NVMe over RDMA and NFS over
# RDMA, as seeing.sh tests for a local drive. Both ends of soft-RoCE are in this guest, so each byte counts as through
# the host, with the reason.
# group: rdma
# topologies: disks
# variants: plain
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 200
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/counted.sh"

END=20
afresh
mkdir -p $out
kernel_has veth nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv4
publish
stored "$(nvme_disk nvme1)"
echo N >/sys/module/nfs/parameters/localio_enabled
far_drive
insert peerdma_nfs
client vers=4.2,rdma,port=20049
mke2fs -q -F -t ext4 "$FAR_DISK"
mount_disk
name=${FAR_DISK##*/} leaf=${FAR_DISK##*/nvme}
leaf=nvme${leaf%n1}c${homes[0]#nvme}n1
echo -n x >/tmp/elsewhere
read -r elsewhere <<<"$(stat -c '%Hd:%Ld ino=%i' /tmp/elsewhere)"

# is WHAT: selects the file under test, its device and inode, and its name in debugfs
is() {
	what=$1
	if [ "$1" = NVMe ]; then file=/mnt/disk/seeing disk="name=$name leaves=$leaf"; else file=$share/seeing disk="name=nfs4 leaves=nfs4"; fi
	read -r dev inode <<<"$(stat -c '%Hd:%Ld %i' $file)"
}
pattern fill /mnt/disk/seeing 0 3000001 pattern:1
fresh seeing 3000001 1
sync

# --- Counters
all=68315 requests="13 2 0 0 68315 0 1 3:1"
for kind in NVMe NFS; do
	is $kind
	seeing read:$file:0:20480:0 read:$file:2998272:4096:524288 write:$file:0:8192:0 write:$file:100:50:0 \
		read:$file:0:4096:1 read:$file:0:4096:1048576 ring:$file:0:4096:8 ring:$file:100:1000:1 >$out/counted
	same "$what: what a process's requests said" "$requests" "$(counters counted said)"
	same "$what: its fdinfo says exactly that" "$requests" "$(counters counted fdinfo)"
done
cat $stats >$out/debugfs
same "debugfs: the total is their sum" "26 4 0 0 $((2 * all)) 0 2 3:2" "$(entry total)"
same "debugfs: the provider's too" "26 4 0 0 $((2 * all)) 0 2 3:2" "$(entry "provider id=1 ")"
is NVMe
same "debugfs: the remote drive's, and its path" "$requests" "$(entry "disk provider=1 dev=$dev $disk ")"
is NFS
same "debugfs: the share's, without what was refused before it was looked at" "12 2 0 0 $all 0 0" "$(entry "disk provider=1 dev=$dev $disk ")"

# --- Tracepoints
for kind in NVMe NFS; do
	is $kind
	[ $kind = NVMe ] && async=1 || async=0 # a worker of the ring makes NFS requests
	traced read:$file:2998272:4096:512 read:/tmp/elsewhere:0:4096:0 ring:$file:0:4096:1
	key="pid=$pid dev=$dev ino=$inode" number=$(last submit)
	number=${number##*=}
	same "$what: submit" "read $key file_off=2998272 len=4096 buffer=1 provider=1 async=0 number=0" "$(first submit)"
	same "$what: complete" "read $key file_off=2998272 len=4096 buffer=1 provider=1 done=1729 direct=0 near=0 host=1729 reason=$END error=0 async=0 number=0" "$(first complete)"
	same "$what: bounce, by whom the CPU was" "host $key bytes=1729 provider=1 reason=$END" "$(first bounce)"
	same "$what: refuse" "read pid=$pid dev=$elsewhere provider=1 reason=18 error=-$EXDEV" "$(first refuse)"
	same "$what: bounce of a ring's" "host $key bytes=4096 provider=1 reason=$RDMA_SOFTWARE" "$(last bounce)"
	same "$what: complete of a ring's" "read $key file_off=0 len=4096 buffer=1 provider=1 done=4096 direct=0 near=0 host=4096 reason=$RDMA_SOFTWARE error=0 async=$async number=$number" "$(last complete)"
	same "$what: as many ends as begins and refusals" "3 2 1 2" "${nr[complete]} ${nr[submit]} ${nr[refuse]} ${nr[bounce]}"
done

# --- peerdma stat, witness, topo
is NVMe
peerdma stat --json >$out/stat.json
at=0
[ "$(got stat.json /disks/0/name)" = "$name" ] || at=1
same "stat: the remote drive" "$name $leaf 0 0 $((all + 1729 + 4096))" \
	"$(got stat.json /disks/$at/name /disks/$at/leaves/0 /disks/$at/direct_bytes /disks/$at/near_bytes /disks/$at/host_bytes)"
same "stat: the share" "nfs4 0 $((all + 1729 + 4096))" \
	"$(got stat.json /disks/$((1 - at))/name /disks/$((1 - at))/direct_bytes /disks/$((1 - at))/host_bytes)"
for kind in NVMe NFS; do
	is $kind
	[ $kind = NVMe ] && where=$name || where=$share
	witness -- seeing read:$file:0:65536:0 write:$file:0:65536:0 >$out/witness.json
	same "$what: witness: its status, the command's, and its word" "0 0 true" "$? $(got witness.json /command_status /proved)"
	same "$what: witness: a read, through the host" "read host 1 0 0 65536 0" "$(seen 0 | cut -d' ' -f1-7)"
	same "$what: witness: a write" "write host 1 0 0 65536 0" "$(seen 1 | cut -d' ' -f1-7)"
	same "$what: witness: of which file" "$dev $where $inode" "$(got witness.json /files/0/dev /files/0/name /files/0/inode)"
done
is NVMe
witness -- seeing read:$file:0:65536:0 >$out/witness.json
same "NVMe: witness: what its path was asked for" 65536 "$(got witness.json /files/0/leaves/0/bytes)"

umount /mnt/disk $share
no_server
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
no_far_drive
plan $tap_n
