# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # rdma.sh and the tests assign what is used here
# Sourced by rdma.sh: an NFS server on one end of the cable, its client on the other, and what goes under a request. Where a function
# takes an IMAGE, it is that of the server's drive. The test defines device_goes and device_is_back.

store=/mnt/store
share=/mnt/share

# stored DRIVE: makes a filesystem on it for the server. QEMU holds up the guest while a throttled drive is reset, so no request times out.
stored() {
	local timeout=/sys/class/block/${1##*/}/queue/io_timeout
	[ ! -e "$timeout" ] || echo 300000 >"$timeout"
	wipefs -qa "$1"
	mke2fs -q -F -t ext4 "$1" 200M && mkdir -p $store && mount "$1" $store && server || bail "no server"
}

# serve: starts the NFS server, also after "rpc.nfsd 0"
serve() {
	rpc.nfsd -N 4.0 -L 10 -G 10 4 && echo "rdma 20049" >/proc/fs/nfsd/portlist
}

# nfs_state: keeps the state of the NFS programs within this boot
nfs_state() {
	mkdir -p /var/lib/nfs
	mount -t tmpfs none /var/lib/nfs
	mkdir -p /var/lib/nfs/{nfsdcld,rpc_pipefs,sm,sm.bak}
	touch /var/lib/nfs/{etab,rmtab}
}

# nfs_programs: starts the programs that the kernel's server calls
nfs_programs() {
	mountpoint -q /var/lib/nfs/rpc_pipefs || mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs
	mountpoint -q /proc/fs/nfsd || mount -t nfsd none /proc/fs/nfsd
	rpcbind -w && rpc.mountd && nfsdcld -p /var/lib/nfs/rpc_pipefs || return
	# The kernel asks it whether there are clients to wait for. Without an answer it waits 10 s.
	for _ in {1..100}; do [ ! -e /var/lib/nfs/nfsdcld/main.sqlite ] || break; sleep 0.1; done
}
no_nfs_programs() {
	local name pid
	for name in rpc.mountd rpcbind nfsdcld; do ! pid=$(pidof $name) || kill "$pid"; done
}

# server: exports $store to the cable
server() {
	nfs_state
	nfs_programs && exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$store" && serve
}

no_server() {
	rpc.nfsd 0
	exportfs -ua
	no_nfs_programs
	umount $store
	umount /proc/fs/nfsd /var/lib/nfs/rpc_pipefs /var/lib/nfs 2>/dev/null
}

# client OPTIONS: mounts the share, which for v4 is the root
client() {
	local from=$store
	mkdir -p $share
	[[ $1 != vers=4* ]] || from=/
	mount -t nfs -o "$1" $far_ip:$from $share || bail "no share with $1"
}

fresh() { # FILE LEN SEED: creates a file on the server that the client has not cached
	pattern fill "$store/$1" 0 "$2" "pattern:$3"
	sync "$store/$1"
}

# gives_up DESCRIPTION: unmounts the share by force under the 64 KiB request of $begun. On v4.2, 6.12 restarts requests,
# so repeats the unmount. Does not wait for the process to close its file: the server may be gone.
gives_up() {
	local got
	check "$1: the request waits" kill -0 $begun
	for _ in {1..240}; do
		umount -i -f $share 2>/dev/null # busy
		sleep 0.5
		[ ! -s /tmp/given_up ] || break
	done
	read -r got _ </tmp/given_up
	same "$1: EIO" $EIO "$got"
	host fill gpu0 0 65536 pattern:7 >/dev/null
}

# survives DESCRIPTION OUT FILE LEN: checks a read of LEN bytes whose output is in OUT. If NFS stopped halfway, that is
# not the end of the file: the next request must get the rest.
survives() {
	local err reason got rest
	read -r err reason got _ <<<"$(tail -n 1 "$2")"
	same "$1: no error" "$(straight "$got" | cut -d' ' -f1,2)" "$err $reason"
	check "$1: what came" host compare gpu0 0 "$got" pattern:1
	rest=$(($4 - got))
	[ $rest != 0 ] || return 0
	diag "NFS has left off after $got bytes of $4"
	same "$1: the rest" "$(straight $rest) 0" "$(pdio read "$3" "$got" $rest 0 | tail -n 1)"
	check "$1: its bytes" host compare gpu0 0 $rest pattern:1 "$got"
}

# given_up DESCRIPTION IMAGE [GOES COMES]: unmounts the share of a slow server by force; GOES and COMES, if given, break
# and restore the server. The reader closes its file when the server is back. The throttle passes the first request to
# the drive at once, so another one is sent first.
given_up() {
	fresh slow 65536 1
	dd if=$store/slow iflag=nocache count=0 status=none
	throttle 1024 "$2"
	dd if=$store/file of=/dev/null bs=64k count=1 iflag=direct status=none
	begins /tmp/given_up read $share/slow 0 65536 0 65536
	[ -z "${3:-}" ] || check "$1: it does happen" "$3"
	gives_up "$1"
	throttle 0 "$2"
	[ -z "${4:-}" ] || check "$1: and is undone" "$4"
	wait $begun
	sleep 1
	check "$1: nothing came afterwards" host compare gpu0 0 65536 pattern:7
}

# connections: how often the shares' clients have connected
connections() { awk '$1 == "xprt:" && $2 == "rdma" { n += $5 } END { print n + 0 }' /proc/self/mountstats; }

# outlasts DESCRIPTION IMAGE COMMAND...: COMMAND breaks the connection under a slow read, and NFS makes another one
outlasts() {
	local before
	fresh file $mib 1
	throttle $((mib / 8)) "$2"
	echo 3 >/proc/sys/vm/drop_caches
	begins /tmp/slow read $share/file 0 $mib 0 $mib "host fill gpu0 0 $mib pattern:9"
	check "$1: a request is under way" kill -0 $begun
	before=$(connections)
	check "$1: it does happen" "${@:3}"
	throttle 0 "$2"
	soon 240 ended $begun || bail "$1: the request does not end"
	survives "$1" /tmp/slow $share/file $mib
	check "$1: another connection" [ "$(connections)" -gt "$before" ]
}

# The server's file has either its old bytes or the new ones.
all_or_nothing() { pattern compare $store/slow 0 65536 pattern:1 || [ "$(tr -d '\011' <$store/slow | wc -c)" = 0 ]; }

# device_is_lost IMAGE: the RDMA device goes under a request and the share is given up, before the device is back
device_is_lost() {
	local kind what="NFS, the RDMA device"
	given_up "$what goes under a read" "$1" device_goes device_is_back
	fresh slow 65536 1
	same "$what is back: a read" "$(straight 65536) 0" "$(pdio read $share/slow 0 65536 0)"
	for kind in "write" "ring's write"; do
		[ "$kind" = write ] || local -x RING=1
		fresh slow 65536 1
		begins /tmp/given_up write $share/slow 0 65536 0 65536 "fsfreeze -f $store; host fill gpu0 %AT 65536 byte:9"
		device_goes &
		gives_up "$what goes under a $kind"
		fsfreeze -u $store
		wait $!
		same "$what goes under a $kind: it does happen" 0 $?
		check "$what goes under a $kind: and comes" device_is_back
		wait
		sleep 1
		check "$what goes under a $kind: nothing was fetched afterwards" all_or_nothing
	done
}

# server_is_lost: the server stops under a request, and the share is given up before it is back
server_is_lost() {
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
}

# gpu_is_taken IMAGE: the GPU is unbound under a slow read, and under a write whose server has stopped
gpu_is_taken() {
	local what="NFS, the GPU is unbound under a write"
	throttle $((mib / 8)) "$1"
	fresh file $mib 1
	echo 3 >/proc/sys/vm/drop_caches
	taken read "NFS" $share/file "$1" $mib
	umount $share
	client vers=4.2,rdma,port=20049
	begins /tmp/slow write $share/file 0 $mib 0 $mib "rpc.nfsd 0; host fill gpu0 %AT $mib pattern:5"
	peerdma unpublish "$(gpu_bdf)" >/dev/null &
	sleep 1
	check "$what: who unbinds waits for it" kill -0 $!
	serve
	wait $begun
	same "$what: the request is whole" "$(straight $mib)" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
	check "$what: and its bytes" pattern compare $store/file 0 $mib pattern:5
	wait
	publish
}
