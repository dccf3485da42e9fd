#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NFS over RDMA by IPv6, also by a link-local address that another interface's machine has too; over several transports,
# each checked for each request; with calls of less than a page; with a writer that is killed; from another network
# namespace; and with a link that goes down under a read. Soft-RoCE does not recover from that, nor from several
# connections, so the test ends with the boot.
# group: rdma
# topologies: switch
# boot: shares
# variants: plain debug
# needs: rdma rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 300
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth dummy rpcrdma nfsd nfsv4
# Created before the cable, so that a search over all interfaces finds this one first.
ip link add other0 type dummy
ip link set other0 up
wire
ip addr add 10.9.0.3/24 dev veth1
stored "$(nvme_disk)"
echo N >/sys/module/nfs/parameters/localio_enabled
insert peerdma_rdma peerdma_nfs
echo 1 >$software
NFS_SERVERS=26 NFS_SIZE=27 RDMA_ROUTE=46
fresh file $mib 1

# transports: number of the client's transports to its mounts
transports() { awk '/^\t*xprt:/ { n++ } END { print n + 0 }' /proc/self/mountstats; }

# by DESCRIPTION ADDRESS: address of the server
by() {
	mkdir -p $share
	mount -t nfs -o vers=4.2,proto=rdma6,port=20049 "[$2]:/" $share || bail "no share: $1"
	same "$1: a read" "$(straight $mib) 0" "$(pdio read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9" | tail -n 1)"
	check "$1: what came" host compare gpu0 0 $mib pattern:1
	umount $share
}
by "IPv6" fd09::2
for netdev in other0 veth1; do ip -6 addr add fe80::9/64 dev $netdev nodad; done
# An interface whose name is another interface's number.
read -r number </sys/class/net/veth1/ifindex
ip link add "$number" type dummy && ip link set "$number" up && ip -6 addr add fe80::9/64 dev "$number" nodad
by "link-local" fe80::9%veth1

client vers=4.2,rdma,port=20049,nconnect=2,max_connect=4
same "nconnect=2: it has two transports" 2 "$(transports)"
same "nconnect=2: a read" "$(straight $mib) 0" "$(pdio read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9" | tail -n 1)"
check "nconnect=2: what came" host compare gpu0 0 $mib pattern:1

# A second address of the same server while the file is open. Nothing tells then whose address it is or how far away.
other() { mkdir -p /mnt/other && mount -t nfs -o vers=4.2,rdma,port=20049,max_connect=4 10.9.0.3:/ /mnt/other; }
same "a second address, while the file is open" "$EXDEV $NFS_SERVERS 0" \
	"$(pdio read $share/file 0 4096 0 4096 "$(declare -f other); other" | tail -n 1 | cut -d' ' -f1-3)"
diag "$(transports) transports"
same "and afterwards" "$EXDEV $NFS_SERVERS 0" "$(pdio write $share/file 0 4096 0 | cut -d' ' -f1-3)"
check "nothing was written" pattern compare $store/file 0 4096 pattern:1
umount /mnt/other
umount $share

# Calls of less than a page, by a mount option.
for size in rsize wsize; do
	client vers=4.2,rdma,port=20049,$size=2048
	same "$size=2048: a read" "$EXDEV $NFS_SIZE 0" "$(pdio read $share/file 0 $mib 0 | cut -d' ' -f1-3)"
	same "$size=2048: a write" "$EXDEV $NFS_SIZE 0" "$(pdio write $share/file 0 $mib 0 | cut -d' ' -f1-3)"
	check "$size=2048: nothing was written" pattern compare $store/file 0 $mib pattern:1
	umount $share
done

# Kill a writer while the server does not answer. NFS abandons the write, but the server may still fetch its bytes.
client vers=4.2,rdma,port=20049
fresh slow 65536 1
same "a write" "$(straight 65536)" "$(pdio write $share/slow 0 65536 0 65536 "host fill gpu0 %AT 65536 pattern:4" | tail -n 1 | cut -d' ' -f1-6)"
pool=/sys/bus/pci/devices/$(gpu_bdf)/p2pmem
begins /tmp/killed write $share/slow 0 65536 0 65536 "rpc.nfsd 0; host fill gpu0 %AT 65536 pattern:5"
kill -9 $begun
sleep 2
check "a writer is killed: he waits for the server" grep -q "^State:.D" /proc/$begun/status
check "a writer is killed: the memory is not given to others" [ "$(cat "$pool/available")" -lt "$(cat "$pool/size")" ]
serve
wait $begun
check "a writer is killed, the server is back: it is" soon 60 cmp -s "$pool/available" "$pool/size"
umount $share
check "a writer is killed, the server is back: it has the bytes" pattern compare $store/slow 0 65536 pattern:5

