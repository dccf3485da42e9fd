# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the guest tests. A test's header says where it runs:
#
#   # group: io                     GROUP=io selects it
#   # topologies: switch rp         files of qemu/topo
#   # wants: nvme-rdma-p2p          optional: what a kernel must not lack (qemu/kernels.tbl)
#   # kernels: newest               optional, all if absent, for another reason; with "# because:"
#   # variants: plain debug         optional, both if absent
#   # needs: CONFIG_MD_RAID0 fio    optional: kernel options and host commands; skipped if one is missing
#   # timeout: 60                   optional, seconds
#   # long: oldest plain debug      optional: there make check and SHORT=1 leave it out (plain: on each kernel)
#   # tier: quick debug             optional: quick: also in check-quick; debug: in make check also on the debug kernel;
#                                   all: only in check-all
#
# lab.py's environment: LAB_K LAB_LACKS LAB_VARIANT LAB_TOPOLOGY LAB_KERNEL LAB_MODULE LAB_ROOT LAB_BUILD
set -u
# shellcheck disable=SC2034 # used by the tests
mib=1048576

# --- TAP
tap_n=0
plan() { echo "1..$1"; }
ok() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $*"; }
not_ok() { tap_n=$((tap_n + 1)); echo "not ok $tap_n - $*"; }
skip() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $1 # SKIP ${*:2}"; }
skip_all() { echo "1..0 # SKIP $*"; exit 0; }
diag() { while IFS= read -r line; do echo "# $line"; done <<<"$*"; }
bail() { echo "Bail out! $*"; exit 1; }

# check DESCRIPTION COMMAND...: ok if the command succeeds; otherwise prints its output.
check() {
	local out status
	out=$("${@:2}" 2>&1)
	status=$?
	if [ $status = 0 ]; then
		ok "$1"
	else
		not_ok "$1"
		diag "status $status from: ${*:2}"
		[ -z "$out" ] || diag "$out"
	fi
}

# same DESCRIPTION WANT GOT
same() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1"; diag "want: $2"; diag "got:  $3"; fi
}

# soon SECONDS COMMAND...: retries the command until it succeeds; for so long, and then some more times: the guest's clock goes on while
# the host does not run the guest
soon() {
	local end=$((SECONDS + $1)) more=10
	until "${@:2}"; do
		[ $SECONDS -le $end ] || [ $((more--)) -gt 0 ] || return 1
		sleep 0.05
	done
}

# sleeps PID...: each sleeps in a read, ioctl, pread or io_uring_enter
sleeps() {
	local pid call
	for pid; do
		read -r call _ 2>/dev/null <"/proc/$pid/syscall" && [[ $call = @(0|16|17|426) ]] || return
	done
}
# waits PID...: each sleeps, and is not woken for 0.3 s: what it asked for is under way
waits() {
	local before
	sleeps "$@" && before=$(wakings "$@") && sleep 0.3 && sleeps "$@" && [ "$(wakings "$@")" = "$before" ]
}
wakings() { (cd /proc && grep -s ^voluntary_ctxt_switches "${@/%//status}"); }

# relay COMMAND...: includes a program's TAP output in ours
relay() { relay_as '' "$@"; }
# relay_as WHAT COMMAND...: the same, with WHAT in front of each name
relay_as() {
	local line prefix=${1:+$1: }
	while IFS= read -r line; do
		case $line in
		'ok '*) ok "$prefix${line#* - }" ;;
		'not ok '*) not_ok "$prefix${line#* - }" ;;
		1..*)
			relayed_plan=$line
			diag "$line"
			;;
		*) diag "$line" ;;
		esac
	done < <("${@:2}" 2>&1 || echo "not ok 0 - ${*:2} ended with $?")
}
# relay_whole WHAT COMMAND...: the same for a program that prints its plan at the end
relay_whole() {
	relayed_plan=
	relay_as "$@"
	check "$1: all of it ran" [ -n "$relayed_plan" ]
}

