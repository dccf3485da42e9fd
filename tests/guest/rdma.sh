# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced after lib.sh by tests that need an RDMA network, here soft-RoCE: the cable, whose near end is 10.9.0.1 and whose far end
# is 10.9.0.2, and requests under which something breaks. What is at its ends: nvmeof.sh and nfs_server.sh; a card: rdma_card.sh.

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

# breaks_under read|write|ring DESCRIPTION DISK IMAGE DRIVE COMMAND...: one of these; ring: the write of a ring
breaks_under() {
	case $1 in
	read) breaks "$2 under a read" "${@:3:2}" "${@:6}" ;;
	write) write_breaks "$2 under a write" "${@:3}" ;;
	ring) RING=1 write_breaks "$2 under a ring's write" "${@:3}" ;;
	esac
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

# taken read|write DESCRIPTION FILE IMAGE LEN [TARGET]: unbinds the GPU under a request that the throttled image makes slow. The
# request must complete before the GPU is unbound; then the GPU is published again. A read gets pattern:1. What is written is compared in
# the image, or in TARGET, a drive of this guest.
taken() {
	local what="$2, the GPU is unbound under a $1" len=$5 compare=(host compare gpu0 0 "$5" pattern:1)
	[ "$1" = read ] || compare=(host compare "$4" 0 "$5" pattern:5)
	[ "$1" = read ] || [ -z "${6:-}" ] || compare=(pattern compare "$6" 0 "$5" pattern:5)
	begins /tmp/slow "$1" "$3" 0 "$len" 0 "$len" "host fill gpu0 %AT $len pattern:5"
	check "$what: a request is under way" kill -0 $begun
	peerdma unpublish "$(gpu_bdf)" >/dev/null &
	sleep 1
	check "$what: who unbinds waits for it" kill -0 $!
	throttle 0 "$4"
	wait $begun
	same "$what: the request is whole" "$(straight "$len")" "$(tail -n 1 /tmp/slow | cut -d' ' -f1-6)"
	[ -z "${6:-}" ] || blockdev --flushbufs "$6"
	check "$what: and its bytes" "${compare[@]}"
	wait
	check "$what: it is gone" [ ! -e "/sys/bus/pci/devices/$(gpu_bdf)/p2pmem" ]
	publish
}

# taken_twice DESCRIPTION FILE IMAGE LEN [TARGET]: the same for a read and a write on a slow image. The throttle passes the first
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

# misses_peer_soon: declares a silent peer dead soon. By default the kernel probes a neighbor that it believes reachable for a minute.
misses_peer_soon() {
	local setting
	for setting in base_reachable_time_ms=1000 delay_first_probe_time=1 retrans_time_ms=200 ucast_solicit=1; do
		echo "${setting#*=}" >"/proc/sys/net/ipv4/neigh/eth0/${setting%=*}"
	done
}

. "$LAB_ROOT/tests/guest/nvmeof.sh"
. "$LAB_ROOT/tests/guest/nfs_server.sh"
. "$LAB_ROOT/tests/guest/rdma_card.sh"
