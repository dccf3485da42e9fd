#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd in this guest: its devices have the files' elements, exactly; what does not fit or has changed is an error at its
# place; a service that was killed goes on with the same devices and the requests that it had.
# group: view
# topologies: switch
# variants: plain
# needs: CONFIG_BLK_DEV_UBLK
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

. "$LAB_ROOT/tests/guest/view.sh"

image make /mnt/data/a 300001 17 1
image make /mnt/data/b 99999 17 2
begin
same "a view is published" '' "$(image publish $socket tokens $'file = /mnt/data/a\nfile = /mnt/data/b\ncodec = u32')"
published "after a scan" tokens
same "its bits are found" u32:17 "$(field tokens codec)"
device=$(field tokens device)
check "each element is there" image compare "$device" /mnt/data/a /mnt/data/b
same "nothing failed" 0 "$(field tokens failed_reads)"
check "it cannot be written" fails dd if=/dev/zero of="$device" bs=4096 count=1 conv=notrunc status=none

same "a value that does not fit" '' "$(image publish $socket narrow $'file = /mnt/data/a\ncodec = u32:u16')"
check "fails its view" soon 20 is narrow state failed
case $(field narrow error) in
"/mnt/data/a: element "*", which does not fit into u32:u16") ok "and is named" ;;
*) not_ok "and is named"; diag "$(field narrow error)" ;;
esac
same "it can be withdrawn" '' "$(image withdraw $socket narrow)"

# Requests that were sent before the service died, and while there is none.
blockdev --flushbufs "$device"
kill -STOP $service
dd if="$device" of=/run/early bs=64k iflag=direct status=none &
early=$!
soon 20 waits $early || not_ok "a read is under way"
kill -KILL $service
wait $service 2>/dev/null
dd if="$device" of=/run/late bs=64k iflag=direct status=none &
late=$!
soon 20 waits $late || not_ok "another is under way"
begin
published "killed, it comes back" tokens
same "with the same device" "$device" "$(field tokens device)"
wait $early
same "a read of before ends" 0 $?
wait $late
same "and one that began meanwhile" 0 $?
check "with what is there" cmp /run/early "$device"
check "both" cmp /run/late "$device"
check "which is right" image compare "$device" /mnt/data/a /mnt/data/b

printf x | dd of=/mnt/data/b bs=1 seek=1000 conv=notrunc status=none
blockdev --flushbufs "$device"
check "the header can be read" dd if="$device" of=/dev/null bs=4096 count=1 iflag=direct status=none
check "a changed file cannot" fails dd if="$device" of=/dev/null bs=64k iflag=direct status=none
same "it is named" "/mnt/data/b: changed after it was published" "$(field tokens last_fault)"

ends "it ends"
check "and its device with it" fails test -b "$device"
check "the driver is free" rmmod ublk_drv
plan $tap_n
