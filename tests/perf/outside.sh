#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The cost of wait_outside: CPU seconds of a counting guest (qemu/lab.py --count), where a nanosecond is an instruction.
# 20 processes each write 1 MiB, to a new file and into existing blocks.
# topologies: switch
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"

TIMEFORMAT='%U %S'
parameter=/sys/module/peerdma/parameters/wait_outside
publish
mount_disk
mib=1048576
# spent FRESH: user and system time
spent() {
	time for _ in {1..20}; do
		if [ "$1" = new ]; then rm -f /mnt/disk/extended; fi
		pdio write /mnt/disk/extended 0 $mib 0 >/tmp/written
	done
}
for value in 0 1 0 1; do
	echo $value >$parameter
	for kind in new old; do
		took=$({ spent $kind; } 2>&1)
		ok "wait_outside=$value, $kind blocks: $took s of 20 processes ($(cut -d' ' -f1-6 /tmp/written))"
	done
done
plan $tap_n
