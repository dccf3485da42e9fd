#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Any offset, any length, any place in the buffer: whole blocks go direct, what is left over is bounced and
# counted, and no byte outside the range changes, in the buffer or in the file.
# group: io
# topologies: switch rp-vtd
# variants: plain
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
block=512
span=262144
other=pattern:99

# want_counts FILE_OFF LEN BUF_OFF: direct bytes and left-over bytes of a request that is not short, and why
want_counts() {
	local head=$((($1 + block - 1) / block * block - $1)) whole
	[ $head -le "$2" ] || head=$2
	whole=$((($2 - head) / block * block))
	if [ $whole -gt 0 ] && [ $((($3 + head) % 4)) != 0 ]; then
		echo "0 $2 5"
	elif [ $whole = "$2" ]; then
		echo "$whole 0 0"
	else
		echo "$whole $(($2 - whole)) 4"
	fi
}

# odd_read FILE FILE_OFF LEN BUF_OFF SOURCE SOURCE_OFF
odd_read() {
	local what="read of $3 bytes at $2 to $4 of $1" got reason moved direct near through_host want
	got=$(pdio read "$1" "$2" "$3" "$4" $span "bash -c '. $LAB_ROOT/tests/guest/lib.sh; host fill gpu0 0 $((2 * span)) $other'") ||
		{ not_ok "$what"; diag "$got"; return; }
	read -r _ reason moved direct near through_host _ <<<"${got##*$'\n'}"
	want=$(want_counts "$2" "$3" "$4")
	if [ "$moved $direct $((near + through_host)) $reason" != "$3 $want" ]; then
		not_ok "$what"
		diag "errno reason done direct near host at: $got, want done $3, direct, bounced, reason $want"
		return
	fi
	check "$what" odd_read_bytes "$3" "$4" "$5" "$6"
}
odd_read_bytes() {
	host compare gpu0 "$2" "$1" "$3" "$4" && { [ "$2" = 0 ] || host compare gpu0 0 "$2" $other 0; } &&
		host compare gpu0 $(($2 + $1)) $((span - $2 - $1)) $other $(($2 + $1))
}

# odd_write FILE FILE_OFF LEN BUF_OFF: into a file of pattern 6
odd_write() {
	local what="write of $3 bytes from $4 to $2 of $1" got reason moved direct near through_host want
	got=$(pdio write "$1" "$2" "$3" "$4" $span "bash -c '. $LAB_ROOT/tests/guest/lib.sh; host fill gpu0 0 $span pattern:5'") ||
		{ not_ok "$what"; diag "$got"; return; }
	read -r _ reason moved direct near through_host _ <<<"${got##*$'\n'}"
	want=$(want_counts "$2" "$3" "$4")
	if [ "$moved $direct $((near + through_host)) $reason" != "$3 $want" ]; then
		not_ok "$what"
		diag "errno reason done direct near host at: $got, want done $3, direct, bounced, reason $want"
		return
	fi
	check "$what" odd_write_bytes "$1" "$2" "$3" "$4"
}
odd_write_bytes() {
	local compare=(pattern compare "$1")
	# A raw drive is looked at from outside: what is written is on the storage when the call returns.
	[ ! -b "$1" ] || compare=(host compare disk0)
	"${compare[@]}" "$2" "$3" pattern:5 "$4" && { [ "$2" = 0 ] || "${compare[@]}" 0 "$2" pattern:6; } &&
		"${compare[@]}" $(($2 + $3)) $((span - $2 - $3)) pattern:6 $(($2 + $3))
}

file=/mnt/disk/odd
pattern fill $file 0 $span pattern:1
sync
odd_read $file 1 1 0 pattern:1 1
odd_read $file 511 2 3 pattern:1 511
odd_read $file 100 300 7 pattern:1 100
odd_read $file 1 511 0 pattern:1 1
odd_read $file 1 512 1 pattern:1 1
odd_read $file 0 513 0 pattern:1 0
odd_read $file 0 4097 4 pattern:1 0
odd_read $file 500 5000 0 pattern:1 500
odd_read $file 3 70000 1 pattern:1 3
odd_read $file 0 131072 1 pattern:1 0
odd_read $file 4095 4098 4095 pattern:1 4095
odd_read $file 512 1024 513 pattern:1 512
odd_read $file 1000 200000 50000 pattern:1 1000

got=$(pdio read $file $((span - 100)) 1000 5 $span)
same "the end of the file in a partial block of both ends" "0 20 100" "$(cut -d' ' -f1-3 <<<"$got")"
got=$(pdio read $file $((span + 1)) 1000 5 $span)
same "past the end of the file at an odd offset" "0 20 0" "$(cut -d' ' -f1-3 <<<"$got")"

for at in "1 1 0" "511 2 3" "100 300 7" "0 513 0" "500 5000 0" "512 1024 513" "3 70000 1" "1000 200000 50000"; do
	pattern fill $file 0 $span pattern:6
	# shellcheck disable=SC2086 # three numbers
	odd_write $file $at
done
got=$(pdio write $file $((span - 100)) 1000 0 $span "bash -c '. $LAB_ROOT/tests/guest/lib.sh; host fill gpu0 0 $span pattern:5'")
same "a write that ends past the end: the file is as long as it says" "0 $((span + 900))" "$(cut -d' ' -f1 <<<"${got##*$'\n'}") $(stat -c %s $file)"
check "its bytes" pattern compare $file $((span - 100)) 1000 pattern:5

# O_APPEND: at the end, wherever that is, as pwrite(2) does it.
printf 'abc' >/mnt/disk/appended
got=$(pdio append /mnt/disk/appended 0 5000 8 $span "bash -c '. $LAB_ROOT/tests/guest/lib.sh; host fill gpu0 0 $span pattern:5'")
same "O_APPEND" "0 10 5000 0 0 5000 5003" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}") $(stat -c %s /mnt/disk/appended)"
check "its bytes" pattern compare /mnt/disk/appended 3 5000 pattern:5 8
same "and what was there" abc "$(head -c 3 /mnt/disk/appended)"

# A limit in the middle of a block: the write is short, the next one fails as pwrite(2) does.
limited() { bash -c 'ulimit -f 2; trap "" XFSZ; exec "$@"' limited pdio write "$@"; }
rm -f /mnt/disk/limited
same "RLIMIT_FSIZE cuts a write" "0 2048 2048" "$(limited /mnt/disk/limited 0 4096 0 | cut -d' ' -f1,3) $(stat -c %s /mnt/disk/limited)"
same "at odd places too" "0 1047" "$(limited /mnt/disk/limited 1001 4096 0 | cut -d' ' -f1,3)"
same "and refuses one behind it" "27 0" "$(limited /mnt/disk/limited 2048 4096 0 | cut -d' ' -f1,3)"

check "bytes that others write beside ours are not lost" neighbours /mnt/disk/neighbours

umount /mnt/disk
disk=$(nvme_disk)
for at in "1 1 0" "511 2 3" "500 5000 0" "1000 20000 1"; do
	host fill disk0 0 $span pattern:6 >/dev/null
	blockdev --flushbufs "$disk"
	# shellcheck disable=SC2086 # three numbers
	odd_write "$disk" $at
done
odd_read "$disk" 30001 9001 77 pattern:6 30001
mke2fs -q -F -t ext4 "$disk"
plan $tap_n
