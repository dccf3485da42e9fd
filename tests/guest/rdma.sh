# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced after lib.sh by tests that need an RDMA network, here soft-RoCE. Sets up a cable with NVMe over RDMA and NFS
# over RDMA at its ends. The near end is 10.9.0.1, the far end 10.9.0.2.

far_ip=10.9.0.2
# shellcheck disable=SC2034 # used by the sourcing tests
software=/sys/module/peerdma_rdma/parameters/allow_software
# shellcheck disable=SC2034
EIO=5 EXDEV=18 RDMA_MODULE=45 RDMA_SOFTWARE=47

# kernel_has MODULE...: loads them, or skips the test
kernel_has() {
	modprobe -d "$LAB_KERNEL" -q crc32_generic # for soft-RoCE, if it is a module
	modprobe -d "$LAB_KERNEL" -a rdma_rxe "$@" || bail "no $*"
}

# debian_finds_modules: puts our modules where modprobe and the kernel look for them
debian_finds_modules() { mount --bind "$LAB_KERNEL/lib/modules" /lib/modules || bail "no /lib/modules on the host"; }

# begins OUT PDIO_ARGUMENT...: starts a request in the background as process $begun. Returns when it is in flight, if it
# is slow. All arguments of pdio but the last (BEFORE) are required.
begins() {
	rm -f /tmp/begun
	pdio "${@:2:6}" "${8:-true}; : >/tmp/begun" >"$1" 2>&1 &
	# shellcheck disable=SC2034 # used by the sourcing tests
	begun=$!
	soon 60 [ -e /tmp/begun ] || not_ok "a request begins: pdio ${*:2}"
	soon 60 eval 'waits $begun || ! kill -0 $begun 2>/dev/null' || not_ok "a request is in flight: pdio ${*:2}"
}

# verdict FILE WORD...: prints these fields of `peerdma explain`, "-" for one that is not there: reason (its name), refused (the device
# that refuses), backing (the last device), mapping
verdict() {
	peerdma explain "$1" | awk -v words="${*:2}" '
		$1 == "reason" { sub(":", "", $2) }
		$1 == "reason" || $1 == "backing" { said[$1] = $2 }
		$1 == "refused" { said[$1] = $3 }
		$1 == "mapping" { sub("mapping *", ""); said["mapping"] = $0 }
		END {
			n = split(words, word)
			for (i = 1; i <= n; i++)
				printf "%s%s", said[word[i]] == "" ? "-" : said[word[i]], i < n ? " " : "\n"
		}'
}

# connects RXE: true if soft-RoCE still works. After one datagram of its connection manager without a route it sends
# none again: Documentation/upstream/rxe-link-down.
connects() { ! rdma res show qp link "$1" | grep -q "type GSI state ERR"; }

