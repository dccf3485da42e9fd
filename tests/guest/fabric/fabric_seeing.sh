#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counters, tracepoints and the commands that print them must match the requests made by NVMe over RDMA and NFS over
# RDMA, as seeing.sh tests for a local drive. Both ends of soft-RoCE are in this guest, so each byte counts as through
# the host, with the reason. card_seeing.sh sources this, with by_card set.
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
if [ -n "${by_card:-}" ]; then
	far_ip=10.9.1.1
	! mountpoint -q /mnt/disk || umount /mnt/disk
	card_begins $far_ip nvme3
fi
stored "$(nvme_disk nvme1)"
echo N >/sys/module/nfs/parameters/localio_enabled
if [ -n "${by_card:-}" ]; then
	finds_cards
	goes_far nvme0
else
	far_drive
fi
insert peerdma_nfs
client vers=4.2,rdma,port=20049
far=$(nvme_disk)
mke2fs -q -F -t ext4 "$far"
mount_disk
name=${far##*/} leaf=${far##*/nvme}
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

# --- Counters. Bytes: direct, near and through the host. A card moves whole blocks of NVMe and whole pages of NFS. The CPU moves what is
# written of a part of a page, and what is read to an odd place.
declare -A moved=([NVMe]="0 0 71511" [NFS]="0 0 71511")
[ -z "${by_card:-}" ] || moved=([NVMe]="67072 293 4146" [NFS]="65536 1829 4146")
# plus NUMBERS NUMBERS...: their sums, place by place
plus() { xargs -n 3 <<<"$*" | awk '{ for (i = 1; i <= 3; i++) n[i] += $i } END { print n[1], n[2], n[3] }'; }
for kind in NVMe NFS; do
	is $kind
	seeing read:$file:0:20480:0 read:$file:2998272:4096:524288 write:$file:0:8192:0 write:$file:100:50:0 \
		read:$file:0:4096:1 read:$file:0:4096:1048576 ring:$file:0:4096:8 ring:$file:4096:4196:1 >$out/counted
	same "$what: what a process's requests said" "13 2 ${moved[$kind]} 0 1 3:1" "$(counters counted said)"
	same "$what: its fdinfo says exactly that" "13 2 ${moved[$kind]} 0 1 3:1" "$(counters counted fdinfo)"
done
cat $stats >$out/debugfs
all=$(plus "${moved[@]}")
same "debugfs: the total is their sum" "26 4 $all 0 2 3:2" "$(entry total)"
same "debugfs: the provider's too" "26 4 $all 0 2 3:2" "$(entry "provider id=1 ")"
is NVMe
same "debugfs: the remote drive's, and its path" "13 2 ${moved[NVMe]} 0 1 3:1" "$(entry "disk provider=1 dev=$dev $disk ")"
is NFS
same "debugfs: the share's, without what was refused before it was looked at" "12 2 ${moved[NFS]} 0 0" "$(entry "disk provider=1 dev=$dev $disk ")"

# --- Tracepoints
declare -A odd=([NVMe]="0 0 1729" [NFS]="0 0 1729") full=([NVMe]="0 0 4096" [NFS]="0 0 4096")
reason=$RDMA_SOFTWARE bounced="host 1729" bounces=2
[ -z "${by_card:-}" ] || { odd=([NVMe]="1536 193 0" [NFS]="0 1729 0") full=([NVMe]="4096 0 0" [NFS]="4096 0 0") reason=0 bounces=1; }
# ways NUMBERS: as tracepoints print them
ways() { local direct near host; read -r direct near host <<<"$1"; echo "direct=$direct near=$near host=$host"; }
for kind in NVMe NFS; do
	is $kind
	[ $kind = NVMe ] && async=1 || async=0 # a worker of the ring makes NFS requests
	traced read:$file:2998272:4096:512 read:/tmp/elsewhere:0:4096:0 ring:$file:0:4096:1
	key="pid=$pid dev=$dev ino=$inode" number=$(last submit)
	number=${number##*=}
	[ -z "${by_card:-}" ] || bounced="near $(cut -d' ' -f2 <<<"${odd[$kind]}")"
	same "$what: submit" "read $key file_off=2998272 len=4096 buffer=1 provider=1 async=0 number=0" "$(first submit)"
	same "$what: complete" \
		"read $key file_off=2998272 len=4096 buffer=1 provider=1 done=1729 $(ways "${odd[$kind]}") reason=$END error=0 async=0 number=0" \
		"$(first complete)"
	same "$what: bounce, and where" "${bounced% *} $key bytes=${bounced#* } provider=1 reason=$END" "$(first bounce)"
	same "$what: refuse" "read pid=$pid dev=$elsewhere provider=1 reason=18 error=-$EXDEV" "$(first refuse)"
	[ -n "${by_card:-}" ] ||
		same "$what: bounce of a ring's" "host $key bytes=4096 provider=1 reason=$reason" "$(last bounce)"
	same "$what: complete of a ring's" \
		"read $key file_off=0 len=4096 buffer=1 provider=1 done=4096 $(ways "${full[$kind]}") reason=$reason error=0 async=$async number=$number" \
		"$(last complete)"
	same "$what: as many ends as begins and refusals" "3 2 1 $bounces" "${nr[complete]} ${nr[submit]} ${nr[refuse]} ${nr[bounce]}"
done

# --- peerdma stat, witness, topo
is NVMe
peerdma stat --json >$out/stat.json
at=0
[ "$(got stat.json /disks/0/name)" = "$name" ] || at=1
# bytes_of NUMBER: of a disk
bytes_of() { got stat.json /disks/$1/direct_bytes /disks/$1/near_bytes /disks/$1/host_bytes; }
for kind in NVMe NFS; do moved[$kind]=$(plus "${moved[$kind]}" "${odd[$kind]}" "${full[$kind]}"); done
same "stat: the remote drive" "$name $leaf ${moved[NVMe]}" "$(got stat.json /disks/$at/name /disks/$at/leaves/0) $(bytes_of $at)"
same "stat: the share" "nfs4 ${moved[NFS]}" "$(got stat.json /disks/$((1 - at))/name) $(bytes_of $((1 - at)))"
# Bytes that went direct are proved if commands to disks had them. Those of NFS went by none of this machine.
declare -A proved=([NVMe]="0 0 true" [NFS]="0 0 true") saw=([NVMe]="host 1 0 0 65536 0" [NFS]="host 1 0 0 65536 0")
[ -z "${by_card:-}" ] || proved[NFS]="1 0 false" saw=([NVMe]="direct 1 65536 0 0 0" [NFS]="unproved 1 65536 0 0 65536")
for kind in NVMe NFS; do
	is $kind
	[ $kind = NVMe ] && where=$name || where=$share
	witness -- seeing read:$file:0:65536:0 write:$file:0:65536:0 >$out/witness.json
	same "$what: witness: its status, the command's, and its word" "${proved[$kind]}" "$? $(got witness.json /command_status /proved)"
	same "$what: witness: a read" "read ${saw[$kind]}" "$(seen 0 | cut -d' ' -f1-7)"
	same "$what: witness: a write" "write ${saw[$kind]}" "$(seen 1 | cut -d' ' -f1-7)"
	same "$what: witness: of which file" "$dev $where $inode" "$(got witness.json /files/0/dev /files/0/name /files/0/inode)"
done
if [ -n "${by_card:-}" ]; then
	peerdma witness -- seeing read:$file:0:65536:0 >$out/witness
	check "NFS: witness: what it cannot see" grep -q "belong to NFS, and this command cannot see the device" $out/witness
fi
is NVMe
witness -- seeing read:$file:0:65536:0 >$out/witness.json
same "NVMe: witness: what its path was asked for" 65536 "$(got witness.json /files/0/leaves/0/bytes)"

umount /mnt/disk $share
no_server
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
if [ -n "${by_card:-}" ]; then
	come_home
	cards_end
else
	no_far_drive
fi
plan $tap_n
