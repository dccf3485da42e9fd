#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Somebody else holds the drive's device lock, as SR-IOV and error recovery do, or that of opening it, and may want the
# provider's while they have it. So nothing of ours may wait for the one inside what unbinding waits for.
# group: lifetime
# topologies: switch
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
mount_disk
[ ! -d /sys/module/peerdma ] || { peerdma unpublish "$gpu" >/dev/null; rmmod peerdma; }
load_module
pattern fill /mnt/disk/locks 0 65536 pattern:1
sync

# waits PID: in an ioctl, and a little later still
waits() {
	local nr
	for _ in {1..50}; do
		read -r nr _ <"/proc/$1/syscall"
		if [ "$nr" = 16 ]; then
			sleep 0.3
			read -r nr _ <"/proc/$1/syscall"
			[ "$nr" != 16 ] || return 0
		fi
		sleep 0.1
	done
	return 1
}

# while_held WHAT PARAMETER: the lock that devlock.ko takes if it is told this
while_held() {
	local holder asker victim explainer start took
	# A fresh provider has no verdict about the drive yet: whoever asks has to take the drive's locks.
	publish
	insmod "$(dirname "$LAB_MODULE")/kmod/devlock.ko" "$2" seconds=60 &
	holder=$!
	for _ in {1..50}; do ! dmesg | grep -q "devlock: holding ${2#*=}" || break; sleep 0.1; done
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/asked 2>&1 &
	asker=$!
	pdio read /mnt/disk/locks 0 4096 0 >/tmp/victim 2>&1 &
	victim=$!
	peerdma explain /mnt/disk/locks >/tmp/explained 2>&1 &
	explainer=$!
	check "$1: a request waits" waits $asker
	check "$1: so does another" waits $victim
	kill -KILL $victim
	wait $victim 2>/dev/null
	same "$1: which can be killed meanwhile" "137 held" "$? $(kill -0 $holder && echo held)"
	check "$1: explaining waits" kill -0 $explainer
	start=$SECONDS
	check "$1: unbind returns" bash -c "echo $gpu >/sys/bus/pci/devices/$gpu/driver/unbind"
	took=$((SECONDS - start))
	wait $asker
	same "$1: the request learns that the provider is gone" "19 48 0" "$(cut -d' ' -f1-3 /tmp/asked)"
	wait $explainer
	same "$1: so does who wants it explained" "1 1" "$? $(grep -c 'No such device\|unpublished' /tmp/explained)"
	if [ $took -le 3 ] && kill -0 $holder; then ok "$1: while the lock is still held"; else not_ok "$1: it took $took s"; fi
	kill $holder
	wait $holder 2>/dev/null
	check "$1: the lock is free again" rmmod devlock
}

while_held "the device lock" device="$(nvme_bdf)"
while_held "the lock of opening" disk="$(nvme_disk)"
plan $tap_n
