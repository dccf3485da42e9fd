# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # rdma.sh and the tests assign what is used here
# Sourced after rdma.sh by tests of NFS over RDMA with server and client in this guest and the server's files on the drive of the image
# disk1: reads and writes, ends of files, a file of more than 2 GiB, other writers, the client's page cache, and what goes under a request; and the block path's
# programs on a file of the share. The test defines:
#   straight LEN                   what pdio prints of an aligned request (rdma.sh)
#   went OFF BUF_OFF WANT REASON   what it prints of a read of any part of a file
#   device_goes                    the RDMA device goes and comes

# shellcheck disable=SC2034 # the tests use BUF_ALIGN
BUF_ALIGN=5 END=20

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
	same "$1" "$(went "$2" "$4" "$5" "$6")" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
	check "$1: what came" same_bytes "$2" "$4" "$5" "$7"
}
same_bytes() {
	{ [ "$3" = 0 ] || host compare gpu0 "$2" "$3" "pattern:$4" "$1"; } &&
		{ [ "$2" = 0 ] || host compare gpu0 0 "$2" pattern:9; } &&
		host compare gpu0 $(($2 + $3)) $((10 * mib - $2 - $3)) pattern:9 $(($2 + $3))
}

# stored_is DESCRIPTION OFF LEN SOURCE_OFF: the server, and the host on the server's drive, see these bytes of pattern:5 in the file
stored_is() {
	check "$1: what the server has" pattern compare $store/file "$2" "$3" pattern:5 "$4"
	sync $store/file
	check "$1: what its drive has" on_drive disk1 "$(extents $store/file)" "$3" pattern:5 "$2" "$4"
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
		stored_is "$what" 0 $len 0
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

# border_is_right: a read and a write of the 2 MiB in the middle of which 2 GiB of a sparse file are over
border_is_right() {
	local what="$version: where 2 GiB are over" at=$((2047 * mib)) len=$((2 * mib)) got
	rm -f $store/large
	pattern fill $store/large $at $len pattern:1 $at
	sync $store/large
	got=$(pdio read $share/large $at $len 4096 $((4 * mib)) "host fill gpu0 0 $((4 * mib)) pattern:9")
	same "$what: a read" "$(straight $len)" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
	check "$what: what came" host compare gpu0 4096 $len pattern:1 $at
	check "$what: what is before" host compare gpu0 0 4096 pattern:9
	check "$what: what is behind" host compare gpu0 $((4096 + len)) $mib pattern:9 $((4096 + len))
	got=$(pdio write $share/large $at $len 4096 $((4 * mib)) "host fill gpu0 0 $((4 * mib)) pattern:5")
	same "$what: a write" "$(straight $len)" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
	check "$what: what the server has" pattern compare $store/large $at $len pattern:5 4096
	sync $store/large
	check "$what: what its drive has" on_drive disk1 "$(extents $store/large)" $len pattern:5 $at 4096
	check "$what: the hole before" pattern compare $store/large $((at - mib)) $mib byte:0
	same "$what: the file's length" $((at + len)) "$(stat -c %s $store/large)"
	rm $store/large
}

# share_is_right VERSION
share_is_right() {
	local version=$1 options length off len at got reason
	read -r _ reason _ < <(straight 4096)
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
	read_case "$version: a page" 4096 4096 8192 4096 "$reason" 1
	read_case "$version: several requests of the client's" 8192 $((4 * mib)) 4096 $((4 * mib)) "$reason" 1
	read_case "$version: odd places" 1001 70001 1001 70001 "$reason" 1
	read_case "$version: where no device can put it" 0 4096 1 4096 $BUF_ALIGN 1
	read_case "$version: more of that" 4096 70001 8193 70001 $BUF_ALIGN 1
	read_case "$version: the end of the file" $((8 * mib)) $mib 0 12345 $END 1
	read_case "$version: behind it" $((9 * mib)) 4096 0 0 $END 1

	host fill gpu0 0 $mib pattern:9 >/dev/null
	for at in "0 4096" "$mib $((2 * mib))" "4097 10000"; do
		read -r off len <<<"$at"
		got=$(pdio write $share/file "$off" "$len" $((off % 4096)) $((4 * mib)) "host fill gpu0 0 $((4 * mib)) pattern:5")
		same "$version: a write of $len bytes at $off" "0 $len" "$(cut -d' ' -f1,3 <<<"${got##*$'\n'}")"
		stored_is "$version: a write of $len bytes at $off" "$off" "$len" $((off % 4096))
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
	read_case "$version: made longer by another" $((2 * mib)) $mib 0 $mib "$reason" 1
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

	border_is_right
	fresh file $length 1
	given_up "$version: given up" disk1
	umount $share $other
}

# cufile_runs VERSION: programs of cuFile on a file of the share: random reads and writes, each compared; whole pages, which must go direct;
# the GPU is unpublished under reads and writes. The other modes of cufile.cpp ask the filesystem where a file is on its drive (FIEMAP),
# which NFS does not answer.
cufile_runs() {
	local before said what how size threads
	fixture() { LD_LIBRARY_PATH=$LAB_BUILD/tests/softgpu cufile_gpu "$LAB_BUILD/lib/libcufile.so.0" "$1" $share/cufile "${@:2}" 2>&1; }
	same "$1: cuFile: 96 random reads and writes, at any place" '{"what": "verify", "ios": 96, "wrong": 0}' "$(fixture verify 1 96 1)"
	if [ -z "${FAR_DISK:-}" ]; then # with soft-RoCE nothing is direct
		before=$(host_bytes)
		for what in "read 4096 4" "write 65536 4" "read 524288 2" "batch 16384 1"; do
			read -r how size threads <<<"$what"
			said=$(PEERDMA_REQUIRE_DIRECT=1 fixture "$how" "$size" "$threads" 0.2 direct)
			check "$1: cuFile: $what threads, direct" grep -q "^{\"what\": \"$how\".*\"gb_s\": [0-9.]*, [^{]*}$" <<<"$said"
		done
		same "$1: cuFile: nothing of it by way of the host" "$before" "$(host_bytes)"
	fi
	fresh for_cufile $((6 * mib)) 1
	whole "$1: cuFile: the GPU is unpublished" cufile gone $share/for_cufile /run/elsewhere
	rm -f $store/cufile $store/for_cufile
}

# programs_run: the block path's programs, each on a fresh file, with v4.2 and v3; then an unbind while another process holds a file's lock.
# Not verify.cpp, which needs FIEMAP, drives of its own, and plain O_DIRECT calls on a buffer's mapping. The test sources canceled.sh.
programs_run() {
	local options version each words name programs=(
		"rings|uring %F $share/scratch none"
		"many at once|batch %F /run/elsewhere"
		"by number|ids %F"
		"bad input|abi %F $share"
		"structs that change|hostile %F"
	)
	rm -f /run/elsewhere # other tests may have left a longer one
	pattern fill /run/elsewhere 0 100000 pattern:2
	for options in vers=4.2 vers=3,nolock,mountproto=tcp; do
		client $options,rdma,port=20049
		version=${options%%,*}
		for each in "${programs[@]}"; do
			publish # abi.cpp unpublishes the provider
			read -ra words <<<"${each#*|}"
			name=for_${words[0]} # one that the client has not cached: it would open the file that was there
			fresh "$name" $mib 1
			host fill gpu0 0 $((4 * mib)) pattern:9 >/dev/null
			whole "$version: ${each%%|*}" "${words[@]//%F/$share/$name}"
			rm -f "$store/$name"
		done
		publish
		cufile_runs "$version"
		publish
		fill_file "$store/held"
		lock_is_held "$version" $share/held
		umount $share
	done
}
