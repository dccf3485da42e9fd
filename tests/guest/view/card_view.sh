#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A view that peerdma-viewd exports, read into CUDA memory by peerdma_view_read() through a network card whose own DMA engine moves the
# bytes (tests/kmod/dmacard_rdma.h), both ends in this guest: direct, widened by the GPU (here the stand-in, whose work is the CPU's), each
# element compared by the host.
# group: view
# topologies: disks
# wants: nvme-rdma-p2p
# variants: plain
# tier: all
# needs: CONFIG_BLK_DEV_UBLK rdma
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

publish
kernel_has nvmet nvmet-rdma nvme-rdma
mount | grep -q configfs || mount -t configfs none /sys/kernel/config
! mountpoint -q /mnt/disk || umount /mnt/disk
far_ip=10.9.1.1
card_begins $far_ip nvme0
insert peerdma_rdma
around=65536

# The host compares with this drive.
elements=1200001 bytes=4800004
image make /mnt/data/a $elements 17 7
raw=$(nvme_disk nvme2)
dd if=/mnt/data/a of="$raw" bs=1M conv=fsync status=none
exports
# reads CODEC BITS
reads() {
	local controller disk said json place before packed=$((elements * $2 / 8))
	same "$1: a view" '' "$(image publish $socket tokens $'file = /mnt/data/a\ncodec = '"$1"$'\nhost = '$me)"
	published "$1: is published" tokens
	controller=$(to "$soon" tokens $me) || bail "no connection"
	disk=$(disk_of ${prefix}tokens) || bail "no disk"
	said=$(peerdma explain "$disk")
	check "$1: the kernel's rules allow it" grep -q "^reason *NONE" <<<"$said"
	check "$1: explain says what it is" grep -q "a view: u32 in $2 bits, $elements elements, reduced by the storage" <<<"$said"
	record_anew "$card"
	before=$(host_bytes)
	json=$(view_read tokens "$disk" 3 $((1 << 18)) "host fill gpu0 %AT %LEN pattern:9 %AT") || diag "$json"
	# value KEY
	value() { sed -n "s/.*\"$1\": \"*\([^,\"}]*\).*/\1/p" <<<"$json"; }
	same "$1: whole, reduced by the storage, widened by the GPU" "$elements storage gpu" "$(value elements) $(value reduced_by) $(value widened_by)"
	same "$1: all direct" "$(value bytes_read) 0" "$(value bytes_direct) $(value bytes_host)"
	check "$1: as many bytes as it has" [ "$(value bytes_read)" -ge $packed ]
	check "$1: and little more" [ "$(value bytes_read)" -le $((packed + 65536)) ]
	same "$1: nothing by way of the host, says the module" "$before" "$(host_bytes)"
	check "$1: at the GPU, by the card's record" [ "$(recorded "$card" | cut -d' ' -f1)" -ge $packed ]
	place=$(value bar_offset)
	check "$1: each element" host compare gpu0 "$place" $bytes disk2 0
	check "$1: nothing before them" host compare gpu0 $((place - around)) $around pattern:9 $((place - around))
	check "$1: nor behind" host compare gpu0 $((place + bytes)) $around pattern:9 $((place + bytes))
	disconnect "$controller"
	check "$1: the disk goes" soon 20 fails test -b "$disk"
	same "$1: withdrawn" '' "$(image withdraw $socket tokens)"
}
reads u32:17 17
reads u32:24 24
ends "the service ends"
same "and leaves no port and no host" '' "$(find "$nvmet/ports" "$nvmet/hosts" -mindepth 1)"
dd if=/dev/zero of="$raw" bs=1M count=6 conv=fsync status=none
rmmod peerdma_rdma
cards_end
check "the driver is free" rmmod ublk_drv
plan $tap_n