# --- The host, which sees the GPU's memory and the drive from outside:
#   host fill    gpu0|disk0|FILE OFF LEN SOURCE [SOURCE_OFF]      (FILE must be in the run's folder)
#   host compare gpu0|disk0|FILE OFF LEN SOURCE [SOURCE_OFF]
#       SOURCE: pattern:SEED, byte:N, gpu0, disk0 or a FILE of the host
#   host replay ...      checks the result of a round of verify.cpp: tests/tools/replay.cpp
#   host qmp JSON        one QMP command, its reply as JSON
#   host dma-mark        starts counting the bytes moved by the drives' DMA engines; no IOMMU, see lab.py
#   host again           the guest's next power-off is a hibernation: QEMU is started once more
#   host dma             "gpu0 N elsewhere N": bytes since the mark
#   host dma-at FIRST:END ...   bytes since the mark at these addresses of the bus, IOVAs with an IOMMU
# With a peer (qemu/pair.py):
#   host say WORD [TEXT]     sends TEXT to the other guest
#   host hear WORD SECONDS   waits for the other's WORD and prints its TEXT; locks out other calls of host meanwhile
#   host cut                 cuts the other guest's power
#   peer:gpu0, peer:disk0    its images, to fill and to compare
# Prints the answer; true if it begins with "ok".
host_id=0
host() {
	local fd id got answer
	exec {host_lock}>/run/host.lock
	flock "$host_lock"
	exec {fd}<>/dev/virtio-ports/host
	host_id=$((host_id + 1))
	id=$$.$host_id.$RANDOM
	printf '%s %s\n' "$id" "$*" >&"$fd"
	# The pipe may still hold an answer for a process that was killed while waiting.
	while read -r got answer <&"$fd" && [ "$got" != "$id" ]; do :; done
	exec {fd}>&- {host_lock}>&-
	printf '%s\n' "$answer"
	[[ $answer == ok* ]]
}

# throttle BPS [DISK]: QEMU passes the first request to disk0 at once and limits the rest to BPS bytes a second; 0: no
# limit
throttle() { host qmp '{"execute":"block_set_io_throttle","arguments":{"device":"'"${2:-disk0}"'","bps":'"$1"',"bps_rd":0,"bps_wr":0,"iops":0,"iops_rd":0,"iops_wr":0}}' >/dev/null; }

# hold_lock FILE: another process, $locker, takes the lock of FILE for writing and keeps it until release_lock
hold_lock() {
	exec {locker_fd}< <(exec inode "$1" hold write)
	read -r locker <&"$locker_fd"
	read -r <&"$locker_fd"
}
release_lock() {
	kill -KILL "$locker"
	exec {locker_fd}<&-
}

# without_memory [--all] FUNCTION COMMAND...: every slab allocation by this kernel function or its callees fails while the
# command runs: its own, or those of all tasks. On a debug kernel only.
without_memory() {
	local fault=/sys/kernel/debug/failslab filter=Y start end status
	if [ "$1" = --all ]; then
		filter=N
		shift
	fi
	read -r start end < <(awk -v name="$1" '$3 == name { start = $1 } start != "" && $1 != start { print start, $1; exit }' /proc/kallsyms)
	[ -n "$end" ] || { echo "not ok 0 - no function $1"; return 1; }
	echo "0x$start" >$fault/require-start
	echo "0x$end" >$fault/require-end
	echo $filter >$fault/task-filter
	echo N >$fault/ignore-gfp-wait
	echo 0 >$fault/verbose
	echo 0 >$fault/space
	echo -1 >$fault/times
	echo 100 >$fault/probability
	(echo 1 >/proc/self/make-it-fail && exec "${@:2}")
	status=$?
	echo 0 >$fault/probability
	echo Y >$fault/task-filter
	echo 0 >$fault/require-start
	echo 0xffffffffffffffff >$fault/require-end
	return $status
}

# --- What the kernel has. Where none of the probes tells kernels apart, the table of kernels does.
# lacks WORD: as a line "lacks" of qemu/kernels.tbl says; $lack is why
lacks() {
	local word
	# shellcheck disable=SC2034 # used by the tests
	while read -r word lack && [ "$word" != "$1" ]; do :; done <<<"$LAB_LACKS"
	[ "$word" = "$1" ]
}
has_option() { grep -q "^$1=[ym]$" "$LAB_KERNEL/config"; }
# has_function NAME: in the kernel or in a loaded module
has_function() { grep -q " $1\b" /proc/kallsyms; }
# has_declared HEADER NAME: as kernel/compat/Kbuild.compat asks
has_declared() { grep -qw "$2" "$LAB_KERNEL/build/include/linux/$1"; }

# host_bytes: how many the module has moved through the host's memory
host_bytes() { sed -n 's/^total .* host=\([0-9]*\).*/\1/p' /sys/kernel/debug/peerdma/stats; }

# --- Finding devices. No forks: each costs an emulated guest 10 ms.
# pci_of VENDOR:DEVICE [N]: the PCI address of the N-th (from 0) such function
pci_of() {
	local d vendor device n=${2:-0}
	for d in /sys/bus/pci/devices/*; do
		read -r vendor <"$d/vendor"
		read -r device <"$d/device"
		[ "$vendor:$device" = "$1" ] || continue
		[ "$n" -gt 0 ] || { echo "${d##*/}"; return; }
		n=$((n - 1))
	done
	return 1
}

