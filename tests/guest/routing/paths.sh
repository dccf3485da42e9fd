#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe multipath: every path must be checked, bytes must go direct on each, and added or removed paths must be noticed.
# group: route
# topologies: paths
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" dm-mod
export DM_DISABLE_UDEV=1
EXDEV=18 DISTANCE=34

# paths DRIVE: its hidden path disks
paths() {
	local name=${1##*/}
	(cd /sys/class/block && echo "${name%n*}"c*n"${name##*n}")
}
# named DRIVE [FAR]: its paths as backing devices; FAR does not reach the provider
named() {
	local list
	read -ra list <<<"$(paths "$1")"
	backing "${list[@]/%${2:-none}/${2:-}:DISTANCE}"
}
# pci DISK: the PCI function of a path
pci() { basename "$(realpath "/sys/class/block/$1/device/device")"; }
# away DISK: its path outside the switch
away() {
	local path
	for path in $(paths "$1"); do
		[[ $(realpath "/sys/class/block/$path") == */0000:00:03.0/* ]] || echo "$path"
	done
}
# settled DRIVE N: it has N paths
settled() {
	local list
	for _ in {1..100}; do
		read -ra list <<<"$(paths "$1")"
		[ ${#list[@]} != "$2" ] || [ ! -e "/sys/class/block/${list[0]}" ] || return 0
		sleep 0.1
	done
	return 1
}
ios() { awk '{ print $1 + $5 }' "/sys/class/block/$1/stat"; }
wayfree() { same "$1" "NONE - $(named "$2")" "$(explained "$3")"; }

# The boot waits for as many disks as there are drives, and paths count as disks.
for _ in {1..100}; do
	both=$(nvme_disk nvme2) && one=$(nvme_disk nvme3) && break
	sleep 0.1
done
settled "$both" 2 && settled "$one" 2 || bail "the multipath drives do not have their paths"
for file in /sys/class/nvme-subsystem/*/iopolicy; do
	echo round-robin >"$file"
done
host fill disk2 0 $((4 * mib)) pattern:3 >/dev/null
blockdev --flushbufs "$both"
wayfree "a drive with two paths" "$both" "$both"
declare -A before
for path in $(paths "$both"); do
	before[$path]=$(ios "$path")
done
host fill gpu0 0 $((4 * mib)) pattern:9 >/dev/null
host dma-mark >/dev/null
same "a read goes direct" "0 0 $((4 * mib)) $((4 * mib)) 0 0 0" "$(pdio read "$both" 0 $((4 * mib)) 0)"
same "all by the drive's own DMA" "ok gpu0 $((4 * mib)) elsewhere 0" "$(host dma)"
check "what was read" host compare gpu0 0 $((4 * mib)) pattern:3
for path in $(paths "$both"); do
	check "$path had a part of it" [ "$(ios "$path")" -gt "${before[$path]}" ]
	same "$path is kept from merging" 3 "$(cat "/sys/class/block/$path/queue/nomerges")"
done
same "a write goes direct" "0 0 $mib $mib 0 0" "$(pdio write "$both" $mib $mib 0 $mib \
	"host fill gpu0 %AT $mib pattern:5" | tail -n 1 | cut -d' ' -f1-6)"
check "what was written" host compare disk2 $mib $mib pattern:5
dmsetup create over --table "0 65536 linear $both 2048"
wayfree "dm linear over it" "$both" /dev/mapper/over
same "a read by way of that" "0 0 4096 4096 0 0" "$(pdio read /dev/mapper/over 0 4096 0 | cut -d' ' -f1-6)"
dmsetup remove over

# --- One path that does not reach the provider
far=$(away "$one")
same "the far path is named" "DISTANCE $far $(named "$one" "$far")" "$(explained "$one")"
same "a read is refused" "$EXDEV $DISTANCE 0" "$(pdio read "$one" 0 4096 0 | cut -d' ' -f1-3)"
echo 1 >"/sys/bus/pci/devices/$(pci "$far")/remove"
settled "$one" 1 || bail "the far path stays"
wayfree "without it" "$one" "$one"
same "a read goes direct" "0 0 4096 4096 0 0" "$(pdio read "$one" 0 4096 0 | cut -d' ' -f1-6)"
echo 1 >/sys/bus/pci/rescan
settled "$one" 2 || bail "the far path does not come back"
same "it is back: a read is refused" "$EXDEV $DISTANCE 0" "$(pdio read "$one" 0 4096 0 | cut -d' ' -f1-3)"

# --- A path is removed and added under load
host fill disk2 0 $((4 * mib)) pattern:3 >/dev/null
blockdev --flushbufs "$both"
load() {
	while [ ! -e /tmp/enough ]; do
		pdio read "$both" 0 $mib 0 | cut -d' ' -f1-6
	done
}
# reads_go_on: one has begun and ended meanwhile
reads_go_on() {
	local before
	before=$(wc -l </tmp/load)
	has_more() { [ "$(wc -l </tmp/load)" -ge $((before + 2)) ]; }
	soon 20 has_more || not_ok "reads go on"
}
rm -f /tmp/enough
: >/tmp/load
load >>/tmp/load 2>&1 &
loader=$!
read -r first _ <<<"$(paths "$both")"
reads_go_on
echo 1 >"/sys/bus/pci/devices/$(pci "$first")/remove"
settled "$both" 1 || bail "the path stays"
reads_go_on
wayfree "a path went under load" "$both" "$both"
echo 1 >/sys/bus/pci/rescan
settled "$both" 2 || bail "the path does not come back"
reads_go_on
touch /tmp/enough
wait $loader
same "no request noticed" "0 0 $mib $mib 0 0" "$(sort -u /tmp/load)"
wayfree "it came back" "$both" "$both"
same "a read goes direct" "0 0 $mib $mib 0 0 0" "$(pdio read "$both" 0 $mib 0)"
check "what was read" host compare gpu0 0 $mib pattern:3
plan $tap_n
