#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd with compressed files, whole and cut; without memory; killed while it scans; and with files that were unmounted. Each
# element that comes is right; what cannot be read is an error that is named; nothing waits for ever.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_DM_DELAY CONFIG_MEMCG zstd lz4
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

modprobe -d "$LAB_KERNEL" dm-delay || bail "no drive that waits"
make_drive 64
survey() { image survey "$(field "$1" device)" "${@:2}"; }

# --- Compressed files.
image make /mnt/data/large 1200000 17 3
begin --decompress-memory 32
zstd -q -9 --long=23 /mnt/data/large -o /mnt/data/large.zst
lz4 -q /mnt/data/large /mnt/data/large.lz4
for kind in zst lz4; do
	same "$kind: a compressed file" '' "$(image publish $socket $kind "file = /mnt/data/large.$kind"$'\ncodec = u32\ncompressed = yes')"
	published "$kind: is published" $kind
	same "$kind: its bits" u32:17 "$(field $kind codec)"
	same "$kind: each element" "$(((1200000 * 17 / 8 + 4095) / 4096)) 0 -1 0" "$(survey $kind /mnt/data/large)"
	diag "restarts: $(field $kind restarts)"
	head -c 1000000 /mnt/data/large.$kind >/mnt/data/cut.$kind
	same "$kind: a cut one is published" '' "$(image publish $socket cut-$kind "file = /mnt/data/cut.$kind"$'\ncodec = u32\ncompressed = yes')"
	check "$kind: and fails" soon 20 is cut-$kind state failed
	case $(field cut-$kind error) in
	"/mnt/data/cut.$kind: damaged at byte "*": it ends within a frame") ok "$kind: is named" ;;
	*) not_ok "$kind: is named"; diag "$(field cut-$kind error)" ;;
	esac
done

# --- Memory short: what a decompressor needs cannot be had.
ends "it ends, to begin without a decompressor"
begin
published "zst: is published again" zst
size=$(sed -n 's/^VmData:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/$service/status)
prlimit --pid $service --data=$((size * 1024))
read -r came failed _ <<<"$(survey zst /mnt/data/large)"
diag "without memory: $came blocks came, $failed failed; $(field zst last_fault)"
check "without memory it lives" kill -0 $service
check "some reads fail" [ "$failed" -gt 0 ]
prlimit --pid $service --data=unlimited
read -r came failed _ <<<"$(survey zst /mnt/data/large)"
same "with memory all is there" 0 "$failed"
for kind in zst lz4; do same "$kind: withdrawn" '' "$(image withdraw $socket $kind)$(image withdraw $socket cut-$kind)"; done

# --- Its cgroup has no memory: the kernel kills it.
same "a view" '' "$(image publish $socket large $'file = /mnt/data/large\ncodec = u32')"
published "is published" large
device=$(field large device)
cgroups=/mnt/cgroup group=/mnt/cgroup/views
mkdir -p $cgroups && mount -t cgroup2 none $cgroups || bail "no cgroups"
echo +memory >$cgroups/cgroup.subtree_control && mkdir $group && echo $service >$group/cgroup.procs || bail "no cgroup"
echo 65536 >$group/memory.max
# The kernel prints a trace of each process that it kills so, which the lab would take for a fault: not on the console, counted instead.
level=$(cut -f1 /proc/sys/kernel/printk)
traces() { dmesg | grep -c 'Call Trace:'; }
before=$(traces)
dmesg -n 1
blockdev --flushbufs "$device"
dd if="$device" of=/mnt/data/late bs=64k iflag=direct status=none &
reader=$!
wait $service 2>/dev/null
same "without memory in its cgroup it is killed" 137 $?
check "a read waits" kill -0 $reader
begin
published "it comes back" large
wait $reader
same "the read ends" 0 $?
check "with each element" image compare /mnt/data/late /mnt/data/large
dmesg -n "$level"
same "the kernel has told of the process and of nothing else" $((before + 1)) "$(traces)"
rmdir $group && echo -memory >$cgroups/cgroup.subtree_control && umount $cgroups || not_ok "the cgroup stays"
same "withdrawn" '' "$(image withdraw $socket large)"

# --- Killed while it scans.
image halves /mnt/data/halves 32
cp /mnt/data/halves /run/files/halves
cold
drive "$(delayed 400)"
timeout -s INT 1 peerdma view publish slow /run/files/halves --codec u32:u16 --wait --socket $socket >/dev/null 2>&1
same "a file on a slow drive: who waits for it is interrupted" 124 $?
same "and it is scanned all the same" scanning "$(field slow state)"
# What it has found is saved every two seconds, the first time well before the end. The drive then holds the rest back, so that the
# scan is not done before it is killed, however slow this machine is.
check "what it has found is saved" soon 60 test -s /run/views/slow.scan
dmsetup suspend --noflush --nolockfs drive
same "it is being scanned" scanning "$(field slow state)"
check "a part of it has been" awk -v part="$(field slow scanned)" 'BEGIN { exit !(part > 0 && part < 1) }'
kill -KILL $service
dmsetup resume drive
wait $service 2>/dev/null
cold
# read_sectors: of the drive
read_sectors() { awk '{ print $3 }' "/sys/block/$(dm drive)/stat"; }
before=$(read_sectors)
begin
published "killed, it goes on" slow
again=$((($(read_sectors) - before) * 512 >> 20))
diag "after it was killed it read $again MiB of 32"
check "where it was" [ "$again" -gt 0 -a "$again" -lt 28 ]
drive "$whole"
check "each element is right" image read "$(field slow device)" /mnt/data/halves "$(seq -s, 0 15)"

# --- Unmounted lazily.
cold
umount -l /run/files
check "unmounted, it is still there" image read "$(field slow device)" /mnt/data/halves "$(seq -s, 0 15)"
device=$(field slow device)
kill -STOP $service
dd if="$device" of=/dev/null bs=64k iflag=direct status=none 2>/dev/null &
reader=$!
soon 20 waits $reader || not_ok "a read is under way"
kill -KILL $service
wait $service 2>/dev/null
begin
check "killed, it does not find it" soon 40 is slow state failed
same "and says so" "file = /run/files/halves: there is no such file" "$(field slow error)"
soon 30 fails kill -0 $reader || not_ok "the reader hangs"
wait $reader
check "a read that waited for it fails" [ $? != 0 ]
check "its device is gone" fails test -b "$device"
ends "it ends"
check "the driver is free" rmmod ublk_drv
plan $tap_n
