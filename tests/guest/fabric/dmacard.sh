#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A PCI function's DMA engine moves bytes between a GPU's BAR and host memory, at any offset, of any length and in many pieces, by bus
# address, host bridge and IOVA; it goes while it does. tests/kmod/dmacard.h: what an RDMA card of the lab will move its bytes by.
# group: rdma
# topologies: switch rp rp-vtd
# variants: plain
# long: plain
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(pci_of 0x1af4:0x1110)
card=$(nvme_bdf) # the drive, whose last blocks are scratch
pci=/sys/bus/pci
bar=$(awk 'NR == 3 { print $1 }' "$pci/devices/$gpu/resource")
copy=/sys/kernel/debug/dmacard-$card/copy
begin() {
	echo dmacard >"$pci/devices/$card/driver_override"
	echo "$card" >$pci/drivers_probe
	[ -e $copy ]
}
moves() { echo "$1 $(printf %x $((bar + $2))) $3 $4 $5" >$copy; }

modprobe -d "$LAB_KERNEL" ib_core && insmod "$(dirname "$LAB_MODULE")/kmod/dmacard.ko" || bail "dmacard.ko"
[ ! -e "$pci/devices/$card/driver" ] || echo "$card" >"$pci/devices/$card/driver/unbind"
check "it takes the drive's function" begin

# From one place of the GPU into host memory, and from there to another: offset in a page, bytes, bytes of a piece of host memory.
from=65536 to=8388608 seed=0
for of in 0 3 513; do
	for what in "1 1" "64 64" "511 7" "513 513" "4096 4096" "8191 100" "262145 65536" "1048576 1048576" "1048576 1000"; do
		read -r bytes piece <<<"$what"
		seed=$((seed + 1))
		name="$bytes bytes at $of, pieces of $piece"
		host fill gpu0 $from $((bytes + 8192)) pattern:$seed >/dev/null
		host fill gpu0 $to $((bytes + 8192)) byte:165 >/dev/null
		[ "$LAB_TOPOLOGY" = rp-vtd ] || host dma-mark >/dev/null
		check "$name: from the GPU" moves from $((from + of)) $((seed * 11)) "$bytes" "$piece"
		check "$name: to the GPU" moves to $((to + of)) $((seed * 11)) "$bytes" "$piece"
		# By the record of QEMU. With an IOMMU it has other addresses.
		[ "$LAB_TOPOLOGY" = rp-vtd ] ||
			same "$name: the function has moved them" "ok gpu0 $((2 * bytes))" "$(host dma | cut -d' ' -f1-3)"
		check "$name: they are there" host compare gpu0 $((to + of)) "$bytes" pattern:$seed $of
		check "$name: nothing before" host compare gpu0 $to $of byte:165
		check "$name: nothing behind" host compare gpu0 $((to + of + bytes)) 4096 byte:165
	done
done

# How long one copy takes. It says why this is the card's engine: Documentation/fabrics.md.
for bytes in 4000 1048576; do
	times=()
	for _ in {1..9}; do
		began=${EPOCHREALTIME/./}
		moves from 0 0 $bytes 1048576
		times+=($((${EPOCHREALTIME/./} - began)))
	done
	mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
	diag "NVMe controller: $bytes bytes in ${times[4]} us, median of 9, ${times[0]} to ${times[8]}"
done

check "nonsense is refused" sh -c "! echo to 0 0 0 1 >$copy 2>/dev/null && ! echo from 0 2097152 1 1 >$copy 2>/dev/null"

each_copies() { [ "$(sort -u /tmp/copies 2>/dev/null | wc -l)" = 3 ]; }
# It goes while it copies: who waits has an error, and nothing hangs.
for round in 1 2 3; do
	[ $round = 1 ] || begin || bail "it does not come back"
	rm -f /tmp/copies
	for at in 0 1 2; do
		(while moves to $((to + at * 1048576)) 0 1048576 1000 2>/dev/null; do echo $at >>/tmp/copies; done) &
	done
	soon 20 each_copies || not_ok "round $round: copies are under way"
	echo "$card" >$pci/drivers/dmacard/unbind
	wait
	check "round $round: it goes, and so do those who copy" [ ! -e $copy ]
done
echo >"$pci/devices/$card/driver_override"
check "it can be removed" rmmod dmacard
echo "$card" >$pci/drivers_probe
check "the drive is back" soon 20 nvme_disk
plan $tap_n
