#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma bench on real devices of the lab: each route must run, figures must add up, the kernel's own counters must
# confirm direct rows, other rows must fail with their reason, and no user's file may be overwritten or left behind.
# group: cli
# topologies: switch
# variants: plain
# timeout: 180
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
dir=/mnt/disk/bench
rm -rf $dir
mkdir -p $dir/made /tmp/bench
file=$dir/file
pattern fill $file 0 8388608 pattern:4
sync
results=/tmp/bench

# bench NAME ARG...: its report is in $results/NAME.json
bench() { peerdma bench --json "${@:2}" >"$results/$1.json" 2>"$results/$1.err"; }
got() { seeing get "$results/$1.json" "${@:2}"; }
# adds_up NAME ROW: bytes match the requests, percentiles rise, and CPU time is reported for those bytes
adds_up() {
	local bytes ios size p50 p90 p99 p999 max user system gb
	read -r bytes ios size p50 p90 p99 p999 max user system gb \
		< <(got "$1" "/rows/$2/bytes" "/rows/$2/ios" "/rows/$2/size" "/rows/$2/latency_us/p50" "/rows/$2/latency_us/p90" \
			"/rows/$2/latency_us/p99" "/rows/$2/latency_us/p99.9" "/rows/$2/latency_us/max" \
			"/rows/$2/cpu_user_seconds" "/rows/$2/cpu_system_seconds" "/rows/$2/cpu_seconds_per_gb")
	[ "$bytes" = $((ios * size)) ] && [ "$bytes" -gt 0 ] &&
		awk "BEGIN { spent = ($user + $system) * 1e9 / $bytes
			exit !(0 < $p50 && $p50 <= $p90 && $p90 <= $p99 && $p99 <= $p999 && $p999 <= $max &&
				spent > 0 && spent * 0.999 <= $gb && $gb <= spent * 1.001) }"
}
# totals: bytes that went direct, near and through the host since the module was loaded
totals() {
	local line word n=()
	read -r line < <(grep ^total /sys/kernel/debug/peerdma/stats)
	for word in $line; do
		case $word in direct=* | near=* | host=*) n+=("${word#*=}") ;; esac
	done
	echo "${n[*]}"
}

# --- Reads by each route
read -r direct near host <<<"$(totals)"
bench reads $file --io-size 64K --bytes 1M --svg $results/reads.svg
same "reads: its status" 0 $?
read -r direct_now near_now host_now <<<"$(totals)"
same "the kernel counted the direct row, and nothing else" "1048576 0 0" "$((direct_now - direct)) $((near_now - near)) $((host_now - host))"
i=0
for way in direct bounce host naive; do
	[ $way = direct ] && want="1048576 0 0" || want="0 0 1048576"
	same "reads, $way" "$way read 16 1048576 $want null" \
		"$(got reads /rows/$i/route /rows/$i/rw /rows/$i/ios /rows/$i/bytes /rows/$i/bytes_direct /rows/$i/bytes_near /rows/$i/bytes_host /rows/$i/error)"
	check "reads, $way: it adds up" adds_up reads $i
	i=$((i + 1))
done
same "it knows that it is in an emulator" true "$(got reads /emulated)"
check "the picture is XML" python3 -c "import xml.dom.minidom as x; assert len(x.parse('$results/reads.svg').getElementsByTagName('polyline')) == 8"
peerdma witness --json -- peerdma bench $file --route direct --io-size 64K --bytes 512K >$results/witness.json 2>$results/witness.err
same "the witness: devices moved each byte of a direct row" "0 true direct 524288 0 0" \
	"$? $(got witness /proved /files/0/verdict /files/0/direct /files/0/near /files/0/host)"

# --- Threads, depths, sizes, random
bench many $file --io-size 4K,256K --threads 2 --depth 4 --rw randread --bytes 512K
same "many: its status" 0 $?
for i in 0 1 2 3 4 5 6 7; do check "many, row $i: it adds up" adds_up many $i; done
same "many: as asked" "direct 4096 2 4 524288 naive 262144 2 1 524288" \
	"$(got many /rows/0/route /rows/0/size /rows/0/threads /rows/0/depth /rows/0/bytes_direct /rows/7/route /rows/7/size /rows/7/threads /rows/7/depth /rows/7/bytes)"
check "a row ends with its time" peerdma bench $file --route direct --io-size 4K --runtime 0.2
same "text: a table with its remark" "1 1" "$(peerdma bench $file --route host --bytes 1M >$results/text; grep -c '^JOB' $results/text) $(grep -c '^note .*emulator' $results/text)"

# --- Writes
bench writes $dir/made --rw write --io-size 64K --bytes 512K --file-size 2M
same "writes to a file that it makes: its status" 0 $?
for i in 0 1 2 3; do check "writes, row $i: it adds up" adds_up writes $i; done
same "writes: the direct row" "direct write 524288 0 0 true" "$(got writes /rows/0/route /rows/0/rw /rows/0/bytes_direct /rows/0/bytes_near /rows/0/bytes_host /jobs/0/made)"
same "writes: the file is gone" 0 "$(find $dir/made -mindepth 1 | wc -l)"
bench refused $file --rw write
same "a file of ours is not overwritten" "2 0" "$? $(wc -c <$results/refused.json)"
check "and is as it was" pattern compare $file 0 8388608 pattern:4
check "the reads left it as it was on the drive" on_drive disk0 "$(extents $file)" 8388608 pattern:4
bench over $file --rw randwrite --route direct --io-size 64K --bytes 128K --overwrite
same "but if we say so" "0 131072" "$? $(got over /rows/0/bytes_direct)"
timeout -s KILL 1 peerdma bench $dir/made --runtime 20 --file-size 1M --io-size 64K >/dev/null 2>&1
same "killed: it leaves nothing" "137 0" "$? $(find $dir/made -mindepth 1 | wc -l)"

# --- Rows that are not direct
bench tmpfs /tmp/bench --io-size 64K --bytes 256K --file-size 1M --route direct,naive
same "tmpfs: the direct row has failed, with the reason, and the other is measured" "1 false FILESYSTEM 0 null 262144" \
	"$? $(got tmpfs /ok /rows/0/error/reason /rows/0/bytes /rows/1/error /rows/1/bytes)"
bench odd $file --io-size 512 --bytes 64K --route direct
same "a request of one block" "0 null 65536" "$? $(got odd /rows/0/error /rows/0/bytes_direct)"

# --- Jobs
cat >$results/jobs <<END
[global]
rw=read
bs=64K
runtime=5
bytes=256K
[one]
xfer_type=0
filename=$file
numa_node=0
[two]
xfer_type=2,4
iodepth=2
directory=$dir/made
size=1M
END
bench jobs --jobs $results/jobs
same "a file of jobs" "0 one direct two bounce two naive 262144" "$? $(got jobs /rows/0/job /rows/0/route /rows/1/job /rows/1/route /rows/2/job /rows/2/route /rows/2/bytes)"
echo "frobs=1" >>$results/jobs
bench wrong --jobs $results/jobs
same "a wrong line of it is named" "2 1" "$? $(grep -c 'line 15: unknown key' $results/wrong.err)"

# The host route needs neither the module nor a provider.
rm -rf $dir/made
peerdma unpublish "$(gpu_bdf)" >/dev/null
bench none $file --io-size 64K --bytes 256K
same "without a provider" 1 $?
bench host $file --io-size 64K --bytes 256K --route host
same "without a provider: host memory" "0 262144" "$? $(got host /rows/0/bytes)"
rm -rf $dir
umount /mnt/disk
plan $tap_n