# Truncate the file on the server during a read, which the slow drive turns into many calls. Some of the later calls
# find no data. A client with a delegation returns it first, perhaps only after the whole read.
client vers=4.2,rdma,port=20049,rsize=65536
fresh slow $((2 * mib)) 1
echo 3 >/proc/sys/vm/drop_caches
throttle $((mib / 2)) disk0
begins /tmp/shorter read $share/slow 0 $((2 * mib)) 0 $((3 * mib)) "host fill gpu0 %AT $((3 * mib)) pattern:9"
check "truncated under a read: it is under way" kill -0 $begun
truncate -s 100000 $store/slow 2>/dev/null || { throttle 0 disk0; soon 30 truncate -s 100000 $store/slow; }
throttle 0 disk0
wait $begun
read -r got _ len _ <<<"$(tail -n 1 /tmp/shorter)"
diag "$(tail -n 1 /tmp/shorter)"
same "truncated under a read: no error" 0 "$got"
check "truncated under a read: no less than there is, no more than there was" [ "$len" -ge 100000 -a "$len" -le $((2 * mib)) ]
check "truncated under a read: what came" host compare gpu0 0 100000 pattern:1
check "truncated under a read: behind what was asked for" host compare gpu0 $((2 * mib)) $mib pattern:9 $((2 * mib))
same "truncated under a read: the next one" "0 100000" "$(pdio read $share/slow 0 $mib 0 | cut -d' ' -f1,3)"
umount $share

# A share mounted in another network namespace. Its addresses belong elsewhere in this one.
namespace() {
	mkdir -p /run/netns
	mountpoint -q /run/netns || mount -t tmpfs none /run/netns
	touch /run/netns/other
	unshare --net=/run/netns/other true &&
		ip link add veth2 type veth peer name veth3 && ip link set veth2 netns /run/netns/other &&
		ip addr add 10.9.8.2/24 dev veth3 && ip link set veth3 up && rdma link add rxe3 type rxe netdev veth3 &&
		inside ip addr add 10.9.8.1/24 dev veth2 && inside ip link set veth2 up && inside rdma link add rxe2 type rxe netdev veth2
}
inside() { nsenter --net=/run/netns/other "$@"; }
if ! has_function rxe_namespace_init; then
	skip "a share of another namespace" "soft-RoCE of this kernel knows the first network namespace only"
else
	namespace || bail "no network namespace"
	inside mount -t nfs -o vers=4.2,rdma,port=20049 10.9.8.2:/ $share || bail "no share in a network namespace"
	same "a share of another namespace" "$EXDEV $RDMA_ROUTE 0" "$(pdio read $share/file 0 4096 0 | cut -d' ' -f1-3)"
	umount $share
	umount /run/netns/other
fi

client vers=4.2,rdma,port=20049
fresh slow 65536 1
same "a share once more" "$(straight 65536) 0" "$(pdio read $share/slow 0 65536 0)"
if lacks xprtrdma-release; then
	skip "the link is down under a write" "$lack"
else
	begins /tmp/given_up write $share/slow 0 65536 0 65536 "ip link set veth1 down; host fill gpu0 %AT 65536 byte:9"
	gives_up "the link is down under a write"
	ip link set veth1 up
	sleep 1
	check "the link is up: nothing was fetched afterwards" pattern compare $store/slow 0 65536 pattern:1
	# Soft-RoCE may never reconnect after it lost its link: Documentation/upstream/rxe-link-down.
	rdma link del rxe0
	rdma link del rxe1
	rdma link add rxe0 type rxe netdev veth0
	rdma link add rxe1 type rxe netdev veth1
	wait $begun
	same "the link is up: a read" "$(straight 65536) 0" "$(pdio read $share/slow 0 65536 0)"
fi
begins /tmp/given_up read $share/slow 0 65536 0 65536 "ip link set veth1 down"
gives_up "the link is down"
ip link set veth1 up
sleep 1
check "the link is up: nothing came afterwards" host compare gpu0 0 65536 pattern:7
# Each unmount sends CLOSE to its server and waits for the answer, which times out like the request.
for _ in {1..60}; do
	kill -0 $begun 2>/dev/null || break
	umount -i -f $share 2>/dev/null # busy
	sleep 0.5
done
wait $begun
umount -i -l $share &
soon 1 eval '! kill -0 $! 2>/dev/null' || kill -9 $!
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
plan $tap_n