# card_begins IP [SERIAL]: the function of the drive (nvme0) becomes an RDMA card, both ends of which are in this guest
# (tests/kmod/dmacard_rdma.h). The last blocks of the drive are scratch. Its PCI address is in $card. The first one is dmacard0 and
# card0, the next one dmacard1 and card1.
card_begins() {
	local pci=/sys/bus/pci number=${#cards[@]} serial=${2:-nvme0}
	card=$(nvme_bdf "$serial")
	cards+=("$card")
	card_drives+=("$serial")
	[ -d /sys/module/dmacard ] || insmod "$(dirname "$LAB_MODULE")/kmod/dmacard.ko" || bail "dmacard.ko"
	echo "$card" >"$pci/devices/$card/driver/unbind"
	echo dmacard >"$pci/devices/$card/driver_override"
	echo "$card" >$pci/drivers_probe
	check "$serial: there is an RDMA device of it" [ -d "/sys/class/infiniband/dmacard$number" ]
	ip addr add "$1/24" dev "card$number"
	ip link set "card$number" up
	straight() { echo "0 0 $1 $1 0 0"; } # from here on: direct, unlike over soft-RoCE
}
cards=() card_drives=()

# recorded CARD: how many bytes the card's own record has at the first GPU's BAR, and how many elsewhere. record_anew CARD: empties it.
recorded() {
	local first last
	read -r first last _ < <(sed -n 3p "/sys/bus/pci/devices/$(gpu_bdf)/resource")
	awk -v first="$((first))" -v last="$((last))" '$1 == "lost" { print "lost", $2; exit } $2 >= first && $2 <= last { there += $3; next } { elsewhere += $3 }
		END { print there + 0, elsewhere + 0 }' "/sys/kernel/debug/dmacard-$1/record"
}
record_anew() { echo >"/sys/kernel/debug/dmacard-$1/record"; }

# moves_by DESCRIPTION FILE LEN CARD OTHER: a write and a read go direct, at the GPU by the record of one card and not of the other
moves_by() {
	record_anew "$4"
	record_anew "$5"
	moves "$1" "$2" 0 "$3"
	same "$1: at the GPU, by that card" $((2 * $3)) "$(recorded "$4" | cut -d' ' -f1)"
	same "$1: at the GPU, by the other one" 0 "$(recorded "$5" | cut -d' ' -f1)"
}

# cards_end: the functions are the drives again
cards_end() {
	local pci=/sys/bus/pci each disk room size
	for each in "${cards[@]}"; do
		echo "$each" >$pci/drivers/dmacard/unbind
		echo >"$pci/devices/$each/driver_override"
	done
	check "dmacard.ko can be removed" rmmod dmacard
	for each in "${cards[@]}"; do echo "$each" >$pci/drivers_probe; done
	for each in "${card_drives[@]}"; do
		check "$each: the drive is back" soon 20 nvme_disk "$each"
		disk=$(nvme_disk "$each")
		room=$(($(blockdev --getsize64 "$disk") - (4 << 20)))
		size=$(dumpe2fs -h "$disk" 2>/dev/null | awk '/^Block count/ { n = $3 } /^Block size/ { print n * $3 }')
		check "$each: its filesystem is there" [ "${size:-0}" -gt 0 ]
		# One that a test before this one made over the whole drive has lost its last blocks.
		[ "${size:-0}" -le $room ] || mke2fs -q -F -t ext4 "$disk" $((room >> 20))M
		mount_disk "$each"
		check "$each: its filesystem can be mounted" mountpoint -q /mnt/disk
		umount /mnt/disk
	done
	cards=() card_drives=()
}

# memory_drive NAME MIB: /dev/NAME, whose blocks are in host memory
memory_drive() {
	local dir=/sys/kernel/config/nullb/$1
	modprobe -d "$LAB_KERNEL" null_blk nr_devices=0 && mkdir -p /sys/kernel/config || bail "no null_blk"
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir "$dir"
	echo "$2" >"$dir/size"
	echo 1 >"$dir/memory_backed"
	echo 1 >"$dir/power"
}
# no_memory_drive NAME
no_memory_drive() {
	rmdir "/sys/kernel/config/nullb/$1"
	rmmod null_blk
}

# under read|write DESCRIPTION DISK IMAGE COMMAND...: runs COMMAND, which breaks the path or the machine with the image,
# under a slow request. The request must end with EIO, or BREAKS_WITH. On its own it would succeed after 32 s, so
# nvme_core's io_timeout must be longer.
under() {
	local breaker got errno=${BREAKS_WITH:-EIO} len=$((8 << 20))
	throttle $((256 << 10)) "$4"
	begins /tmp/broken "$1" "$3" 0 $len 0 $len "host fill gpu0 %AT $len byte:9 >/dev/null"
	check "$2: a request is under way" kill -0 $begun
	"${@:5}" >/tmp/breaker 2>&1 &
	breaker=$!
	wait $begun
	read -r got _ </tmp/broken
	same "$2: $errno" "${!errno}" "$got"
	host fill gpu0 0 $len pattern:7 >/dev/null
	throttle 0 "$4"
	wait $breaker
	same "$2: it does happen" 0 $?
	[ ! -s /tmp/breaker ] || diag "$(cat /tmp/breaker)"
	sleep 0.5
}

# breaks DESCRIPTION DISK IMAGE COMMAND...: the same under a read; no byte may arrive afterwards
breaks() {
	under read "$@"
	check "$1: nothing came afterwards" host compare gpu0 0 $((8 << 20)) pattern:7
}

# write_breaks DESCRIPTION DISK IMAGE DRIVE COMMAND...: the same under a write. The drive may have old and new blocks,
# but none of the bytes that are put into the memory afterwards.
write_breaks() {
	local got
	dd if=/dev/zero of="$4" bs=1M count=8 oflag=direct status=none
	under write "${@:1:3}" "${@:5}"
	got=$(dd if="$4" bs=1M count=8 iflag=direct status=none | tr -d '\000\011' | wc -c)
	same "$1: nothing was fetched afterwards" 0 "$got"
}

# is_broken MARK: since MARK was logged, an NVMe connection has been lost or reestablished
is_broken() { dmesg | sed "1,/$1\$/d" | grep -q "nvme.*\(starting error recovery\|creating .* I/O queues\)"; }

# goes_on read|write DESCRIPTION DISK IMAGE COMMAND...: runs COMMAND under a slow request, which must be retried until
# it is whole
goes_on() {
	local way=$1 what=$2 disk=$3 image=$4 len=$((2 << 20)) before seed=1 mark="rdma.sh: $EPOCHREALTIME"
	if [ "$way" = read ]; then
		before="host fill gpu0 %AT $len pattern:9"
		pattern fill "$disk" 0 $len pattern:1
	else
		before="host fill gpu0 %AT $len pattern:5" seed=5
		pattern fill "$disk" 0 $len pattern:6
	fi
	blockdev --flushbufs "$disk"
	throttle $((128 << 10)) "$image"
	begins /tmp/going "$way" "$disk" 0 $len 0 $len "$before"
	check "$what: a $way is under way" kill -0 $begun
	echo "$mark" >/dev/kmsg
	"${@:5}" &
	soon 5 is_broken "$mark"
	throttle 0 "$image"
	wait $begun $!
	same "$what: it does happen" 0 $?
	check "$what: a connection is lost, or made anew" is_broken "$mark"
	same "$what: the $way is whole" "$(straight $len)" "$(tail -n 1 /tmp/going | cut -d' ' -f1-6)"
	[ "$way" = read ] && image=gpu0
	check "$what: and its bytes" host compare "$image" 0 $len pattern:$seed
	host fill gpu0 0 $len pattern:7 >/dev/null
	sleep 0.5
	if [ "$way" = read ]; then
		check "$what: nothing came afterwards" host compare gpu0 0 $len pattern:7
	else
		check "$what: nothing was fetched afterwards" host compare "$image" 0 $len pattern:5
	fi
}

# taken read|write DESCRIPTION FILE IMAGE LEN: unbinds the GPU under a request that the throttled image makes slow. The
# request must complete before the GPU is unbound; then the GPU is published again. A read gets pattern:1.
taken() {
	local what="$2, the GPU is unbound under a $1" len=$5 seed=1 image=gpu0
	[ "$1" = read ] || seed=5 image=$4
	begins /tmp/slow "$1" "$3" 0 "$len" 0 "$len" "host fill gpu0 %AT $len pattern:5"
	check "$what: a request is under way" kill -0 $begun
	peerdma unpublish "$(gpu_bdf)" >/dev/null &
	sleep 1
	check "$what: who unbinds waits for it" kill -0 $!
	throttle 0 "$4"
	wait $begun
	same "$what: the request is whole" "$(straight "$len")" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
	check "$what: and its bytes" host compare $image 0 "$len" pattern:$seed
	wait
	check "$what: it is gone" [ ! -e "/sys/bus/pci/devices/$(gpu_bdf)/p2pmem" ]
	publish
}

# taken_twice DESCRIPTION FILE IMAGE LEN: the same for a read and a write on a slow image. The throttle passes the first
# of two requests at once, so the file must not be cached.
taken_twice() {
	local way
	for way in read write; do
		pattern fill "$2" 0 "$4" pattern:1
		blockdev --flushbufs "$2"
		throttle $((1 << 17)) "$3"
		taken $way "$@"
	done
}

# qp_errs FUNCTION COMMAND...: makes the next queue pair whose completions call FUNCTION fail. COMMAND gives it work,
# and may fail. See tests/kmod/qperr.c.
qp_errs() {
	local before post_send=${POST_SEND:-rxe_post_send}
	[ ! -d /sys/module/qperr ] || [ "$(cat /sys/module/qperr/parameters/post_send)" = "$post_send" ] || rmmod qperr
	[ -d /sys/module/qperr ] || insmod "$(dirname "$LAB_MODULE")/kmod/qperr.ko" post_send="$post_send" || bail "qperr.ko does not load"
	before=$(cat /sys/module/qperr/parameters/errors)
	echo "$1" >/sys/module/qperr/parameters/who
	"${@:2}" >/dev/null 2>&1
	[ "$(cat /sys/module/qperr/parameters/errors)" -gt "$before" ] || { echo "$1: no queue pair has erred" >&2; return 1; }
}

# reset CONTROLLER
reset() { echo 1 >"/sys/class/nvme/$1/reset_controller"; }

# insert NAME...: loads one of our modules from beside peerdma.ko
insert() {
	local name
	for name; do insmod "$(dirname "$LAB_MODULE")/$name.ko" || bail "$name.ko does not load"; done
}

# Counted as through the host, because the CPU copies.
straight() { echo "0 $RDMA_SOFTWARE $1 0 0 $1"; }

# --- The cable
# address NUMBER NETDEV: configures one end
address() {
	ip addr add "10.9.0.$1/24" dev "$2"
	ip -6 addr add "fd09::$1/64" dev "$2" nodad
	ip link set "$2" up
}

# wire: creates both ends in this guest, each with an RDMA device
wire() {
	ip link add veth0 type veth peer name veth1
	address 1 veth0
	address 2 veth1
	rdma link add rxe0 type rxe netdev veth0
	rdma link add rxe1 type rxe netdev veth1
}
unwire() {
	rdma link del rxe0
	rdma link del rxe1
	ip link del veth0
}

# plug: sets up this guest's end of the cable to its peer. Its MTU fits packets of 4096 bytes with headers.
plug() {
	ip link set eth0 mtu 9000
	address "$LAB_NODE" eth0
	rdma link add rxe0 type rxe netdev eth0
}

# --- NVMe over Fabrics
nvmet=/sys/kernel/config/nvmet

# target NAME DRIVE: creates a subsystem with DRIVE as its namespace
target() {
	local dir=$nvmet/subsystems/$1
	mkdir -p /sys/kernel/config
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir -p "$dir/namespaces/1"
	echo 1 >"$dir/attr_allow_any_host"
	echo -n "$2" >"$dir/namespaces/1/device_path"
	echo 1 >"$dir/namespaces/1/enable"
}

# port NUMBER NAME TRANSPORT [FAMILY ADDRESS]
port() {
	local dir=$nvmet/ports/$1
	mkdir -p "$dir"
	echo "$3" >"$dir/addr_trtype"
	if [ -n "${4:-}" ]; then
		echo "$4" >"$dir/addr_adrfam"
		echo "$5" >"$dir/addr_traddr"
		echo $((4420 + $1)) >"$dir/addr_trsvcid"
	fi
	ln -s "$nvmet/subsystems/$2" "$dir/subsystems/$2" || bail "no port for $3"
}

# no_targets: removes all targets
no_targets() {
	local dir
	rm "$nvmet"/ports/*/subsystems/*
	rmdir "$nvmet"/ports/*
	for dir in "$nvmet"/subsystems/*; do
		echo 0 >"$dir/namespaces/1/enable"
		rmdir "$dir/namespaces/1" "$dir"
	done
}

# Fails its requests soon after its target is lost.
# shellcheck disable=SC2034
soon=reconnect_delay=1,ctrl_loss_tmo=60,fast_io_fail_tmo=1,keep_alive_tmo=2
# Waits for a lost target.
# shellcheck disable=SC2034
patient=reconnect_delay=1,ctrl_loss_tmo=60
# Is removed when its target is lost.
# shellcheck disable=SC2034
once=reconnect_delay=1,ctrl_loss_tmo=0,keep_alive_tmo=2

# connect OPTIONS: creates a controller; prints its device name. On a busy machine the connection manager's 3 s may pass: twice in
# a test it tries again, and says so.
connect() {
	until connects_once "$1"; do
		[ "$(cat /tmp/again.$$ 2>/dev/null)" != 11 ] || return 1
		echo -n 1 >>/tmp/again.$$
		diag "no connection with $1: tried again" >&2
	done
}
connects_once() {
	local fd answer=''
	exec {fd}<>/dev/nvme-fabrics
	printf '%s' "$1" >&"$fd" && read -r answer <&"$fd"
	exec {fd}>&-
	[[ $answer == instance=* ]] || return 1
	answer=${answer#instance=}
	echo "nvme${answer%%,*}"
}

disconnect() { echo 1 >"/sys/class/nvme/$1/delete_controller"; }

live() {
	local state
	read -r state <"/sys/class/nvme/$1/state" && [ "$state" = live ]
}
no_controller() { [ ! -e "/sys/class/nvme/$1" ]; }

# disk_of NAME: waits for the disk of a subsystem
disk_of() {
	local dir nqn name
	for _ in {1..300}; do
		for dir in /sys/class/nvme-subsystem/*; do
			read -r nqn <"$dir/subsysnqn"
			name=${dir##*/nvme-subsys}
			[ "$nqn" != "$1" ] || [ ! -b "/dev/nvme${name}n1" ] || { echo "/dev/nvme${name}n1"; return; }
		done
		sleep 0.1
	done
	return 1
}

