#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# RDMA by the lab's card into and out of a dma-buf whose owner, a stand-in GPU driver (tests/kmod/expstand.c), moves it to another place
# of the GPU and goes on (moving.cpp): between requests and under them. The card maps it anew, and reaches no place that was left.
# group: rdma
# topologies: switch rp
# variants: plain debug
# needs: rdma
# tier: all
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/foreign.sh"

afresh # no driver has the GPU
modprobe -d "$LAB_KERNEL" ib_uverbs || bail "no ib_uverbs"
ip link set lo up
card_begins 10.9.1.1
few_drivers
insmod "$modules/kmod/expstand.ko" publish=0 && bind_to expstand && [ -e "/sys/bus/pci/drivers/expstand/$GPU" ] || bail "the stand-in has no GPU"

host dma-mark >/dev/null
relay moving dmacard0
check "by the function's own DMA" grep -q '^ok gpu0 [1-9]' <(host dma)
same "nothing is attached, pinned or mapped any more, and no call was wrong" "0 0 0 0" \
	"$(cd /sys/kernel/debug/expstand && cat attached pinned mapped wrong | paste -sd ' ')"
umount /etc/libibverbs.d
check "the stand-in goes" soon 5 rmmod expstand
afresh
cards_end
plan $tap_n
