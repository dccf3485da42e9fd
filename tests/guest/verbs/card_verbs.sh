#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GPU memory to GPU memory by RDMA verbs through a network card whose own DMA engine moves the bytes: the same program as with soft-RoCE
# (verbs.cpp), here by regions of dma-bufs, which the card stops using when their memory is taken away. Then a process is killed, the link
# goes and the card does, under work requests. paths: between two GPUs, and a second card that does not reach them: refused, as on rp-intel.
# group: rdma
# topologies: switch rp rp-vtd rp-intel paths
# variants: plain debug
# needs: rdma
# tier: all
# timeout: 400
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/verbs_ends.sh"

publish
what_returns
modprobe -d "$LAB_KERNEL" ib_uverbs || bail "no ib_uverbs"
ip link set lo up
card_begins 10.9.1.1
verbs_device=dmacard0 verbs_netdev=card0
few_drivers

# card_goes DESCRIPTION COMMAND...: under work requests. The kernel takes it from the programs that have it open, one of which does
# nothing.
card_goes() {
	local idle serving busy going
	verbs serve 4797 dmacard0 &
	idle=$!
	verbs serve 4796 dmacard0 &
	serving=$!
	post 4796 "$1"
	"${@:2}" &
	going=$!
	check "$1: it does not wait for the programs" soon 30 ended $going
	check "$1: one still has it open" kill -0 $idle
	check "$1: who posts learns of it" soon 30 ended $busy
	wait $going
	same "$1: it does happen" 0 $?
	kill -9 $idle $serving 2>/dev/null
	wait $idle $serving $busy 2>/dev/null
	all_back "$1"
}
unbound() { echo "$card" >/sys/bus/pci/drivers/dmacard/unbind; }
# pulled: the driver finds that the function is gone, which ends no copy any more
pulled() { insmod "$(dirname "$LAB_MODULE")/kmod/pcievent.ko" bdf="$card" event=pull && rmmod pcievent; }
# pulled_meanwhile: the same while an unbind waits for a copy. It waits while QEMU has the copy's command, and 5 s at most (ABSENT_POLLS).
pulled_meanwhile() {
	local unbinding pulling='' early=''
	throttle 1024 # a copy under way does not end
	sleep 1
	unbound &
	unbinding=$!
	sleep 1
	if ! ended $unbinding; then
		pulled &
		pulling=$!
		soon 10 [ -e /sys/module/pcievent ]
		sleep 3
		! ended $unbinding || early=yes
	fi
	throttle 0 # QEMU completes what it has begun
	wait $unbinding && [ -n "$pulling" ] && wait "$pulling" && [ -z "$early" ]
}
card_comes() {
	echo "$card" >/sys/bus/pci/drivers_probe
	ip addr add 10.9.1.1/24 dev card0
	ip link set card0 up
}

# refused DEVICE: no region of the GPU's memory for the last card, which is this device
refused() {
	relay verbs refused "$1" DISTANCE "$(lacks rdma-on-demand && echo no || echo yes)"
	check "$1: the kernel's log says why" grep -q "$card cannot import buffer.*knows no PCI route" <(dmesg)
}

# By WRITE, READ and SEND; then up to the region's end, and by WRITE and READ a page of a region that begins inside one.
bytes=$((3 * (1 + 100 + 4095 + 4096 + 4097 + 70001 + 1048577 + (64 << 20)) + 100 + 2 * 4096))
if [ "$LAB_TOPOLOGY" = rp-intel ]; then
	refused dmacard0
elif [ "$LAB_TOPOLOGY" = paths ]; then
	other=$(pci_of 0x1af4:0x1110 1)
	peerdma publish "$other" >/dev/null || bail "the second GPU"
	host dma-mark >/dev/null
	asked move "$other" gpu1
	# Each byte was read at one GPU and written at the other.
	same "the function has moved them" "ok gpu0 $bytes" "$(host dma | cut -d' ' -f1-3)"
	asked break "$other" gpu1
	peerdma unpublish "$other" >/dev/null
	publish
	card_begins 10.9.2.1 nvme1
	refused dmacard1
else
	record_anew "$card"
	host dma-mark >/dev/null
	asked move
	bytes=$((2 * bytes)) # each was read and written at the same GPU
	if [ "$LAB_TOPOLOGY" = rp-vtd ]; then
		read -r at_bar elsewhere < <(recorded "$card" all "" first)
		same "the IOMMU: the card was told none of the GPU's own addresses" 0 "$at_bar"
		check "the IOMMU: it was told others, for $elsewhere bytes" [ "$elsewhere" -ge $((64 << 20)) ]
	else
		same "the function has moved them" "ok gpu0 $bytes" "$(host dma | cut -d' ' -f1-3)"
	fi
	asked break
	one_killed
	killed "both ends are killed"
	link_goes
	for way in unbound pulled pulled_meanwhile; do
		card_goes "the card goes, ${way//_/ }" $way
		card_comes
		killed "the card has come again, ${way//_/ }"
	done
fi
umount /etc/libibverbs.d
cards_end
plan $tap_n
