#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma cp from file to file through the GPU's memory: every byte, holes, odd lengths, existing targets. A copy that
# fails or is killed must leave nothing.
# group: cli
# topologies: switch
# variants: plain
# timeout: 300
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
dir=/mnt/disk/copy
rm -rf $dir
mkdir -p $dir/in $dir/out /tmp/copy
umask 022
said=/tmp/copy/said
pool=/sys/bus/pci/devices/$(gpu_bdf)/p2pmem

# cp_json ARG...: its report is in $said.json; got NAME...: members of it
cp_json() { peerdma cp --json "$@" >$said.json 2>$said.err; }
got() { seeing get $said.json "$@"; }
# refused DESCRIPTION REGEX ARG...: status 1, one line, and nothing is left
refused() {
	local status=0
	peerdma cp "${@:3}" >$said 2>$said.err || status=$?
	same "$1: it fails, in one line" "1 0 1" "$status $(wc -c <$said) $(wc -l <$said.err)"
	check "$1: it says why" grep -qE "$2" $said.err
	left "$1"
}
left() { same "$1: nothing is left" "" "$(find $dir/out /tmp/copy -name '.peerdma*')"; }

# --- Every byte, as the host sees it on the drive
pattern fill $dir/in/a 0 3000001 pattern:8
chmod 640 $dir/in/a
sync
host fill gpu0 0 16777216 byte:170 >/dev/null
cp_json $dir/in/a $dir/out/a
same "a copy: its status" 0 $?
# With soft-RoCE the CPU copies each byte.
[ -z "${FAR_DISK:-}" ] && direct=true ways="5999616 193 193" why="FILE_ALIGN true 193 FILE_ALIGN true 193" ||
	direct=false ways="0 0 6000002" why="RDMA_SOFTWARE false 0 RDMA_SOFTWARE false 3000001"
same "its bytes: whole blocks direct, both ways, and the rest bounced" "3000001 $ways 0 true" \
	"$(got /bytes /bytes_direct /bytes_near /bytes_host /bytes_holes /ring)"
same "why" "$why" \
	"$(got /read/reason /read/direct /read/bounced_near /write/reason /write/direct /write/bounced_host)"
check "every byte of it, on the drive" on_drive disk0 "$(extents $dir/out/a)" 3000001 pattern:8
check "and by the page cache" cmp $dir/in/a $dir/out/a
check "its first piece passed through the GPU" host compare gpu0 4096 61440 pattern:8 4096
same "a new file has the mode of the other" 640 "$(stat -c %a $dir/out/a)"

# --- Lengths
for size in 0 1 511 512 4096 4097 1048576 1048577 9437189; do
	head -c $size /dev/urandom >$dir/in/n
	peerdma cp --verify $dir/in/n $dir/out/n >$said 2>&1 && cmp $dir/in/n $dir/out/n 2>>$said &&
		ok "$size bytes" || { not_ok "$size bytes"; diag "$(cat $said)"; }
done
check "it says that it has looked" bash -c "peerdma cp --verify $dir/in/n $dir/out/n | grep -q '^verified   each byte'"

# --- Holes
truncate -s 40M $dir/in/holes
printf x | dd of=$dir/in/holes bs=1 seek=12345678 conv=notrunc status=none
cp_json $dir/in/holes $dir/out/holes
check "a file with holes" cmp $dir/in/holes $dir/out/holes
same "its holes stay holes" "$(stat -c %b $dir/in/holes)" "$(stat -c %b $dir/out/holes)"
check "which nobody moved" test "$(got /bytes_holes)" -gt 40000000

