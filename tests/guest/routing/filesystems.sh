#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Which filesystems and files can go direct, and which must be refused.
# group: route
# topologies: disks
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
modprobe -d "$LAB_KERNEL" -a xfs btrfs overlay fuse sha256 sha256_generic hmac sha512_generic cts 2>/dev/null
EXDEV=18 FILESYSTEM=18 NO_DIO=19 REALTIME=21
a=$(nvme_disk nvme0) b=$(nvme_disk nvme1) c=$(nvme_disk nvme2)
for disk in "$a" "$b" "$c"; do
	wipefs -qa "$disk"
done
mkdir -p /mnt/xfs /mnt/btrfs /mnt/over /mnt/ext4

# refused DESCRIPTION FILE NUMBER REASON SEED: reads and writes must fail so and change neither the buffer nor FILE,
# whose first block holds pattern SEED
refused() {
	local reason got fill="host fill gpu0 0 8192 pattern:99"
	got=$(pdio read "$2" 0 4096 0 8192 "$fill")
	same "read: $1" "$EXDEV $3 0" "$(cut -d' ' -f1-3 <<<"${got##*$'\n'}")"
	check "nothing came: $1" host compare gpu0 0 8192 pattern:99
	reason=$(peerdma explain "$2" | grep ^reason)
	same "explain: $1" "$4" "$(cut -d' ' -f6 <<<"${reason%%:*}")"
	if [[ $1 != *verity* ]]; then # the kernel never opens such a file for writing
		got=$(pdio write "$2" 0 4096 0 8192 "$fill")
		same "write: $1" "$EXDEV $3 0" "$(cut -d' ' -f1-3 <<<"${got##*$'\n'}")"
	fi
	check "it holds what it held: $1" pattern compare "$2" 0 4096 "pattern:$5"
}

# --- xfs, with a realtime device
mkfs.xfs -q -f -r rtdev="$b" "$a" || bail "no xfs"
mount -o rtdev="$b" "$a" /mnt/xfs || bail "no xfs is mounted"
pattern fill /mnt/xfs/file 0 $((4 * mib)) pattern:1
sync
moves "xfs" /mnt/xfs/file $mib $mib
same "less than a block of xfs goes through the page cache, and says so" "0 4 512 0 0 512" "$(pdio write /mnt/xfs/file 512 512 0 | cut -d' ' -f1-6)"
xfs_io -f -c "chattr +r" /mnt/xfs/rt
pattern fill /mnt/xfs/rt 0 $mib pattern:2
sync
refused "a realtime file" /mnt/xfs/rt $REALTIME REALTIME 2
touch /mnt/xfs/later
same "a file that becomes a realtime one while it is registered" "0 20 0 -$EXDEV $REALTIME 0" \
	"$(second_request read /mnt/xfs/later "xfs_io -c 'chattr +r' /mnt/xfs/later && pattern fill /mnt/xfs/later 0 $mib pattern:2 && sync")"
umount /mnt/xfs

mkfs.xfs -q -f -m reflink=1 "$c"
mount "$c" /mnt/xfs || bail "no xfs with reflink"
pattern fill /mnt/xfs/file 0 $((4 * mib)) pattern:1
cp --reflink=always /mnt/xfs/file /mnt/xfs/shared
moves "a file of xfs that shares its blocks" /mnt/xfs/shared $mib $mib
check "the other one is as it was" pattern compare /mnt/xfs/file 0 $((4 * mib)) pattern:1
umount /mnt/xfs

# --- ext4: cached properties of a registered file must follow changes of the file
mkfs.ext4 -q -F "$c"
mount "$c" /mnt/ext4 || bail "no ext4"
pattern fill /mnt/ext4/file 0 16384 pattern:1
sync
same "a write after another one" "0 0 4096 0 0 4096" "$(second_request write /mnt/ext4/file true)"
same "a write after the file lost its extents" "0 0 4096 -$EXDEV $NO_DIO 0" "$(second_request write /mnt/ext4/file "chattr -e /mnt/ext4/file")"
same "and after it has them again" "-$EXDEV $NO_DIO 0 0 0 4096" "$(second_request write /mnt/ext4/file "chattr +e /mnt/ext4/file")"
umount /mnt/ext4

# --- Refusals
if grep -qw btrfs /proc/filesystems; then
	mkfs.btrfs -q -f "$c" >/dev/null 2>&1
	mount "$c" /mnt/btrfs || bail "no btrfs"
	pattern fill /mnt/btrfs/file 0 $mib pattern:1
	sync
	refused "btrfs" /mnt/btrfs/file $FILESYSTEM FILESYSTEM 1
	umount /mnt/btrfs
else
	skip "btrfs" "only the kernel of make coverage has it"
fi

mke2fs -q -F -t ext4 -O verity,encrypt "$c"
mount "$c" /mnt/ext4 || bail "no ext4"
pattern fill /mnt/ext4/file 0 $mib pattern:1
mkdir /mnt/ext4/upper /mnt/ext4/work
mount -t overlay -o lowerdir=/mnt/ext4,upperdir=/mnt/ext4/upper,workdir=/mnt/ext4/work overlay /mnt/over 2>/dev/null ||
	mount -t overlay -o lowerdir=/usr:/mnt/ext4 overlay /mnt/over || bail "no overlay"
refused "overlayfs" /mnt/over/file $FILESYSTEM FILESYSTEM 1
umount /mnt/over

# fuse over a file of ext4
bindfs --no-allow-other /mnt/ext4 /mnt/over || bail "no fuse"
refused "fuse" /mnt/over/file $FILESYSTEM FILESYSTEM 1
umount /mnt/over

# An encrypted file needs the page cache for encryption.
mkdir /mnt/ext4/secret
key=$(head -c 64 /dev/urandom | xfs_io -c add_enckey /mnt/ext4)
if xfs_io -c "set_encpolicy -v2 ${key##* }" /mnt/ext4/secret && pattern fill /mnt/ext4/secret/file 0 $mib pattern:3 2>/dev/null; then
	sync
	refused "an encrypted file" /mnt/ext4/secret/file $NO_DIO NO_DIO 3
else
	skip "an encrypted file" "this kernel lacks the ciphers"
fi

if grep -q 'name *: sha256$' /proc/crypto; then
	fsverity enable /mnt/ext4/file || bail "no verity"
	refused "a file under verity" /mnt/ext4/file $NO_DIO NO_DIO 1
else
	skip "a file under verity" "no sha256 in this kernel"
fi
umount /mnt/ext4
check "the drives are free" wipefs -qa "$a" "$b" "$c"
plan $tap_n
