#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# More than 2 GiB in one request, which exceeds the kernel's limit for one call: a sparse file and a mostly empty
# device. Only the start, the part around 2 GiB and the end have bytes.
# group: io
# topologies: switch
# tier: all
# variants: plain
# boot: large
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a dm-mod dm-zero 2>/dev/null
export DM_DISABLE_UDEV=1
gib=1073741824
len=$((2 * gib + 8 * mib))
buffer=$((len + 2 * mib))
border=$((2 * gib - mib))

mount_disk
file=/mnt/disk/large
truncate -s $((len + 100)) $file
for at in 0 $border $((len - mib)); do
	pattern fill $file $at $((2 * mib < len + 100 - at ? 2 * mib : len + 100 - at)) pattern:1 $at
done
sync
got=$(pdio read $file 0 $((len + mib)) 4096 $buffer "host fill gpu0 0 $((16 * mib)) pattern:99; host fill gpu0 $((border - mib)) $((20 * mib)) pattern:99")
[ -z "${FAR_DISK:-}" ] && ways="0 20 $((len + 100)) $len 100 0" || ways="0 20 $((len + 100)) 0 0 $((len + 100))"
same "a read of 2 GiB and more, to the end of the file" "$ways 0" "${got##*$'\n'}"
check "its beginning" host compare gpu0 4096 $((2 * mib)) pattern:1 0
check "a hole" host compare gpu0 $((4096 + 2 * mib)) $((14 * mib)) byte:0
check "where 2 GiB are over" host compare gpu0 $((4096 + border)) $((2 * mib)) pattern:1 $border
check "its end" host compare gpu0 $((4096 + len - mib)) $((mib + 100)) pattern:1 $((len - mib))
check "what is behind" host compare gpu0 $((4096 + len + 100)) $((buffer - len - 8192)) pattern:99 $((4096 + len + 100 - (border - mib)))
check "what is before" host compare gpu0 0 4096 pattern:99
umount /mnt/disk

# The drive backs the first 128 MiB, and from 1920 MiB on its bytes from 512 MiB; nothing backs the middle.
disk=$(nvme_disk)
dmsetup create hollow --table "0 $((256 * 1024)) linear $disk 0
$((256 * 1024)) $(((1920 - 128) * 2048)) zero
$((1920 * 2048)) $((256 * 2048)) linear $disk $((512 * 2048))" || bail "no dm device"
queue=/sys/block/${disk##*/}/queue
reads() { dd if="$disk" of=/dev/null bs=65536 count=1 iflag=direct 2>/dev/null; }
in_flight() { read -r reading _ <"/sys/block/${disk##*/}/inflight" && [ "$reading" != 0 ]; }
# resets_at_once: whether a write to nomerges ends while a request is in flight. On old kernels it waits until all queues
# are frozen.
resets_at_once() {
	local reader writer answer=1
	throttle 4096
	reads # passes at once, and the next one takes 16 s
	reads &
	reader=$!
	soon 10 in_flight || bail "no request is in flight"
	echo 0 >"$queue/nomerges" &
	writer=$!
	if soon 3 ended $writer && ! ended $reader; then answer=0; fi
	throttle 0
	wait $reader $writer
	return $answer
}
# meddle: resets the merge guard once, during the write of the 256 MiB before 2 GiB.
written() { read -r _ _ _ _ _ _ sectors _ <"/sys/block/${disk##*/}/stat"; }
meddle() {
	written
	local before=$sectors
	while [ $((sectors - before)) -lt $((40 * 2048)) ]; do written; done
	echo 0 >"$queue/nomerges"
}
meddler=''
if [ -z "${FAR_DISK:-}" ] && resets_at_once; then
	throttle 200000000
	meddle &
	meddler=$!
fi
got=$(pdio write /dev/mapper/hollow 4096 $len 0 $buffer "host fill gpu0 0 $((4 * mib)) pattern:5; host fill gpu0 $border $((9 * mib)) pattern:5 $border")
[ -z "${FAR_DISK:-}" ] && ways="0 0 $len $len 0 0" || ways="0 47 $len 0 0 $len" # RDMA_SOFTWARE
same "a write of 2 GiB and more" "$ways 0" "${got##*$'\n'}"
if [ -n "$meddler" ]; then
	wait $meddler
	throttle 0
	same "its rest is sent with the guard held again" 3 "$(cat "$queue/nomerges")"
elif [ -z "${FAR_DISK:-}" ]; then
	skip "its rest is sent with the guard held again" "a write to nomerges waits for requests in flight"
fi
check "its beginning" host compare disk0 4096 $((4 * mib)) pattern:5
check "where 2 GiB are over, to its end" host compare disk0 $((512 * mib + 4096 + border - 1920 * mib)) $((9 * mib)) pattern:5 $border
dmsetup remove hollow
mke2fs -q -F -t ext4 "$disk"
plan $tap_n