# --- Existing targets
chown 1000 $dir/out/n
chmod 6600 $dir/out/n
ln $dir/out/n $dir/out/linked
cp_json $dir/in/a $dir/out/n
same "one that is replaced keeps its mode, but for what speaks of its owner" "0 600" "$? $(stat -c %a $dir/out/n)"
check "with the new bytes" cmp $dir/in/a $dir/out/n
check "another name of the old one keeps the old bytes" cmp $dir/in/n $dir/out/linked
ln -s n $dir/out/link
cp_json $dir/in/holes $dir/out/link
same "behind a link" "0 symbolic link" "$? $(stat -c %F $dir/out/link)"
check "is what the link leads to" cmp $dir/in/holes $dir/out/n
ln -s nowhere $dir/out/dangling
refused "a link that leads nowhere" "dangling is a dangling symbolic link: .*Create its target" $dir/in/n $dir/out/dangling
same "it stays, and nothing is there" "nowhere 1" "$(readlink $dir/out/dangling) $(test ! -e $dir/out/nowhere && echo 1)"
rm $dir/out/dangling
cp_json $dir/in/a $dir/out
same "into a directory" "0 $dir/out/a" "$? $(got /target)"
refused "onto itself" "same file" $dir/in/a $dir/in/a
ln $dir/in/a $dir/in/again
refused "onto another name of it" "same file" $dir/in/a $dir/in/again
mkdir $dir/out/dir
cp $dir/in/a $dir/in/dir
refused "into a directory that has a directory of that name" "not a regular file" $dir/in/dir $dir/out
refused "onto a disk" "not a regular file" $dir/in/a "$(nvme_disk)"
refused "from nowhere" "$dir/in/none" $dir/in/none $dir/out/x
refused "to nowhere" "$dir/none" $dir/in/a $dir/none/x
same "what was there is as it was" 0 "$(cmp $dir/in/a $dir/out/a; echo $?)"

# --- A side without a direct route
cp_json $dir/in/a /tmp/copy/a
same "to tmpfs: read directly, written through the page cache, with the reason" "0 $direct false FILESYSTEM 3000001 false" \
	"$? $(got /read/direct /write/direct /write/reason /write/bounced_host /ring)"
check "to tmpfs: each byte" cmp $dir/in/a /tmp/copy/a
cp_json --verify /tmp/copy/a $dir/out/back
same "from tmpfs" "0 false FILESYSTEM 3000001 $direct" "$? $(got /read/direct /read/reason /read/bounced_host /write/direct)"
check "from tmpfs: each byte, on the drive" on_drive disk0 "$(extents $dir/out/back)" 3000001 pattern:8
refused "neither side" "have no direct route" /tmp/copy/a /tmp/copy/b
refused "a side, and it must" "no direct route" --require-direct $dir/in/a /tmp/copy/b
if [ $direct = true ]; then
	check "both sides, and it must" peerdma cp --require-direct $dir/in/a $dir/out/a
else
	refused "software, and it must be direct" RDMA_SOFTWARE --require-direct $dir/in/a $dir/out/x
fi

# --- A copy that fails or is killed
# Asked for more space than there is, ext4 allocates what there is.
fallocate -l "$(($(stat -f -c '%f * %S' /mnt/disk)))" $dir/full 2>/dev/null
refused "no room" "ENOSPC" $dir/in/n $dir/out/big
same "no room: there is no file" no "$([ -e $dir/out/big ] && echo yes || echo no)"
rm $dir/full
echo old >$dir/out/old
for signal in TERM KILL; do
	sync
	throttle 200000
	peerdma cp $dir/in/n $dir/out/old >$said 2>&1 &
	soon 20 waits $! || not_ok "SIG$signal: a copy is under way"
	kill -s $signal $!
	throttle 0
	wait $!
	status=$?
	[ $signal = KILL ] && want=137 || want=143
	same "SIG$signal: it was killed, and what was there is there" "$want old" "$status $(cat $dir/out/old)"
	left "SIG$signal"
	# The kernel completes a ring's requests after its process has exited.
	check "SIG$signal: its memory is back" soon 30 cmp -s $pool/available $pool/size
done

# --- Into the GPU's memory
check "to the GPU, and looked at" peerdma cp --verify $dir/in/a gpu:
check "to the GPU: each byte" host compare gpu0 0 3000001 pattern:8
rm -rf $dir
umount /mnt/disk
check "the filesystem is clean" e2fsck -fn "$(nvme_disk)"
plan $tap_n
