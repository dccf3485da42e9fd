#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 1,000 views: all are published, by files and SIGHUP; each has its elements; all are withdrawn. No kernel of the lab
# has the limit of 64 devices for root any more (Linux 6.15, and 6.12 by its stable releases).
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: plain
# needs: CONFIG_BLK_DEV_UBLK
# timeout: 2400
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

definitions=/run/views.d
mkdir $definitions
# in_state STATE: how many views are, when list was called last
in_state() { awk -v state="$1" 'NR > 1 && $2 == state' /run/list | wc -l; }
list() { peerdma view ls --socket $socket >/run/list; }
# settled NUMBER: so many views are there, none is being scanned. It does not ask often, as asking takes longer than publishing
settled() {
	sleep 3
	list && [ "$(in_state scanning)" = 0 ] && [ "$(wc -l </run/list)" = $(($1 + 1)) ]
}

for i in 0 1 2 3 4 5 6 7 8 9; do
	image make /mnt/data/$i 1001 17 "$i"
done
none() { sleep 1; ! compgen -G '/dev/ublkb*' >/dev/null; }
# add BEGIN END: definitions, each of one of the ten files
add() { for ((i = $1; i < $2; i++)); do printf 'file = /mnt/data/%s\ncodec = u32\n' $((i / 100)) >$definitions/v$i.conf; done; }
begin --conf-dir $definitions
add 0 70
kill -HUP $service
check "70 views are scanned" soon 200 settled 70
same "all are published" 70 "$(in_state published)"
add 70 1000
kill -HUP $service
check "1,000 views are scanned" soon 800 settled 1000
same "all are published" 1000 "$(in_state published)"
# of_files: the device of each view, and its file
of_files() { awk 'NR > 1 { print $5, "/mnt/data/" int(substr($1, 2) / 100) }' /run/list; }
same "each is of its file" 1000 "$(of_files | image each)"
rm -r $definitions
kill -HUP $service
check "withdrawn, they are gone" soon 1000 none
same "the service has none" "no view is published" "$(peerdma view ls --socket $socket)"
ends "it ends"
check "the driver is free" rmmod ublk_drv
plan $tap_n
