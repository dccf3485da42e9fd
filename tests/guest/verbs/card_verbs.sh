#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GPU memory to GPU memory by RDMA verbs through a network card whose own DMA engine moves the bytes: the same program as with soft-RoCE
# (verbs.cpp), here by regions of dma-bufs, which the card stops using when their memory is taken away. rp-intel: refused.
# group: rdma
# topologies: switch rp rp-vtd rp-intel
# variants: plain debug
# needs: rdma
# tier: all
# timeout: 240
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
gpu=$(gpu_bdf)
modprobe -d "$LAB_KERNEL" ib_uverbs || bail "no ib_uverbs"
ip link set lo up
card_begins 10.9.1.1
few_drivers
if [ "$LAB_TOPOLOGY" = rp-intel ]; then
	relay verbs refused dmacard0 NONE "$([ "$LAB_K" = "$LAB_OLDEST" ] && echo no || echo yes)"
	check "the kernel's log says why" grep -q "$card cannot import buffer.*knows no PCI route" <(dmesg)
else
	host dma-mark >/dev/null
	verbs serve 4791 dmacard0 &
	relay verbs ask 127.0.0.1 4791 dmacard0 "$gpu" gpu0
	wait $! || not_ok "the other end"
	# Each byte that went from the GPU to the GPU was read there and written there.
	moved=$(host dma | awk '{ print $3 }')
	diag "bytes at the GPU, of DMA: $moved"
	[ "$LAB_TOPOLOGY" = rp-vtd ] || check "the function has moved them" [ "$moved" -ge $((3 * 2 * 64 << 20)) ]
fi
umount /etc/libibverbs.d
card_ends
plan $tap_n
