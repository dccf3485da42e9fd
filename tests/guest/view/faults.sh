#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What happens to the files of a view that peerdma-viewd serves: cut, replaced, grown, unreadable in the middle, other values. Reads fail
# at the place, with a name for it; each element that comes is right.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_BLK_DEV_DM
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

make_drive 64
survey() { image survey "$(field "$1" device)" "${@:2}"; }

# --- What changes after it was published: a view of two files, of which the second one does.
image make /mnt/data/first 500001 17 1
image make /mnt/data/second 50001 17 2
cat /mnt/data/first /mnt/data/second >/mnt/data/both
image make /mnt/data/large 1200000 17 3
begin
for how in cut grown replaced written removed; do
	cp /mnt/data/second /mnt/data/victim
	same "$how: a view" '' "$(image publish $socket $how $'file = /mnt/data/first\nfile = /mnt/data/victim\ncodec = u32')"
	published "$how: is published" $how
	case $how in
	cut) truncate -s 100000 /mnt/data/victim ;;
	grown) printf x >>/mnt/data/victim ;;
	replaced) cp /mnt/data/second /mnt/data/other && mv /mnt/data/other /mnt/data/victim ;;
	written) printf x | dd of=/mnt/data/victim bs=1 seek=4000 conv=notrunc status=none ;;
	removed) rm /mnt/data/victim ;;
	esac
	# Of 286 blocks of 4 KiB, the second file has elements in those of the second MiB only.
	same "$how: the first MiB is there, that of the second file is not" "256 30 $((256 * 4096 * 8 / 17)) 550001" \
		"$(survey $how /mnt/data/both ENODATA)"
	same "$how: it is named, with the place" $'/mnt/data/victim: changed after it was published\n/mnt/data/victim\nTrue' \
		"$(field $how last_fault fault_file stale)"
	same "$how: it can be withdrawn" '' "$(image withdraw $socket $how)"
done

# --- A file that changes while it is read: each element that comes is that of before. 100 blocks are read before the change. Of the first
# MiB, which is loaded by then, the rest may come or fail; the second one is loaded while cp(1) writes or afterwards.
cp /mnt/data/both /mnt/data/victim
same "one that changes under reads: a view" '' "$(image publish $socket changing $'file = /mnt/data/victim\ncodec = u32\nprefetch = no')"
published "changes under reads: is published" changing
survey changing /mnt/data/both ENODATA /mnt/data/victim >/run/surveyed &
reader=$!
has_come() { [ "$(field "$1" reads)" -gt "$2" ]; }
check "changes under reads: they are under way" soon 20 has_come changing 50
cp /mnt/data/large /mnt/data/victim
wait $reader
same "changes under reads: each element that came is right" 0 $?
read -r came failed _ </run/surveyed
check "changes under reads: what was read before came, the second MiB failed ($came, $failed)" \
	[ "$came" -ge 100 -a "$failed" -ge 30 -a $((came + failed)) = 286 ]
same "changes under reads: it can be withdrawn" '' "$(image withdraw $socket changing)"

# --- A value that does not fit, by a mapping, whose first store sets the file's times and no other does on tmpfs.
cp /mnt/data/large /mnt/data/victim
mkfifo /run/to_poker /run/from_poker
image poke /mnt/data/victim 700001 </run/to_poker >/run/from_poker &
poker=$!
exec 8>/run/to_poker 9</run/from_poker
poke() { echo "$1" >&8 && read -r _ <&9; }
read -r _ <&9
same "a larger view" '' "$(image publish $socket poked $'file = /mnt/data/victim\ncodec = u32')"
published "is published" poked
poke 131072
read -r came failed first last <<<"$(survey poked /mnt/data/large ENODATA)"
same "a value that does not fit: its MiB fails" 256 "$failed"
check "the rest is right" [ "$came" = $(((1200000 * 17 / 8 + 4095) / 4096 - 256)) ]
check "its place is within what failed" [ "$first" -le 700001 -a "$last" -ge 700001 ]
same "file, element and value are named" $'/mnt/data/victim: element 700001 is 131072, which does not fit into u32:17\n700001' \
	"$(field poked last_fault fault_element)"
poke 5
read -r came failed first last <<<"$(survey poked /mnt/data/large ENODATA)"
same "another value that fits fails too" 256 "$failed"
same "and is told by the checksum" "chunk 1: its bytes are not those that were published" "$(field poked last_fault)"
exec 8>&- 9<&-
wait $poker
rm /run/to_poker /run/from_poker
same "it can be withdrawn" '' "$(image withdraw $socket poked)"

# --- Unreadable in the middle.
cp /mnt/data/large /run/files/large
cold
begin=$(filefrag -v -b512 /run/files/large | awk '$1 == "0:" { sub(/\.\.$/, "", $4); print $4 + 0 }')
same "a file on a drive" '' "$(image publish $socket unreadable $'file = /run/files/large\ncodec = u32')"
published "is published" unreadable
cold
# 16 KiB, whole blocks, of 4.8 MB: of the second MiB of the view.
at=3145728
bad=$((begin + at / 512))
drive "0 $bad linear $loop 0" "$bad 32 error" "$((bad + 32)) $((sectors - bad - 32)) linear $loop $((bad + 32))"
read -r came failed first last <<<"$(survey unreadable /mnt/data/large EIO)"
same "unreadable in the middle: its MiB fails" 256 "$failed"
check "its place is within what failed" [ "$first" -le $((at / 4)) -a "$last" -ge $(((at + 16384) / 4 - 1)) ]
same "it is named, with the byte" "/run/files/large: cannot be read at byte $at: Input/output error" "$(field unreadable last_fault)"
same "a view of what is unreadable" '' "$(image publish $socket never $'file = /run/files/large\ncodec = u32')"
cold
check "may fail while it is scanned" soon 20 is never state failed
same "with the same words" "/run/files/large: cannot be read at byte $at: Input/output error" "$(field never error)"
drive "$whole"
cold
read -r came failed _ <<<"$(survey unreadable /mnt/data/large)"
same "readable again: all is there" 0 "$failed"
same "they can be withdrawn" '' "$(image withdraw $socket never)$(image withdraw $socket unreadable)"
ends "it ends"
check "the driver is free" rmmod ublk_drv
plan $tap_n
