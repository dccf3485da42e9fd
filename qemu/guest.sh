#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Runs in the guest as init's only child: the tests of this boot one after another, then the final checks. It reports to
# the host on the port "tap", one line each:
#
#   begin NAME SECONDS      a test starts, with its time limit
#   (lines of the test)     TAP, and diagnostics
#   end NAME STATUS BUSY    its exit status, "hung", or "mounted" if /mnt/disk cannot be unmounted; and the centiseconds
#                           that the guest's CPUs were busy meanwhile
#   check NAME ok|skip|not ok [DETAIL]
#   verdict N               N lines came before this one, so a lost line is detected. Only init's "exit" follows
set -u
# shellcheck source=/dev/null
. "$1"

exec {tap}>/dev/virtio-ports/tap
lines=0
tell() {
	printf '%s\n' "$*" >&"$tap"
	lines=$((lines + 1))
}

# The host searches the serial log for splats: mark which test runs.
mark() { echo "<6>lab: $*" >/dev/kmsg; }

# bounded SECONDS COMMAND...: status 124 if the command does not end in time. timeout(1) would wait for ever for a child
# in uninterruptible sleep.
bounded() {
	local i limit=$1 pid
	shift
	"$@" {tap}>&- &
	pid=$!
	for ((i = 0; i < limit * 20; i++)); do
		gone "$pid" && { wait "$pid"; return; }
		sleep 0.05
	done
	kill -KILL "$pid"
	return 124
}

# gone PID: the process has ended (a zombie counts), so wait does not block. Not by `read`: if the process ends between two lines, Bash
# keeps what it has of the file, and the next `read`, of whichever file, gets that.
gone() {
	local text
	text=$(<"/proc/$1/status") || { [ ! -e "/proc/$1" ]; return; }
	[[ $text != *$'\n'State:$'\t'[!Z]* ]]
} 2>/dev/null

# whereabouts SESSION: the kernel stacks of its processes and of all tasks in uninterruptible sleep
whereabouts() {
	local pid
	for pid in $( (pgrep -s "$1"; stuck_tasks) | sort -nu); do
		tell "# $(tr '\0' ' ' <"/proc/$pid/cmdline") $(cat "/proc/$pid/comm")($pid): $(head -n 20 "/proc/$pid/stack" | tr '\n' ';')"
	done 2>/dev/null
}

# count_busy: sets busy to the centiseconds that the CPUs were not idle since boot
count_busy() {
	local _ user nice system irq softirq
	read -r _ user nice system _ _ irq softirq _ </proc/stat
	busy=$((user + nice + system + irq + softirq))
}

# Files that a test has made where others make theirs, but for those of daemons, which may live on.
scratch_files() {
	find "${scratch[@]}" -mindepth 1 -maxdepth 1 \( -type f -o -type p \) ! -name '*.pid' ! -name '*.lock' | sort
}
remove_scratch() { comm -13 <(echo "$scratch_before") <(scratch_files) | while IFS= read -r file; do rm -f "$file"; done; }

run_test() {
	local path=$1 limit=$2 name out pid line='' end left start=$SECONDS busy before
	name=$(basename "$path" .sh)
	count_busy
	before=$busy
	tell "begin $name $limit"
	mark "begin $name"
	end=$((SECONDS + limit))
	# A session of its own, so that all of its processes can be killed at the end.
	exec {out}< <(exec {tap}>&-; exec setsid "$path" 2>&1 </dev/null)
	pid=$!
	status=
	while [ -z "$status" ]; do
		left=$((end - SECONDS))
		if [ "$left" -le 0 ]; then
			status=hung
		elif IFS= read -r -t "$left" -u "$out" line; then
			tell "$line"
		elif [ $? -le 128 ]; then
			[ -z "$line" ] || tell "$line"
			break
		fi
	done
	if [ -z "$status" ]; then
		while [ $SECONDS -lt $end ] && ! gone "$pid"; do
			sleep 0.05
		done
		if [ $SECONDS -lt $end ]; then
			wait "$pid"
			status=$?
		else
			status=hung
		fi
	fi
	exec {out}<&-
	if [ "$status" = hung ]; then
		whereabouts "$pid"
	fi
	pkill -KILL -s "$pid"
	remove_scratch
	# Each test finds the drive unmounted, whatever ran before it.
	! mountpoint -q /mnt/disk || bounded 20 umount /mnt/disk || status=mounted
	mark "end $name $status after $((SECONDS - start)) s"
	count_busy
	tell "end $name $status $((busy > before ? busy - before : 0))"
}

check() {
	mark "check $*"
	tell "check $*"
}

pools() {
	local d
	for d in /sys/bus/pci/devices/*/p2pmem; do
		[ -d "$d" ] && echo "$(basename "$(dirname "$d")") $(cat "$d/size") $(cat "$d/available")"
	done
}

# Every p2pmem pool is full again, or as it was before the tests (nvme keeps queues in its own pool).
check_pools() {
	local dev size available short=''
	while read -r dev size available; do
		[ "$size" = "$available" ] || grep -qsx "$dev $size $available" /run/pools.before ||
			short+=" $dev lost $((size - available)) of $size bytes"
	done < <(pools)
	if [ -n "$short" ]; then check p2pmem not ok "$short"; else check p2pmem ok; fi
}

# All modules that are not the kernel's own are unused and can be unloaded.
check_modules() {
	local m name left='' refs
	for m in /sys/module/*/taint; do
		[[ $(cat "$m") == *O* ]] || continue
		name=$(basename "$(dirname "$m")")
		refs=$(cat "/sys/module/$name/refcnt")
		if [ "$refs" != 0 ]; then
			left+=" $name has $refs references"
		elif ! bounded 20 rmmod "$name"; then
			left+=" $name does not unload"
		fi
	done
	if [ -n "$left" ]; then check modules not ok "$left"; else check modules ok; fi
}

