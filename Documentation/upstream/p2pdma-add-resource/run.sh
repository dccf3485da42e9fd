#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh 0000:01:00.0 p2pnth.ko [page-tables]: as root, on a device that nothing needs and whose BAR 2 is memory, with
# debugfs mounted. page-tables: allocations of page tables of the kernel's own mapping fail as well, which it does not
# survive (../x86-alloc-low-pages).
set -eu
dev=$1
sys=/sys/bus/pci/devices/$dev
debug=/sys/kernel/debug

for fault in failslab fail_page_alloc; do
	echo 0 >$debug/$fault/verbose
	echo N >$debug/$fault/ignore-gfp-wait
done
echo 0 >$debug/fail_page_alloc/min-order
if [ "${3:-}" != page-tables ]; then
	start=$(awk '$3 == "alloc_low_pages" { print $1; exit }' /proc/kallsyms)
	end=$(awk -v s="x$start" '"x" $1 > s && (e == "" || "x" $1 < e) { e = "x" $1 } END { print substr(e, 2) }' /proc/kallsyms)
	echo "0x$start" >$debug/fail_page_alloc/reject-start
	echo "0x$end" >$debug/fail_page_alloc/reject-end
fi
insmod "$2"
[ ! -e "$sys/driver" ] || echo "$dev" >"$sys/driver/unbind"
echo p2pnth >"$sys/driver_override"
nth=0
reached=Y
while [ $reached = Y ]; do
	nth=$((nth + 1))
	echo $nth >/sys/module/p2pnth/parameters/nth
	echo "$dev" >/sys/bus/pci/drivers/p2pnth/bind 2>/dev/null || true
	[ ! -e "$sys/driver" ] || echo "$dev" >"$sys/driver/unbind"
	reached=$(cat /sys/module/p2pnth/parameters/reached)
done
rmmod p2pnth
echo "$((nth - 1)) allocations were made to fail"
dmesg | grep -A 80 'BUG: KASAN' || echo "KASAN found nothing"
