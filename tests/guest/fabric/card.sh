#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe over RDMA by a network card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h), both ends in this guest. No
# parameter: the verdict follows the kernel's rules, and the function, not the CPU, moves bytes between the GPU and the target's memory.
# group: rdma
# topologies: switch rp rp-vtd rp-intel
# variants: plain debug
# long: debug
# needs: rdma
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

kernel_has nvmet nvmet-rdma nvme-rdma
publish
ip=10.9.1.1

modprobe -d "$LAB_KERNEL" ib_uverbs
card_begins $ip
# The target's blocks are in host memory.
memory_drive far 64
far=/dev/far
target far "$far"
port 1 far rdma ipv4 $ip
# Without an answer for so long, as the card is slow in what follows.
controller=$(connect "$patient,keep_alive_tmo=60,transport=rdma,traddr=$ip,trsvcid=4421,nqn=far") || bail "no connection"
disk=$(disk_of far) || bail "no disk"
pattern fill "$disk" 0 $mib pattern:3
blockdev --flushbufs "$disk"
check "host memory: written and read" pattern compare "$disk" 0 $mib pattern:3
check "host memory: the target has it" pattern compare "$far" 0 $mib pattern:3
insert peerdma_rdma
reason=$(verdict "$disk" reason)
# refused DESCRIPTION REASON NUMBER: the verdict, and requests, of which the card moves nothing
refused() {
	local way
	same "$1" "$2" "$reason"
	record_anew "$card"
	for way in read write; do
		same "$1: a $way" "$EXDEV $3 0" "$(pdio $way "$disk" 0 4096 0 | cut -d' ' -f1-3)"
	done
	same "$1: nothing at the GPU, by the card" "0 0" "$(at_gpu "$card")"
	blockdev --flushbufs "$disk"
	check "$1: the drive is as before" pattern compare "$disk" 0 $mib pattern:3
}
if lacks nvme-rdma-p2p; then
	refused "nvme-rdma does not announce peer-to-peer DMA" QUEUE 33
elif [ "$LAB_TOPOLOGY" = rp-intel ]; then
	refused "the host bridge is not trusted" DISTANCE 34
else
	same "the kernel's rules allow it" NONE "$reason"
	case $LAB_TOPOLOGY in
	switch) map="bus address" ;;
	rp) map="host bridge" ;;
	rp-vtd) map=iova ;;
	esac
	same "by that mapping" "$map" "$(verdict "$disk" mapping)"
	for len in 4096 65536 $mib $((4 * mib)); do
		[ "$LAB_TOPOLOGY" = rp-vtd ] || host dma-mark >/dev/null
		moves "$len bytes" "$disk" $((8 * mib)) "$len"
		[ "$LAB_TOPOLOGY" = rp-vtd ] ||
			same "$len bytes: the function has moved them" "ok gpu0 $((2 * len))" "$(host dma | cut -d' ' -f1-3)"
		record_anew "$card"
		same "$len bytes: a read" "$(straight "$len") 0" "$(pdio read "$disk" $((8 * mib)) "$len" 0)"
		there="0 $len"
		[ "$LAB_TOPOLOGY" != rp-vtd ] || there="0 0" # whose addresses are IOVAs
		same "$len bytes: read and written at the BAR's own addresses" "$there" "$(at_gpu "$card")"
		round_trip "$len bytes" "$disk" $((8 * mib)) "$len"
	done
	# One request, so that no address is mapped twice.
	same "a read: the function writes where the kernel has mapped the GPU's memory for it" "$(straight 65536) 0"$'\n'"0 65536 65536" \
		"$(at_mapped "$card" pdio read "$disk" $((8 * mib)) 65536 0)"
	same "a write: the function reads where the kernel has mapped the GPU's memory for it" "$(straight 65536) 0"$'\n'"65536 0 65536" \
		"$(at_mapped "$card" pdio write "$disk" $((8 * mib)) 65536 0 65536 "host fill gpu0 %AT 65536 pattern:7")"
	blockdev --flushbufs "$far"
	check "a write: the target has it" pattern compare "$far" $((8 * mib)) 65536 pattern:7
	# By bus address: card_ways. Here DMA to what is unmapped is a fault of the IOMMU, which the lab reports.
	if [ "$LAB_TOPOLOGY" = rp-vtd ]; then
		same "the IOMMU forgets an address when it is unmapped" DMA "$(cat "/sys/bus/pci/devices/$card/iommu_group/type")"
		taken_twice "behind the IOMMU" "$disk" disk0 $((2 * mib)) "$far"
		moves "behind the IOMMU, the GPU is published again" "$disk" 0 65536
	fi
fi
disconnect "$controller"
check "the controller goes" soon 20 no_controller "$controller"
no_targets
no_memory_drive far
rmmod peerdma_rdma
cards_end
plan $tap_n
