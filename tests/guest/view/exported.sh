#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Views exported by the kernel's NVMe target over RDMA (soft-RoCE) to a host in this guest: who may connect; each element by the
# page cache and through GPU memory; the service killed under connections; files that change or cannot be read; a view withdrawn under
# reads.
# group: view
# topologies: switch
# long: oldest
# variants: plain
# needs: CONFIG_BLK_DEV_UBLK CONFIG_BLK_DEV_DM rdma zstd
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

prepare_export
other=nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555

image make /mnt/data/a 200001 17 1
exports
same "a view for one host" '' "$(image publish $socket tokens $'file = /mnt/data/a\ncodec = u32\nhost = '$me)"
same "a view for nobody" '' "$(image publish $socket alone $'file = /mnt/data/a\ncodec = u32')"
published "is published" tokens
published "so is the other" alone
same "its name" ${prefix}tokens "$(field tokens nqn)"
controller=$(to "$soon" tokens $me) || bail "no connection"
disk=$(disk_of ${prefix}tokens) || bail "no disk"
check "the host has each element" image compare "$disk" /mnt/data/a
check "which cannot write" fails dd if=/dev/zero of="$disk" bs=4096 count=1 oflag=direct conv=notrunc status=none
check "another host may not connect" fails to "$soon" tokens $other
check "nobody may connect to the other" fails to "$soon" alone $me

size=$(blockdev --getsize64 "$disk")
same "PeerDMA reads it into GPU memory" "0 $RDMA_SOFTWARE $size" "$(pdio read "$disk" 0 "$size" 0 "$size" | tail -n 1 | cut -d' ' -f1-3)"
check "by way of it" peerdma cp "$disk" /mnt/data/copy
check "comes each byte" cmp "$disk" /mnt/data/copy
check "and element" image compare /mnt/data/copy /mnt/data/a

# Other elements, and a compressed file.
image widen /mnt/data/a /mnt/data/wide
zstd -q /mnt/data/wide -o /mnt/data/wide.zst
for each in $'wide|file = /mnt/data/wide\ncodec = i64:u24' $'zst|file = /mnt/data/wide.zst\ncodec = i64:18\ncompressed = yes'; do
	name=${each%%|*}
	same "i64, $name: a view" '' "$(image publish $socket "$name" "${each#*|}"$'\nhost = '$me)"
	published "i64, $name: is published" "$name"
	wide=$(to "$soon" "$name" $me) || bail "no connection"
	check "i64, $name: its host reads it" peerdma view read "$(disk_of "$prefix$name")" --output /mnt/data/read
	check "i64, $name: each element" cmp /mnt/data/read /mnt/data/wide
	disconnect "$wide"
	same "i64, $name: it can be withdrawn" '' "$(image withdraw $socket "$name")"
done

blockdev --flushbufs "$disk"
kill -KILL $service
wait $service 2>/dev/null
dd if="$disk" of=/mnt/data/late bs=64k iflag=direct status=none &
late=$!
exports
published "killed, it comes back" tokens
wait $late
same "a read that began meanwhile ends" 0 $?
check "with what is there" image compare /mnt/data/late /mnt/data/a

# While there is no service, its host is taken away from a view.
same "a view for the host, too" '' "$(image publish $socket taken $'file = /mnt/data/a\ncodec = u32\nhost = '$me)"
published "is published" taken
taken=$(to "$soon" taken $me) || bail "no connection"
taken_disk=$(disk_of ${prefix}taken) || bail "no disk"
kill -KILL $service
wait $service 2>/dev/null
dd if="$taken_disk" of=/run/held bs=4096 count=1 iflag=direct status=none 2>/dev/null &
held=$!
soon 20 waits $held || not_ok "a read is under way"
sed -i '/^host/d' /run/views/taken.conf
exports
published "without its host it comes back" taken
is_cut_off() { [ "$(cat "/sys/class/nvme/$taken/state" 2>/dev/null)" != live ]; }
check "which is disconnected" soon 20 is_cut_off
check "and may not connect" fails to "$soon" taken $me
check "its read that was held fails" fails wait $held
same "and has no byte" 0 "$(stat -c %s /run/held)"
disconnect "$taken"
same "withdrawn" '' "$(image withdraw $socket taken)"
published "the other view is there" tokens
check "for its host" image compare "$disk" /mnt/data/a

check "explain says that it is a view" grep -q "a view: u32 in 17 bits, 200001 elements, reduced by the storage" <(peerdma explain "$disk")

# Files of a view change, or cannot be read. Each file has one MiB of the view, which no read has loaded before.
make_drive 32
image halves /mnt/data/halves 2
files=''
for how in whole grown cut replaced misfit unreadable; do
	cp /mnt/data/halves /run/files/$how
	files+="file = /run/files/$how"$'\n'
done
same "a view of files that fail" '' "$(image publish $socket failing "$files"$'codec = u32:u16\nprefetch = no\nhost = '$me)"
published "is published" failing
cold
failing=$(to "$soon" failing $me) || bail "no connection"
failing_disk=$(disk_of ${prefix}failing) || bail "no disk"
first_sector() { filefrag -v -b512 "$1" | awk '$1 == "0:" { sub(/\.\.$/, "", $4); print $4 + 0 }'; }
reads_with() { dd if="$failing_disk" of=/dev/null bs=4k skip=$((at / 4096)) count=1 "$@" status=none 2>&1 | sed 's/.*: //'; }
at=4096 # behind the header
for how in grown cut replaced misfit unreadable; do
	at=$((at + mib)) direct="No data available" number=61
	case $how in
	grown) printf x >>/run/files/grown ;;
	cut) truncate -s 100000 /run/files/cut ;;
	replaced) cp /mnt/data/halves /run/files/other && mv /run/files/other /run/files/replaced ;;
	misfit) printf '\377\377\377\377' | dd of=/mnt/data/drive bs=512 seek="$(first_sector /run/files/misfit)" conv=notrunc status=none ;;
	unreadable)
		bad=$(first_sector /run/files/unreadable) direct="Input/output error" number=5
		drive "0 $bad linear $loop 0" "$bad 8 error" "$((bad + 8)) $((sectors - bad - 8)) linear $loop $((bad + 8))"
		;;
	esac
	same "$how: past the page cache its reads fail so" "$direct" "$(reads_with iflag=direct)"
	same "$how: through it so" "Input/output error" "$(reads_with)"
	same "$how: and into GPU memory so" "$number 0 0" "$(pdio read "$failing_disk" $at 65536 0 | tail -n 1 | cut -d' ' -f1-3)"