# path_of DISK CONTROLLER: the hidden disk of the path by this controller
path_of() {
	local name=${1#/dev/}
	echo "${name%n1}c${2#nvme}n1"
}

# far_drive [OPTIONS]: replaces the drive nvme0 by FAR_DISK, over NVMe over RDMA. no_far_drive: restores it.
far_drive() {
	kernel_has veth nvmet nvmet-rdma nvme-rdma
	knows_rdma
	wire
	! mountpoint -q /mnt/disk || umount /mnt/disk
	goes_far nvme0 "$@"
	# shellcheck disable=SC2154 # exported by goes_far
	export FAR_DISK=$FAR_nvme0
}
homes=()
# goes_far NVME [OPTIONS]: replaces one more drive
goes_far() {
	local number=$((${#homes[@]} + 1)) disk
	target "home-$1" "$(nvme_disk "$1")"
	port $number "home-$1" rdma ipv4 $far_ip
	homes+=("$(connect "$patient${2:+,$2},transport=rdma,traddr=$far_ip,trsvcid=$((4420 + number)),nqn=home-$1")") ||
		bail "no connection to $1"
	disk=$(disk_of "home-$1") || bail "no disk of $1"
	export "FAR_$1=$disk"
}
no_far_drive() {
	come_home
	unwire
}
# come_home: the drives are those of this machine again
come_home() {
	diag "$(dmesg | grep -c "nvme.*starting error recovery") times the connection broke"
	local controller
	unset FAR_DISK "${!FAR_nvme@}"
	for controller in "${homes[@]}"; do disconnect "$controller"; done
	for controller in "${homes[@]}"; do soon 20 no_controller "$controller"; done
	no_targets
	check "peerdma_rdma.ko goes" rmmod peerdma_rdma
	homes=()
}

# carried NAME: runs a whole test of the block path on that drive
carried() {
	whole "$1.sh" "$LAB_ROOT"/tests/guest/*/"$1.sh"
	! mountpoint -q /mnt/disk || umount /mnt/disk
}
# whole DESCRIPTION COMMAND...: its TAP must match its plan without failures. Its skips are passed on.
whole() {
	local line
	"${@:2}" >/tmp/group 2>&1
	check "$1" all_is_ok $?
	diag "$(grep -c "^ok" /tmp/group) of it"
	while IFS= read -r line; do
		line=${line#ok * - }
		skip "$1: ${line%% # SKIP*}" "${line#* # SKIP }"
	done < <(grep "^ok .* # SKIP" /tmp/group)
}
# all_is_ok STATUS: checks the TAP in /tmp/group and its program's exit status
all_is_ok() {
	local planned
	! grep -A 5 "^not ok\|^Bail" /tmp/group && planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' /tmp/group) &&
		[ "$1 ${planned:-0}" = "0 $(grep -c "^ok" /tmp/group)" ] && [ "$planned" -gt 0 ] && return
	echo "status $1, planned ${planned:-nothing}"
	tail -n 3 /tmp/group
	return 1
}

# --- NFS
store=/mnt/store
share=/mnt/share

# stored DRIVE: makes a filesystem on it for the server
stored() {
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
