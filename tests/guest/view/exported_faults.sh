#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The way to an exported view breaks under a read: the target goes and comes back; the storage node loses what its kernel had, as in a
# power cut, and serves the view again; it is stopped and started again; then the link goes for longer than the host waits. The read is
# whole, or it fails and is named; nothing waits for ever. A link that comes back is of no use to soft-RoCE, which does not connect again
# (Documentation/upstream/rxe-link-down).
# group: view
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK rdma
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

prepare_export
EIO=5

image make /mnt/data/a 200001 17 1
exports
same "a view" '' "$(image publish $socket tokens $'file = /mnt/data/a\ncodec = u32\nhost = '$me)"
published "is published" tokens

# The service stands still, so that the read is under way.
controller=$(to "$patient" tokens $me) || bail "no connection"
disk=$(disk_of ${prefix}tokens) || bail "no disk"
kill -STOP $service
dd if="$disk" of=/mnt/data/copy bs=64k iflag=direct status=none &
reader=$!
soon 20 waits $reader || diag "the read was not seen to wait"
link=$(echo "$nvmet"/ports/*/subsystems/${prefix}tokens)
rm "$link"
kill -CONT $service
sleep 1
check "the target goes: the read waits" kill -0 $reader
ln -s "$nvmet/subsystems/${prefix}tokens" "$link"
wait $reader
same "it comes back: the read ends" 0 $?
check "with each element" image compare /mnt/data/copy /mnt/data/a

# As after a reboot of the storage node: the device and the target are gone, what the service has saved is there.
kill -STOP $service
dd if="$disk" of=/mnt/data/again bs=64k iflag=direct status=none &
reader=$!
soon 20 waits $reader || diag "the read was not seen to wait"
rm "$link"
check "the storage node goes: its host notices" soon 20 fails live "$controller"
kill -KILL $service
wait $service 2>/dev/null
cp -a /run/views /run/saved
rm /run/views/tokens.conf
begin # without a port; it removes the device and the target of an unknown view
check "its device is gone" fails compgen -G '/dev/ublkb*'
check "and its target" fails test -e "$nvmet/subsystems/${prefix}tokens"
ends "that service ends"
rm -r /run/views
mv /run/saved /run/views
check "the read still waits" kill -0 $reader
exports
published "the storage node comes back with the view" tokens
soon 80 ended $reader || bail "the read does not end"
wait $reader
same "the read ends" 0 $?
check "with each element" image compare /mnt/data/again /mnt/data/a
check "the host has the disk that it had" image compare "$disk" /mnt/data/a

# Stopped in order and started again, as by an update: a host that reads without a pause sees no error.
until [ -e /run/enough ]; do dd if="$disk" of=/mnt/data/third bs=4k iflag=direct status=none || exit 1; done &
reader=$!
soon 20 cmp -s /mnt/data/third /mnt/data/again || diag "nothing was read before"
ends "a service that is stopped under reads ends"
check "the reads wait for the next one" kill -0 $reader
exports
published "which has the view" tokens
soon 80 live "$controller" || bail "the host does not connect again"
: >/run/enough
wait $reader
same "no read has failed" 0 $?
check "with each element" image compare /mnt/data/third /mnt/data/a
rm /run/enough
disconnect "$controller"
check "the disk goes" soon 20 fails test -b "$disk"

controller=$(to "$once" tokens $me) || bail "no second connection"
disk=$(disk_of ${prefix}tokens) || bail "no second disk"
size=$(blockdev --getsize64 "$disk")
kill -STOP $service
begins /tmp/broken read "$disk" 0 $((size / 4096 * 4096)) 0 $((size / 4096 * 4096))
peerdma cp "$disk" /mnt/data/late >/run/late 2>&1 &
copier=$!
soon 20 waits $copier || not_ok "a copy is under way"
ip link set veth1 down
wait $begun
read -r got _ </tmp/broken
same "the link goes for good: PeerDMA's read fails" $EIO "$got"
host fill gpu0 0 "$size" pattern:7 >/dev/null
wait $copier
check "so does the command" [ $? != 0 ]
check "which names it" grep -q "Input/output error" /run/late
diag "$(cat /run/late)"
check "the controller goes" soon 30 no_controller "$controller"
kill -CONT $service
check "the service lives" soon 30 is tokens state published
same "and knows of no fault" '' "$(field tokens last_fault)"
check "its device has each element" image compare "$(field tokens device)" /mnt/data/a
ip link set veth1 up
sleep 1
check "the link is up: nothing came into the GPU's memory" host compare gpu0 0 "$size" pattern:7
ends "it ends"
rmdir /sys/kernel/config/nvmet/ports/* /sys/kernel/config/nvmet/hosts/*
unwire
rmmod peerdma_rdma
check "the driver is free" rmmod ublk_drv
plan $tap_n
