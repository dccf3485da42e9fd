#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Any offset, any length, any place in the buffer: whole blocks must go direct, partial blocks must be bounced and
# counted, and no byte outside the range may change, in the buffer or in the file.
# group: io
# topologies: switch
# variants: plain
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
block=512
span=262144
other=pattern:99

# want_counts FILE_OFF LEN BUF_OFF: direct and bounced bytes of a request that is not short, and the reason
want_counts() {
	local head=$((($1 + block - 1) / block * block - $1)) whole
	[ $head -le "$2" ] || head=$2
	whole=$((($2 - head) / block * block))
	if [ $whole -gt 0 ] && [ $((($3 + head) % 4)) != 0 ]; then
		echo "0 $2 5"
	elif [ -n "${FAR_DISK:-}" ] && [ "$way $whole" != "write 0" ]; then
		echo "0 $2 47" # RDMA_SOFTWARE: the CPU copies
	elif [ $whole = "$2" ]; then
		echo "$whole 0 0"
	else
		echo "$whole $(($2 - whole)) 4"
	fi
}

# odd read FILE FILE_OFF LEN BUF_OFF SOURCE SOURCE_OFF: SOURCE is the file's contents there
# odd write FILE FILE_OFF LEN BUF_OFF: into a file of pattern 6
odd() {
	local way=$1 file=$2 file_off=$3 len=$4 buf_off=$5 what="$1 of $4 bytes at $3, place $5 of the buffer, $2"
	local fill="0 $((2 * span)) $other" got reason moved direct near through_host want
	[ "$way" = read ] || fill="0 $span pattern:5"
	got=$(pdio "$way" "$file" "$file_off" "$len" "$buf_off" $span "host fill gpu0 $fill") ||
		{ not_ok "$what"; diag "$got"; return; }
	read -r _ reason moved direct near through_host _ <<<"${got##*$'\n'}"
	want=$(want_counts "$file_off" "$len" "$buf_off")
	if [ "$moved $direct $((near + through_host)) $reason" != "$len $want" ]; then
		not_ok "$what"
		diag "errno reason done direct near host at: $got, want done $len, direct, bounced, reason $want"
		return
	fi
	if [ "$way" = read ]; then
		check "$what" odd_bytes "$len" "$buf_off" "$6" "$7" $other host compare gpu0
	elif [ -b "$file" ]; then
		# On a raw drive the host checks that the write is on the storage when the call returns.
		check "$what" odd_bytes "$len" "$file_off" pattern:5 "$buf_off" pattern:6 host compare disk0
	else
		check "$what" odd_bytes "$len" "$file_off" pattern:5 "$buf_off" pattern:6 pattern compare "$file"
	fi
}

# odd_bytes LEN AT SOURCE SOURCE_OFF AROUND COMPARE...: the bytes there and those on both sides
odd_bytes() {
	local len=$1 at=$2 end=$(($1 + $2)) compare=("${@:6}")
	"${compare[@]}" "$at" "$len" "$3" "$4" && { [ "$at" = 0 ] || "${compare[@]}" 0 "$at" "$5" 0; } &&
		"${compare[@]}" $end $((span - end)) "$5" $end
}

file=/mnt/disk/odd
pattern fill $file 0 $span pattern:1
sync
for at in "1 1 0" "511 2 3" "100 300 7" "1 511 0" "1 512 1" "0 513 0" "0 4097 4" "500 5000 0" "3 70000 1" "0 131072 1" \
	"4095 4098 4095" "512 1024 513" "1000 200000 50000"; do
	# shellcheck disable=SC2086 # three numbers
	odd read $file $at pattern:1 ${at%% *}
done

got=$(pdio read $file $((span - 100)) 1000 5 $span)
same "the end of the file in a partial block of both ends" "0 20 100" "$(cut -d' ' -f1-3 <<<"$got")"
got=$(pdio read $file $((span + 1)) 1000 5 $span)
same "past the end of the file at an odd offset" "0 20 0" "$(cut -d' ' -f1-3 <<<"$got")"

for at in "1 1 0" "511 2 3" "100 300 7" "0 513 0" "500 5000 0" "512 1024 513" "3 70000 1" "1000 200000 50000"; do
	pattern fill $file 0 $span pattern:6
	# shellcheck disable=SC2086 # three numbers
	odd write $file $at
done
got=$(pdio write $file $((span - 100)) 1000 0 $span "host fill gpu0 0 $span pattern:5")
same "a write that ends past the end: the file is as long as it says" "0 $((span + 900))" "$(cut -d' ' -f1 <<<"${got##*$'\n'}") $(stat -c %s $file)"
check "its bytes" pattern compare $file $((span - 100)) 1000 pattern:5

# O_APPEND: writes at the end of the file, as pwrite(2) does.
printf 'abc' >/mnt/disk/appended
got=$(pdio append /mnt/disk/appended 0 5000 8 $span "host fill gpu0 0 $span pattern:5")
same "O_APPEND" "0 10 5000 0 0 5000 5003" "$(cut -d' ' -f1-6 <<<"${got##*$'\n'}") $(stat -c %s /mnt/disk/appended)"
check "its bytes" pattern compare /mnt/disk/appended 3 5000 pattern:5 8
same "and what was there" abc "$(head -c 3 /mnt/disk/appended)"

# A limit inside a block: the write is short and the next one fails, as pwrite(2) does.
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
	odd write "$disk" $at
done
odd read "$disk" 30001 9001 77 pattern:6 30001
mke2fs -q -F -t ext4 "$disk"
plan $tap_n