gpu_bdf() { pci_of 0x1af4:0x1110; }

# nvme_disk SERIAL: the block device of the drive nvme0 (the default) or nvme1 of the topology
nvme_disk() {
	local d serial hidden
	local far=FAR_${1:-nvme0} # set by fabric_io.sh and card_io.sh: the same drive over the network
	[ -n "${AT_HOME:-}" ] || [ -z "${!far:-}" ] || { echo "${!far}"; return; }
	for d in /sys/class/block/nvme*n1; do
		[ -e "$d" ] || continue
		read -r hidden <"$d/hidden"
		[ "$hidden" = 0 ] || continue # a hidden path of a multipath drive
		read -r serial <"$d/device/serial"
		[ "$serial" != "${1:-nvme0}" ] || { echo "/dev/${d##*/}"; return; }
	done
	return 1
}

nvme_bdf() {
	local disk
	disk=$(AT_HOME=1 nvme_disk "${1:-nvme0}") || return
	basename "$(realpath "/sys/class/block/$(basename "$disk")/device/device")"
}

# mount_disk [SERIAL] [DIR]: mounts the drive's ext4, by default on /mnt/disk
mount_disk() {
	local dir=${2:-/mnt/disk}
	mkdir -p "$dir"
	mountpoint -q "$dir" || mount "$(nvme_disk "${1:-nvme0}")" "$dir" || bail "no filesystem on $1"
}

# ended PID: a child of this shell
ended() { ! kill -0 "$1" 2>/dev/null; }

load_module() {
	[ -d /sys/module/peerdma ] || insmod "$LAB_MODULE" || bail "peerdma.ko does not load"
	[ -z "${FAR_nvme0:-}" ] || finds_cards
	[ -z "${FAR_DISK:-}" ] || knows_rdma
}

# finds_cards: loads peerdma_rdma.ko
finds_cards() {
	[ -d /sys/module/peerdma_rdma ] || insmod "$(dirname "$LAB_MODULE")/peerdma_rdma.ko" || bail "peerdma_rdma.ko does not load"
}
# knows_rdma: and allows software RDMA
knows_rdma() {
	finds_cards
	echo 1 >/sys/module/peerdma_rdma/parameters/allow_software
}

# afresh: restores the state after boot: nothing published, no module of ours
afresh() {
	local gpu module
	gpu=$(gpu_bdf)
	echo >"/sys/bus/pci/devices/$gpu/driver_override" # otherwise the module binds it when it is loaded
	[ -d /sys/module/peerdma ] || return 0
	[ ! -d "/sys/bus/pci/devices/$gpu/p2pmem" ] || peerdma unpublish "$gpu" >/dev/null || bail "peerdma unpublish failed"
	for module in peerdma_nvidia peerdma_nfs peerdma_rdma peerdma; do
		[ ! -d /sys/module/$module ] || rmmod $module || bail "$module stays"
	done
}

# publish [ARGS]: publishes the GPU's BAR with the command; once per boot unless it was unpublished
publish() {
	load_module
	[ -d "/sys/bus/pci/devices/$(gpu_bdf)/p2pmem" ] || peerdma publish "$(gpu_bdf)" "$@" >/dev/null ||
		bail "peerdma publish failed"
}

# few_drivers: libibverbs loads every listed driver, one after the other over 9p. Lists only those that the tests need,
# until /etc/libibverbs.d is unmounted.
few_drivers() {
	mount -t tmpfs none /etc/libibverbs.d
	printf 'driver rxe\ndriver siw\n' >/etc/libibverbs.d/lab.driver
}

# gpu_bar: its start and length, which the kernel shows to all users
gpu_bar() {
	local start last
	for _ in 0 1 2; do read -r start last _; done <"/sys/bus/pci/devices/$(gpu_bdf)/resource"
	echo "$start $((last - start + 1))"
}

# tells_no_address LINES: the listed files, one per line, contain neither kernel addresses nor addresses in the GPU's
# BAR
tells_no_address() {
	local start len
	read -r start len <<<"$(gpu_bar)"
	access tell "$start" "$len" <<<"$1"
}

# roce, no_roce: create and remove a software RDMA device for verbs programs; both ends of a connection are in this
# guest
roce() {
	modprobe -d "$LAB_KERNEL" -q crc32_generic # for soft-RoCE, if it is a module
	modprobe -d "$LAB_KERNEL" -a dummy rdma_rxe ib_uverbs || bail "no RDMA"
	# Large enough for a page and its headers in one packet.
	ip link add roce0 type dummy
	ip link set roce0 mtu 9000 up
	ip link set lo up
	ip addr add 10.9.1.1/24 dev roce0
	rdma link add rxe0 type rxe netdev roce0 || bail "no soft-RoCE"
	few_drivers
}
no_roce() {
	umount /etc/libibverbs.d
	rdma link del rxe0
	ip link del roce0
}