check_kmemleak() {
	local file=/sys/kernel/debug/kmemleak leaks
	[ -w $file ] || { check kmemleak skip "not in this kernel"; return; }
	! grep -qw kmemleak=off /proc/cmdline || { check kmemleak skip "switched off"; return; }
	# kmemleak reports an object only after 5 s, and only a second scan is reliable.
	echo scan >$file
	sleep 6
	echo scan >$file
	leaks=$(cat $file)
	[ -n "$leaks" ] || { check kmemleak ok; return; }
	echo "$leaks" >/dev/console
	check kmemleak not ok "$(grep -c '^unreferenced object' <<<"$leaks") objects, see the serial log"
}

check_dma_api() {
	local file=/sys/kernel/debug/dma-api/error_count n
	[ -r $file ] || { check dma-api skip "not in this kernel"; return; }
	n=$(cat $file)
	if [ "$n" = 0 ]; then check dma-api ok; else check dma-api not ok "$n errors"; fi
}

# KCSAN sleeps until it is enabled. Without watchpoints it has proved nothing.
kcsan=/sys/kernel/debug/kcsan
wake_kcsan() {
	[ -w $kcsan ] || return 0
	# Microseconds to wait for an access by another CPU: an emulated one is slow.
	echo 1000 >/sys/module/kcsan/parameters/udelay_task
	echo 200 >/sys/module/kcsan/parameters/udelay_interrupt
	echo on >$kcsan
}
check_kcsan() {
	local key n=0
	[ -r $kcsan ] || { check kcsan skip "not in this kernel"; return; }
	while read -r key n && [ "$key" != setup_watchpoints: ]; do :; done <$kcsan
	if [ "${n:-0}" -gt 0 ]; then check kcsan ok "$n accesses watched"; else check kcsan not ok "nothing was watched"; fi
}

# Tasks in uninterruptible sleep. A busy task is gone at the next check.
stuck_tasks() {
	grep -ls '^State:.D' /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3 | sort
}

# A task that waits for an NFS connection waits for ever if soft-RoCE cannot connect any more:
# Documentation/upstream/rxe-link-down.
never_told() { [ "$(cat "/proc/$1/wchan")" = xprt_destroy ] && rdma res show qp | grep -q "type GSI state ERR"; }

check_stuck() {
	local i pid stuck names='' known=''
	stuck=$(stuck_tasks)
	for ((i = 0; i < 10 && ${#stuck} > 0; i++)); do
		sleep 0.3
		stuck=$(comm -12 <(echo "$stuck") <(stuck_tasks))
	done
	for pid in $stuck; do
		if never_told "$pid"; then
			known+=" $(cat "/proc/$pid/comm")($pid)"
		else
			names+=" $(cat "/proc/$pid/comm")($pid) in $(cat "/proc/$pid/wchan")"
		fi
	done 2>/dev/null
	if [ -n "$names" ]; then
		check stuck-tasks not ok "$names"
	elif [ -n "$known" ]; then
		check stuck-tasks skip "rxe-link-down:$known"
	else
		check stuck-tasks ok
	fi
}

# Sends the gcov counters of the module, for make coverage. The kernel keeps the counters of unloaded modules.
send_gcov() {
	local file answer host
	exec {host}<>/dev/virtio-ports/host
	while read -r file; do
		printf 'gcov gcov %s %s\n' "${file##*/}" "$(gzip -c <"$file" | base64 -w 0)" >&"$host"
		read -r _ answer <&"$host"
		[ "$answer" = ok ] || mark "gcov: $answer"
	done < <(find /sys/kernel/debug/gcov -name '*.gcda')
	exec {host}>&-
}

load_nvme() {
	local i
	modprobe -d "$LAB_KERNEL" nvme || return
	for ((i = 0; i < 400; i++)); do
		[ "$(find /sys/class/block -name 'nvme*n1' | wc -l)" -lt "$LAB_DISKS" ] || return 0
		sleep 0.05
	done
	return 1
}

echo 7 >/proc/sys/kernel/printk
echo 120 >/proc/sys/kernel/hung_task_timeout_secs
ip link set lo up 2>/dev/null
if load_nvme; then check nvme ok; else check nvme not ok "$LAB_DISKS drives did not appear"; fi
pools >/run/pools.before
scratch=(/tmp /run)
scratch_before=$(scratch_files)
wake_kcsan

for entry in "${LAB_TESTS[@]}"; do
	run_test "${entry#*:}" "${entry%%:*}"
	# A hung test leaves a state in which later tests would fail without a fault of their own.
	[ "$status" != hung ] || break
done

for m in /mnt/*; do
	mountpoint -q "$m" && bounded 10 umount "$m"
done
check_pools
check_modules
check_kcsan
check_kmemleak
check_dma_api
check_stuck
[ -z "$LAB_GCOV" ] || send_gcov
tell "verdict $lines"