done
check "a file that is whole comes" image read "$failing_disk" /mnt/data/halves 0
drive "$whole"
disconnect "$failing"
same "it can be withdrawn" '' "$(image withdraw $socket failing)"

# Published again from another file while a host that waits for its target has a read under way.
image make /mnt/data/b 200001 17 2
same "a view that is published again" '' "$(image publish $socket again $'file = /mnt/data/a\ncodec = u32\nhost = '$me)"
published "is published" again
again=$(to "reconnect_delay=5,ctrl_loss_tmo=60" again $me) || bail "no connection"
again_disk=$(disk_of ${prefix}again) || bail "no disk"
at() { dd if="$again_disk" bs=4096 skip=20 count=1 iflag=direct status=none 2>/dev/null; }
at >/run/before
same "withdrawn" '' "$(image withdraw $socket again)"
at >/run/late &
late=$!
same "published again, from another file" '' "$(image publish $socket again $'file = /mnt/data/b\ncodec = u32\nhost = '$me)"
published "is published again" again
check "its host connects again" soon 30 live "$again"
check "a read of before has ended" soon 30 ended $late
wait $late
check "and has none of the new view's bytes" fails test -s /run/late
check "nor do those that come later" eval "at >/run/later; ! test -s /run/later"
disconnect "$again"
same "it can be withdrawn" '' "$(image withdraw $socket again)"

# Reads in a loop until a pass is not whole.
while dd if="$disk" of=/run/came bs=4k iflag=direct status=none 2>/dev/null && cmp -s /run/came /mnt/data/copy; do :; done &
reader=$!
device=$(field tokens device)
soon 20 cmp -s /run/came /mnt/data/copy
check "it is read" kill -0 $reader
same "withdrawn under reads" '' "$(image withdraw $socket tokens)"
check "its device is gone" fails test -b "$device"
check "its reads fail" soon 20 ended $reader
check "what came before is right" cmp -n "$(stat -c %s /run/came)" /run/came /mnt/data/copy
check "no new connection" fails to "$soon" tokens $me
disconnect "$controller"
check "the disk goes" soon 20 fails test -b "$disk"

# killed_again: without its order to end
killed_again() {
	kill -KILL $service
	wait $service 2>/dev/null
}
device=$(field alone device) subsystems=/sys/kernel/config/nvmet/subsystems
killed_again
begin --port rdma:10.9.0.2:4420 --nqn-prefix ${prefix}now:
published "with another prefix it comes back" alone
same "with the device" "$device" "$(field alone device)"
check "exported by its new name" test -d $subsystems/${prefix}now:alone
check "and by no other" fails test -e $subsystems/${prefix}alone

killed_again
begin
published "it comes back without a port" alone
check "no view is exported" fails ls -d $subsystems/"$prefix"* 2>/dev/null
ends "it ends"
begin
published "a device that is for reading only" alone
device=$(field alone device)
killed_again
exports
published "comes back with a port" alone
same "as another one" "fresh device: the one before could not be recovered: ublk device ${device#/dev/ublkb}: it was made for reading only, which the NVMe target refuses" "$(field alone note)"
check "that is exported" test -d $subsystems/${prefix}alone

ends "it ends"
check "nothing is exported any more" fails ls -d /sys/kernel/config/nvmet/subsystems/"$prefix"* 2>/dev/null
rmdir /sys/kernel/config/nvmet/ports/* /sys/kernel/config/nvmet/hosts/*
unwire
rmmod peerdma_rdma
check "the driver is free" rmmod ublk_drv
plan $tap_n