# dm NAME: its kernel name
dm() { echo "dm-$((0x$(stat -L -c %T "/dev/mapper/$1")))"; }

# table NAME TABLE: creates a device-mapper device
table() { dmsetup create "$1" --table "$2" || bail "no dm device $1"; }

# --- Routes and refusals
# explained FILE: the reason, the refusing device, and each backing device with its own reason
explained() {
	local key rest name verdict reason='' refused=- list=('')
	while read -r key rest; do
		case $key in
		reason) reason=${rest%%:*} ;;
		refused) refused=${rest#by } ;;
		backing)
			if [[ $rest = *"not a PCI"* ]]; then
				[[ $rest != *", software" ]] || list+=("${rest%% *}:software")
				continue
			fi
			read -r _ name verdict _ <<<"$rest"
			case $verdict in
			'') list+=("$name:$reason") ;;
			distance) list+=("$name:NONE") ;;
			*) list+=("$name:${verdict%:}") ;;
			esac
			;;
		esac
	done < <(peerdma explain "$1")
	echo "$reason $refused$(printf '%s\n' "${list[@]}" | sort | tr '\n' ' ')"
}

# backing DISK[:REASON]...: the backing devices as `explained` prints them
backing() {
	local disk
	for disk; do
		disk=${disk##*/}
		[[ $disk == *:* ]] && echo "$disk" || echo "$disk:NONE"
	done | sort | tr '\n' ' '
}

# splat WHAT: loads a module that misbehaves in this way (tests/kmod/splat.c), for the must-fail tests
splat() { insmod "$(dirname "$LAB_MODULE")/kmod/splat.ko" "what=$1"; }

# straight LEN: pdio's counters after LEN bytes went direct
straight() { echo "0 0 $1 $1 0 0"; }

# moves DESCRIPTION FILE OFF LEN: a write and a read of this range of a file or drive must go direct and be right
moves() {
	local what=$1 file=$2 off=$3 len=$4 got
	got=$(pdio write "$file" "$off" "$len" 0 "$len" \
		"host fill gpu0 %AT $len pattern:5")
	same "$what: a write goes direct" "$(straight "$len")" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}")"
	check "$what: what was written" pattern compare "$file" "$off" "$len" pattern:5
	pattern fill "$file" "$off" "$len" pattern:6
	sync "$file"
	[ ! -b "$file" ] || blockdev --flushbufs "$file"
	same "$what: a read goes direct" "$(straight "$len") 0" "$(pdio read "$file" "$off" "$len" 0)"
	check "$what: what was read" host compare gpu0 0 "$len" pattern:6
}

# --- With a peer
# far COMMAND: runs it on the peer, which must be in `obey`; prints its output and returns its status
far() {
	local status said
	host say order "$*" >/dev/null && said=$(host hear answer 120) || { echo "$said"; return 1; }
	read -r _ status said <<<"$said"
	eval "said=$said"
	[ -z "$said" ] || printf '%s\n' "$said"
	return "$status"
}

# dismiss: ends the peer's `obey`
dismiss() { host say order dismissed >/dev/null; }

# obey: runs the other guest's commands until it is dismissed. Redirect the output of a background job.
obey() {
	local order said
	while order=$(host hear order 600); do
		order=${order#ok }
		[ "$order" != dismissed ] || return 0
		said=$(eval "$order" 2>&1)
		host say answer "$? $(printf %q "$said")" >/dev/null
	done
	echo "$order"
	return 1
}

# extents FILE: its extents, one a line: offset in the file, offset on the drive, length, in bytes
extents() {
	local number first begin length
	while read -r number first _ begin _ length _; do
		[[ $number:$length != [0-9]*:[0-9]* ]] || echo "$first $begin $length"
	done < <(filefrag -v -b1 "$1" | tr -s '.:' ' ')
}

# on_drive IMAGE EXTENTS LEN SOURCE [OFF [SOURCE_OFF]]: the host compares LEN bytes of a file, from OFF on, where its extents are on
# the drive
on_drive() {
	local off=${5:-0} at from len first end seen=0
	while read -r at from len; do
		first=$((at > off ? at : off)) end=$((at + len < off + $3 ? at + len : off + $3))
		[ $first -lt $end ] || continue
		host compare "$1" $((from + first - at)) $((end - first)) "$4" $((first - off + ${6:-0})) || return 1
		seen=$((seen + end - first))
	done <<<"$2"
	[ "$seen" = "$3" ] || { echo "the extents have $seen bytes of $3"; return 1; }
}
