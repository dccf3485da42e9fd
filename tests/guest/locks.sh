#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Somebody else holds the drive's device lock, as SR-IOV and error recovery do, and may want the provider's
# while they have it. So nothing of ours may wait for the one inside what unbinding waits for.
# group: lifetime
# topologies: switch
. "$LAB_ROOT/tests/guest/lib.sh"
plan 5

gpu=$(gpu_bdf)
mount_disk
# A fresh provider has no verdict about the drive yet: explaining has to take the drive's locks.
[ ! -d /sys/module/peerdma ] || { peerdma unpublish "$gpu" >/dev/null; rmmod peerdma; }
publish
pattern fill /mnt/disk/locks 0 65536 pattern:1
sync

insmod "$(dirname "$LAB_MODULE")/kmod/devlock.ko" device="$(nvme_bdf)" seconds=6 &
holder=$!
for _ in {1..50}; do ! dmesg | grep -q 'devlock: holding' || break; sleep 0.1; done
pdio read /mnt/disk/locks 0 4096 0 >/tmp/asked 2>&1 &
asker=$!
sleep 1
check "the request waits" kill -0 $asker
start=$SECONDS
check "unbind returns" bash -c "echo $gpu >/sys/bus/pci/devices/$gpu/driver/unbind"
took=$((SECONDS - start))
if [ $took -le 3 ] && kill -0 $holder; then ok "while the drive's lock is still held"; else not_ok "it took $took s"; fi
wait $asker
same "the request learns that the provider is gone" "19 48 0" "$(cut -d' ' -f1-3 /tmp/asked)"
wait $holder
check "the lock is free again" rmmod devlock
