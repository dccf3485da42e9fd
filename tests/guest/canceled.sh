# SPDX-License-Identifier: MIT
# Sourced by tests of requests that an unbind cancels, because they wait inside a filesystem. After lib.sh.
# shellcheck shell=bash disable=SC2154 # lib.sh assigns $mib

gpu=$(gpu_bdf)

free_memory() { cat "/sys/bus/pci/devices/$gpu/p2pmem/available"; }

# fill_file FILE: 1 MiB, a hole of 1 MiB, and a block
end=$((2 * mib + 4096))
fill_file() {
	rm -f "$1"
	pattern fill "$1" 0 $mib pattern:1
	truncate -s $((2 * mib)) "$1"
	pattern fill "$1" $((2 * mib)) 4096 pattern:2
	sync
}

# is_filled FILE
is_filled() {
	pattern compare "$1" 0 $mib pattern:1 && pattern compare "$1" $mib $mib byte:0 &&
		pattern compare "$1" $((2 * mib)) 4096 pattern:2
}

# Each request: name, then words for pdio. RING as the first word: by a command of a ring.
requests=(
	"whole blocks, read|read %F 0 65536 0"
	"whole blocks, written|write %F 8192 65536 0"
	"partial blocks, read|read %F 100 5000 4"
	"partial blocks, written|write %F 100 5000 4"
	"an odd place, read|read %F 4096 4096 1"
	"an odd place, written|write %F 4096 4096 1"
	"a hole, read|read %F $((mib + 65536)) 65536 0"
	"a hole, whole blocks, written|write %F $((mib + 65536)) 65536 0"
	"a hole, a partial block, written|write %F $((mib + 262144)) 100 0"
	"the file grows|write %F $end $mib 0"
	"the file grows, a partial block|write %F $end 100 0"
	"behind the end, whole blocks|write %F $((end + mib + 512)) 65536 0"
	"behind the end, a partial block|write %F $((end + mib)) 100 0"
	"behind the end, partial blocks|write %F $((end + mib + 5000)) 100 4"
	"appended|append %F 0 5000 0"
	"ring, read|RING read %F 0 65536 0"
	"ring, written|RING write %F 8192 65536 0"
	"ring, the file grows|RING write %F $end 65536 0"
)

start_requests() {
	local request words
	pids=()
	for request in "${requests[@]}"; do
		read -ra words <<<"${request#*|}"
		words=("${words[@]//%F/$file}")
		if [ "${words[0]}" = RING ]; then
			RING=1 pdio "${words[@]:1}" >"/tmp/said.${#pids[@]}" 2>&1 &
		else
			pdio "${words[@]}" >"/tmp/said.${#pids[@]}" 2>&1 &
		fi
		pids+=($!)
	done
}

# all_wait WHAT
all_wait() {
	local i how=waits
	! soon 20 waits "${pids[@]}" || how=sleeps
	for i in "${!pids[@]}"; do
		check "$1: ${requests[i]%%|*}: waits" $how "${pids[i]}"
	done
}

# were_canceled WHAT: each ended with ENODEV and REVOKED; a ring returns the errno only
were_canceled() {
	local i
	for i in "${!pids[@]}"; do
		wait "${pids[i]}"
		case ${requests[i]} in
		ring*) same "$1: ${requests[i]%%|*}: canceled" "19 0" "$(tail -n 1 "/tmp/said.$i" | cut -d' ' -f1,3)" ;;
		*) same "$1: ${requests[i]%%|*}: canceled" "19 48 0" "$(tail -n 1 "/tmp/said.$i" | cut -d' ' -f1-3)" ;;
		esac
	done
	same "$1: the file's size is as before" $end "$(stat -c %s "$file")"
	check "$1: and so are its bytes" is_filled "$file"
	echo 3 >/proc/sys/vm/drop_caches
	check "$1: also those on the drive" is_filled "$file"
}

unbind() { echo "$gpu" >"/sys/bus/pci/devices/$gpu/driver/unbind"; }

# lock_is_held FILESYSTEM FILE: another process holds the lock of FILE (of fill_file) for as long as it wants. All requests
# above and the one of inode.cpp wait for it with a buffer's memory, but for one that has host memory only.
lock_is_held() {
	local what="$1, a file's lock" file=$2 before logged writing_fd writer said
	publish
	before=$(free_memory)
	pdio read "$file" 0 4096 0 >/tmp/before # caches the route; inode.cpp takes any sleep for this lock
	exec {writing_fd}< <(exec inode "$file")
	read -r _ writer <&"$writing_fd"
	start_requests
	all_wait "$what"
	dmesg -C
	unbind &
	check "$what: unbind returns" soon 10 ended $!
	check "$what: while the lock is still held" kill -0 "$writer"
	logged=$(dmesg | sed -n "s/.*peerdma $gpu: \([0-9]*\) requests that waited for a file were canceled/\1/p" | paste -sd+)
	same "$what: the log says how many were canceled" ${#requests[@]} $((logged))
	same "$what: nobody is named" "" "$(cat /sys/kernel/debug/peerdma/held)"
	check "$what: the requests still wait" waits "${pids[0]}"
	kill -KILL "$writer"
	read -r said <&"$writing_fd"
	exec {writing_fd}<&-
	same "$what: a thread of a process with more" "-19 0 1" "$said"
	were_canceled "$what"
	publish
	same "$what: all memory is there again" "$before" "$(free_memory)"
}
