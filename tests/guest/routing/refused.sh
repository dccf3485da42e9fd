#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Drives and files that must be refused with a reason before anything is submitted: SATA, persistent memory, DAX, and
# inline files. Without a fallback the library must return EXDEV; with one it must move the right bytes, count them and
# name the reason.
# group: route
# topologies: sata
# variants: plain
# needs: CONFIG_SATA_AHCI CONFIG_BLK_DEV_SD
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a ahci sd_mod virtio_pmem nd_pmem xfs 2>/dev/null
EXDEV=18 NO_DIO=19 QUEUE=33
at_once=lazy_itable_init=0,lazy_journal_init=0 # no background writes later
no_prefetch=no_prefetch_block_bitmaps # nor reads, some seconds after the mount
nvme=$(nvme_disk) sata=/dev/sda pmem=/dev/pmem0
check "the SATA drive is there" soon 20 test -b $sata
wipefs -qa "$nvme" $sata
mkdir -p /mnt/refused

# sent DISK: the reads and writes submitted to its driver
sent() {
	local reads writes
	read -r reads _ _ _ writes _ <"/sys/class/block/${1##*/}/stat"
	echo "$reads $writes"
}

# refuses DESCRIPTION FILE LEN NUMBER REASON SEED DISK BY [LEAF...]: FILE holds pattern SEED and is on DISK
refuses() {
	local before
	same "$1: explained" "$5 $8 $(backing "${@:9}")" "$(explained "$2")"
	same "$1: a read is refused" "$EXDEV $4 0" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-3)"
	same "$1: a write is refused" "$EXDEV $4 0" "$(pdio write "$2" 0 4096 0 | cut -d' ' -f1-3)"
	same "$1: and by io_uring" "$EXDEV" "$(RING=1 pdio read "$2" 0 4096 0 | cut -d' ' -f1)"
	# Repeat it: the filesystem's own metadata is cached by now.
	sync
	before=$(sent "$7")
	pdio read "$2" 0 4096 0 >/dev/null
	pdio write "$2" 0 4096 0 >/dev/null
	same "$1: nothing is sent" "$before" "$(sent "$7")"
	relay_as "$1" refused "$2" "$3" "$4" "$6"
}

# --- SATA, the drive and a file on it
pattern fill $sata 0 $mib pattern:1
sync $sata
blockdev --flushbufs $sata
refuses "SATA" $sata $mib $QUEUE QUEUE 1 $sata sda sda:QUEUE
sync $sata
check "SATA: what was written is on the drive" host compare disk1 0 $mib pattern:2
mke2fs -q -F -t ext4 -E $at_once $sata
mount -o $no_prefetch $sata /mnt/refused || bail "no ext4 on the SATA drive"
pattern fill /mnt/refused/file 0 $mib pattern:3
refuses "a file on SATA" /mnt/refused/file $mib $QUEUE QUEUE 3 $sata sda sda:QUEUE
sync
check "a file on SATA: what was written is on the drive" on_drive disk1 "$(extents /mnt/refused/file)" $mib pattern:4
umount /mnt/refused

# --- Inline data: the bytes of a small file are in its inode
mke2fs -q -F -t ext4 -E $at_once -O inline_data -I 256 "$nvme"
mount -o $no_prefetch "$nvme" /mnt/refused || bail "no ext4 with inline data"
pattern fill /mnt/refused/small 0 100 pattern:5
check "the file is in its inode" bash -c "lsattr -l /mnt/refused/small | grep -q Inline_Data"
refuses "inline data" /mnt/refused/small 100 $NO_DIO NO_DIO 5 "$nvme" - :NO_DIO
pattern fill /mnt/refused/small 0 $mib pattern:7
sync
moves "a file that has grown out of its inode" /mnt/refused/small 0 $mib
umount /mnt/refused

# --- DAX: the bytes of a file are memory
if ! has_option CONFIG_NVDIMM_PFN; then
	skip "DAX" "this kernel makes no drive of persistent memory (CONFIG_NVDIMM_PFN)"
	check "the drives are free" wipefs -qa "$nvme" $sata
	plan $tap_n
	exit 0
fi
soon 20 test -b $pmem || bail "no drive of persistent memory"
pattern fill $pmem 0 $mib pattern:1
sync $pmem
blockdev --flushbufs $pmem
refuses "persistent memory" $pmem $mib $QUEUE QUEUE 1 $pmem pmem0 pmem0:QUEUE
for fs in ext4 xfs; do
	case $fs in
	ext4) mke2fs -q -F -t ext4 -E $at_once -b 4096 $pmem ;;
	xfs) mkfs.xfs -q -f $pmem || bail "no xfs" ;;
	esac
	mount -o dax=always $pmem /mnt/refused || bail "no $fs with DAX"
	pattern fill /mnt/refused/file 0 $mib pattern:8
	attributes=$(xfs_io -r -c "statx -r" /mnt/refused/file | sed -n 's/^stat.attributes = //p')
	same "$fs: the file is DAX" $((0x200000)) $((attributes & 0x200000)) # STATX_ATTR_DAX
	refuses "DAX, $fs" /mnt/refused/file $mib $NO_DIO NO_DIO 8 $pmem - :NO_DIO
	umount /mnt/refused
	mount -o dax=never $pmem /mnt/refused || bail "no $fs without DAX"
	refuses "a file on persistent memory, $fs without DAX" /mnt/refused/file $mib $QUEUE QUEUE 9 $pmem pmem0 pmem0:QUEUE
	umount /mnt/refused
done
check "the drives are free" wipefs -qa "$nvme" $sata $pmem
plan $tap_n
