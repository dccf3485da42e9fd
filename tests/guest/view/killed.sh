#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd killed at any time: while it scans, makes devices, takes over those that were left, or removes them. The next one has
# each view with the right elements, and no device besides.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK
# timeout: 400
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

views=8 kills=24
definitions=/run/views.d
mkdir $definitions
for ((i = 0; i < views; i++)); do
	image make /mnt/data/$i $((30000 + i)) 17 $i
	printf '%s\n' "file = /mnt/data/$i" 'codec = u32' >$definitions/v$i.conf
done
# devices: how many there are
devices() { find /sys/class/ublk-char -mindepth 1 2>/dev/null | wc -l; }
start() {
	"$LAB_BUILD/bin/peerdma-viewd" --folder /run/views --socket $socket --threads 2 --conf-dir $definitions &
	service=$!
}
most=0
for ((i = 0; i < kills; i++)); do
	start
	# Two at a time are withdrawn, and defined again the next time.
	mv $definitions/v$((i % views)).conf $definitions/v$(((i + 1) % views)).conf /run/ 2>/dev/null
	sleep $((i / 8)).$((i % 8))
	kill -HUP $service
	sleep 0.$((i % 5))
	kill -KILL $service
	wait $service 2>/dev/null
	mv /run/v*.conf $definitions/
	now=$(devices)
	[ "$now" -le "$most" ] || most=$now
done
diag "at most $most devices were left"
check "devices were left" [ "$most" -gt 0 ]
begin --conf-dir $definitions
for ((i = 0; i < views; i++)); do published "view $i" v$i; done
same "no device besides" $views "$(devices)"
for ((i = 0; i < views; i++)); do check "elements of view $i" image compare "$(field v$i device)" /mnt/data/$i; done
kill -KILL $service
wait $service 2>/dev/null
mv $definitions /run/aside
touch $definitions
begin --conf-dir $definitions
same "no device goes while the definitions cannot be read" $views "$(devices)"
rm $definitions
mv /run/aside $definitions
kill -HUP $service
for ((i = 0; i < views; i++)); do published "view $i is taken over" v$i; done
same "no device besides" $views "$(devices)"
ends "it ends"
same "no device is left" 0 "$(devices)"
check "the driver is free" rmmod ublk_drv
plan $tap_n
