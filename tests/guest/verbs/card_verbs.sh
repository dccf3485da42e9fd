#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GPU memory to GPU memory by RDMA verbs through a network card whose own DMA engine moves the bytes: the same program as with soft-RoCE
# (verbs.cpp), here by regions of dma-bufs, which the card stops using when their memory is taken away. Then a process is killed, the link
# goes and the card does, under work requests. paths: between two GPUs. rp-intel: refused.
# group: rdma
# topologies: switch rp rp-vtd rp-intel paths
# variants: plain debug
# needs: rdma
# tier: all
# timeout: 300
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
	post 4796
	check "$1: work requests are under way" soon 60 [ -s /tmp/busy ]
	"${@:2}" &
	going=$!
	check "$1: it does not wait for the programs" soon 30 ended $going
	check "$1: one still has it open" kill -0 $idle
	check "$1: who posts learns of it" soon 30 ended $busy
	kill -9 $idle $serving 2>/dev/null
	wait $idle $serving $busy $going 2>/dev/null
	all_back "$1"
}
unbound() { echo "$card" >/sys/bus/pci/drivers/dmacard/unbind; }
# pulled: the driver finds that the function is gone, which ends no copy any more
pulled() { insmod "$(dirname "$LAB_MODULE")/kmod/pcievent.ko" bdf="$card" event=pull && rmmod pcievent; }
card_comes() {
	echo "$card" >/sys/bus/pci/drivers_probe
	ip addr add 10.9.1.1/24 dev card0
	ip link set card0 up
}

# By WRITE, READ and SEND.
bytes=$((3 * (1 + 100 + 4095 + 4096 + 4097 + 70001 + 1048577 + (64 << 20)) + 100))
if [ "$LAB_TOPOLOGY" = rp-intel ]; then
	relay verbs refused dmacard0 DISTANCE "$([ "$LAB_K" = "$LAB_OLDEST" ] && echo no || echo yes)"
	check "the kernel's log says why" grep -q "$card cannot import buffer.*knows no PCI route" <(dmesg)
elif [ "$LAB_TOPOLOGY" = paths ]; then
	other=$(pci_of 0x1af4:0x1110 1)
	peerdma publish "$other" >/dev/null || bail "the second GPU"
	host dma-mark >/dev/null
	asked move "$other" gpu1
	# Each byte was read at one GPU and written at the other.
	same "the function has moved them" "ok gpu0 $bytes" "$(host dma | cut -d' ' -f1-3)"
	asked break "$other" gpu1
	peerdma unpublish "$other" >/dev/null
else
	[ "$LAB_TOPOLOGY" = rp-vtd ] || host dma-mark >/dev/null
	asked move
	bytes=$((2 * bytes)) # each was read and written at the same GPU
	[ "$LAB_TOPOLOGY" = rp-vtd ] || same "the function has moved them" "ok gpu0 $bytes" "$(host dma | cut -d' ' -f1-3)"
	asked break
	one_killed
	killed "both ends are killed"
	link_goes
	for way in unbound pulled; do
		card_goes "the card goes, $way" $way
		card_comes
		killed "the card has come again, $way"
	done
fi
umount /etc/libibverbs.d
cards_end
plan $tap_n
