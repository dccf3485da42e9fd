#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd with a drive that stops answering: views of other files are read and published, its own is withdrawn, and the service
# ends, while reads of the drive wait. Once it answers all is as before.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_BLK_DEV_DM zstd
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

make_drive 64
image make /mnt/data/tokens 4000000 17 3
zstd -q -3 /mnt/data/tokens -o /mnt/data/tokens.zst
cp /mnt/data/tokens /mnt/data/tokens.zst /run/files/
cp /mnt/data/tokens /run/files/later
blocks=$(((4000000 * 17 / 8 + 4095) / 4096))
whole_of() { same "$1" "$blocks 0 -1 0" "$(timeout 60 "$LAB_ROOT/tests/guest/view/image.py" survey "$(field "$2" device)" /mnt/data/tokens)"; }
compressed=$'codec = u32\ncompressed = yes'
publish_of() { same "$1: a view" '' "$(timeout 20 "$LAB_ROOT/tests/guest/view/image.py" publish $socket "$1" "file = $2"$'\n'"${3:-codec = u32}")"; }
withdrawn() { same "$1 is withdrawn" '' "$(timeout 20 "$LAB_ROOT/tests/guest/view/image.py" withdraw $socket "$1")"; }

begin
# Without what is prefetched when the kernel looks for partitions.
publish_of silent /run/files/tokens $'codec = u32\nprefetch = no'
publish_of silent-zst /run/files/tokens.zst "$compressed"$'\nprefetch = no'
publish_of other /mnt/data/tokens
publish_of other-zst /mnt/data/tokens.zst "$compressed"
for view in silent silent-zst other other-zst; do published "$view: is published" $view; done
silent=$(field silent device)

# To open it reads no metadata then.
exec 7</run/files/later
cold
dmsetup suspend --noflush --nolockfs drive
# More reads than there are threads. The first one is of two chunks.
readers=() readers_of_silent=()
has_come() { [ "$(field "$1" reads)" -gt "$2" ]; }
for chunk in 2 4 5 6; do
	for view in silent silent-zst; do
		reads=$(field $view reads)
		dd if="$(field $view device)" of=/dev/null bs=64k count=1 skip=$((chunk * 16)) iflag=direct status=none 2>/dev/null &
		if [ $view = silent ]; then readers_of_silent+=($!); else readers+=($!); fi
		soon 20 has_come $view "$reads" || not_ok "a read has come"
	done
done
sleep 2 # until the threads that read the drive are late
whole_of "a view of other files is read" other
whole_of "so is a compressed one" other-zst
publish_of scanned /run/files/later
publish_of new /mnt/data/tokens
published "one of other files is published meanwhile" new
same "one of the drive is not" scanning "$(field scanned state)"

withdrawn silent
check "its device is gone" fails test -b "$silent"
same "it has not ended" ending "$(field silent state)"
same "and says why" "withdrawn, but not ended yet: a read of its files has not been answered" "$(field silent error)"
ended=0
for reader in "${readers_of_silent[@]}"; do wait "$reader" || ended=$((ended + 1)); done
same "its reads have failed" 4 $ended
withdrawn scanned
same "nor has the one that is scanned" ending "$(field scanned state)"
whole_of "the other view is read" other

kill -TERM $service
check "the service ends" soon 30 fails kill -0 $service
wait $service
same "in order" 0 $?
ended=0
for reader in "${readers[@]}"; do wait "$reader" || ended=$((ended + 1)); done
same "the other reads have failed" 4 $ended
begin
published "it publishes what is not on the drive" other
same "what is on it waits" scanning "$(field silent-zst state)"

dmsetup resume drive
exec 7<&-
published "until the drive answers" silent-zst
whole_of "each element is there" silent-zst
publish_of silent /run/files/tokens
published "the one that was withdrawn is published again" silent
whole_of "with each element" silent
ends "it ends"
plan $tap_n
