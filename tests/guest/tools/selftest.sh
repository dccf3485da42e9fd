#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma selftest on real devices of the lab: it must work if there is a route, name the reason if there is not, and
# leave nothing behind, however it ends.
# group: cli
# topologies: switch rp-vtd rp-intel
# tier: quick
# variants: plain
# timeout: 120
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
mkdir -p /mnt/disk/self

# self DIRECTORY: runs it; sets status to its exit status, step and row to the states and bytes of its steps by name,
# and other lines by their first word
declare -A step row
self() {
	local key rest
	peerdma selftest "$@" >/tmp/answer 2>/tmp/err
	status=$? good=0 step=() row=()
	while read -r key rest; do
		case $key in
		good | bad | unknown)
			step[${rest%%  *}]=${rest##*  }
			[ $key != good ] || good=$((good + 1))
			;;
		*) row[$key]=$rest ;;
		esac
	done </tmp/answer
}
# bytes of the provider that are allocated
free() {
	local key value len=0
	while read -r key value; do
		case $key in '"len":') len=${value%,} ;; '"available":') echo $((len - ${value%,})) ;; esac
	done < <(peerdma providers --json)
}
left() {
	same "$1: no file is left" 0 "$(find /mnt/disk/self -mindepth 1 | wc -l)"
	same "$1: no memory of the provider is" 0 "$(free)"
}

self /mnt/disk/self
if [ "$LAB_TOPOLOGY" = rp-intel ]; then
	same "without a route: the exit status" 1 $status
	check "the reason" grep -q '^route    none (EXDEV, DISTANCE: ' /tmp/answer
	check "what to do" [ -n "${row[advice]:-}" ]
	same "no step was begun" 0 ${#step[@]}
	left "refused"
	peerdma selftest /mnt/disk/self --json >/tmp/answer
	same "json: the exit status" 1 $?
	check "json: the reason" grep -q '"reason": "DISTANCE"' /tmp/answer
	plan $tap_n
	exit
fi

same "it works" 0 $status
diag "$(cat /tmp/answer /tmp/err)"
same "each step is good" "15 15" "${#step[@]} $good"
# A partial block goes near on a read, and through the host on a write. With soft-RoCE all bytes go through the host.
[ -z "${FAR_DISK:-}" ] && whole="524288 direct, 0 near, 0 host" part="0 direct, 100 near, 0 host" ||
	whole="0 direct, 0 near, 524288 host" part="0 direct, 0 near, 100 host"
for what in read write; do
	same "$what: whole blocks go direct" "$whole" "${step[$what, whole blocks]}"
	same "$what: those of a ring too" "$whole" "${step[$what by ring, whole blocks]}"
done
same "a partial block that is read" "$part" "${step[read, inside a block]}"
same "a partial block that is written" "0 direct, 0 near, 100 host" "${step[write, inside a block]}"
same "a place that no drive can address" "0 direct, 0 near, 16384 host" "${step[read, odd place in the buffer]}"
same "it ends with a result" "works: 15 of 15 steps are good" "${row[result]}"
read -r start _ <<<"$(gpu_bar)"
check "no name of a file, no place on the bus or in memory" bash -c "! grep -qE 'self|/mnt|0000:|$(printf %x "$start")' /tmp/answer"
left "text"
peerdma selftest /mnt/disk/self --json >/tmp/answer
same "json: the exit status" 0 $?
same "json: it works, and each step is good" "1 15" "$(grep -c '"works": true' /tmp/answer) $(grep -c '"state": "good"' /tmp/answer)"

# Directories where no file can be created.
for bad in /mnt/disk/none /etc/passwd /proc; do
	self $bad
	same "$bad: the exit status, a line, and no report" "1 1 0" "$status $(wc -l </tmp/err) $(wc -l </tmp/answer)"
done
self
same "without a directory" 2 $status
mount -o remount,ro /mnt/disk
self /mnt/disk/self
same "a filesystem that cannot be written" "1 1" "$status $(grep -c EROFS /tmp/err)"
mount -o remount,rw /mnt/disk
mkdir -p /tmp/self
self /tmp/self
same "tmpfs is refused, with its reason" "1 1" "$status $(grep -c '^route    none (EXDEV, FILESYSTEM: ' /tmp/answer)"

# Interrupted during slow I/O.
for signal in INT TERM KILL; do
	throttle 1000000
	timeout -s $signal 1 peerdma selftest /mnt/disk/self >/tmp/answer
	status=$?
	throttle 0
	[ $signal != KILL ] && want=124 || want=137
	same "SIG$signal: it was interrupted" "$want 0" "$status $(wc -c </tmp/answer)"
	left "SIG$signal"
done
umount /mnt/disk
check "the filesystem is clean" e2fsck -fn "$(nvme_disk)"
plan $tap_n
