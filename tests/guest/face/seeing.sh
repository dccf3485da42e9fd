#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Counters, tracepoints and the commands that print them must match the requests that were made.
# group: seeing
# topologies: disks
# needs: dot CONFIG_MD_RAID1 CONFIG_BLK_DEV_DM
# timeout: 90
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/counted.sh"

dir=/mnt/disk
gpu=$(gpu_bdf)
a=$(nvme_disk nvme0) b=$(nvme_disk nvme1) c=$(nvme_disk nvme2)
afresh
modprobe -d "$LAB_KERNEL" -a raid1 dm-mod 2>/dev/null
export MDADM_NO_UDEV=1 DM_DISABLE_UDEV=1
mkdir -p $out
publish
mke2fs -q -F -t ext4 "$a"
mount_disk
file=$dir/seeing
pattern fill $file 0 3000001 pattern:1
printf -v page '%65536s' x
for i in 1 2 3 4 5 6; do echo -n "$page" >$dir/w$i; done
truncate -s 65536 $dir/hole
sync
read -r dev <"/sys/class/block/${a##*/}/dev"
read -r inode <<<"$(stat -c %i $file)"

# start NAME ACT...: starts a process that makes requests and then waits
declare -A pids ends
start() {
	local line='' fd
	mkfifo "$out/$1.in"
	: >"$out/$1"
	seeing "${@:2}" <"$out/$1.in" >"$out/$1" &
	pids[$1]=$!
	exec {fd}>"$out/$1.in"
	ends[$1]=$fd
	await "$1" 1
}
# await NAME N: waits for its N-th "ready"
await() {
	local i text rest
	for ((i = 0; i < 400; i++)); do
		text=$(<"$out/$1")
		rest=${text//ready/}
		[ $(((${#text} - ${#rest}) / 5)) -lt "$2" ] || return 0
		kill -0 "${pids[$1]}" 2>/dev/null || return 1
		read -rt 0.05 <>"$out/nobody"
	done
	return 1
}
mkfifo $out/nobody

# --- Counters
echo -n x >/tmp/elsewhere
ring=ring:$file:0:4096:8
start one read:$file:0:20480:0 read:$file:2998272:4096:524288 write:$file:0:8192:0 write:$file:100:50:0 \
	read:$file:0:4096:1 read:$file:0:4096:1048576 read:/tmp/elsewhere:0:4096:0 \
	$ring ring:$file:100:1000:1 ring:$file:0:2097152:2:3 limit write:$file:536870912:4096:0 wait again read:$file:0:4096:0
start two read:$file:0:4096:0 read:$file:0:0:0 wait again
one="16 3 63488 681 4146 1 4 3:3 18:1"
two="2 0 4096 0 0 0 1 1:1"
both="18 3 67584 681 4146 1 5 1:1 3:3 18:1"
disk="17 3 67584 681 4146 1 4 1:1 3:3"
same "what a process's requests said" "$one" "$(counters one said)"
same "its fdinfo says exactly that" "$one" "$(counters one fdinfo)"
same "another's says what was its own" "$two" "$(counters two fdinfo)"
same "and what it holds" "fdinfo buffer-bytes 1048576" "$(grep '^fdinfo buffer-bytes' $out/two)"
cat $stats >$out/debugfs
same "debugfs: one" "$one" "$(entry "file .* pid=${pids[one]} .* comm=seeing$")"
same "debugfs: the other" "$two" "$(entry "file .* pid=${pids[two]} .* comm=seeing$")"
same "debugfs: the total is their sum" "$both" "$(entry total)"
same "debugfs: the provider's too" "$both" "$(entry "provider id=1 pci=$gpu ")"
same "debugfs: the disk's, without what was on no disk" "$disk" "$(entry "disk provider=1 dev=$dev name=${a##*/} leaves=${a##*/} ")"
same "debugfs is for root" 400 "$(stat -c %a $stats)"

# --- Tracepoints
traced read:$file:2998272:4096:512 read:/tmp/elsewhere:0:4096:0 ring:$file:0:4096:1
key="pid=$pid dev=$dev ino=$inode"
read -r elsewhere <<<"$(stat -c "%Hd:%Ld ino=%i" /tmp/elsewhere)"
same "submit" "read $key file_off=2998272 len=4096 buffer=1 provider=1 async=0 number=0" "$(first submit)"
same "complete" "read $key file_off=2998272 len=4096 buffer=1 provider=1 done=1729 direct=1536 near=193 host=0 reason=20 error=0 async=0 number=0" "$(first complete)"
same "bounce" "near $key bytes=193 provider=1 reason=20" "$(first bounce)"
same "refuse" "read pid=$pid dev=$elsewhere provider=1 reason=18 error=-18" "$(first refuse)"
same "complete of a ring's" "read $key file_off=0 len=4096 buffer=1 provider=1 done=4096 direct=4096 near=0 host=0 reason=0 error=0 async=1 number=1" "$(last complete)"
same "as many ends as begins and refusals, and one bounce" "3 2 1 1" "${nr[complete]} ${nr[submit]} ${nr[refuse]} ${nr[bounce]}"
same "revoke" "destroy provider=1 len=1048576" "$(first revoke)"

# --- peerdma stat
peerdma stat --json >$out/stat.json
same "stat: a process" "${pids[one]} seeing 16 3 63488 681 4146 4 3 1 1" "$(got stat.json /files/0/pids/0 /files/0/comm /files/0/reads /files/0/writes /files/0/direct_bytes /files/0/near_bytes \
	/files/0/host_bytes /files/0/refused /files/0/refused_by_reason/BUF_RANGE /files/0/refused_by_reason/FILESYSTEM /files/0/errors)"
same "stat: the disk, with what is over" "${a##*/} ${a##*/} $((67584 + 1536 + 4096)) 874" "$(got stat.json /disks/0/name /disks/0/leaves/0 /disks/0/direct_bytes /disks/0/near_bytes)"
peerdma stat 0.01 2 >$out/stat
same "stat, twice" 2 "$(grep -c '^since the module' $out/stat)"
check "names the process" grep -q "^${pids[one]} seeing" $out/stat
chmod 666 /dev/peerdma
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
exec {held}<>/dev/peerdma
nobody peerdma stat --json >$out/stat-nobody.json
exec {held}>&-
same "stat without root: only one's own" "0 absent null" "$(got stat-nobody.json /files/0/reads /files/1 /total)"

# --- peerdma witness
dmsetup create seeing --table "0 131072 linear $b 2048"
IFS=: read -r major minor </sys/class/block/dm-0/dev
mknod -m 600 $out/dm b "$major" "$minor"
witness -- seeing read:$dir/w1:0:65536:0 read:$dir/w2:100:5000:0 read:$dir/w3:0:4096:1 read:$dir/w4:0:4096:1048576 \
	ring:$dir/w5:0:4096:8 ring:$dir/w5:100:1000:1 write:$dir/w6:0:65536:0 read:$out/dm:0:65536:0 >$out/witness.json
same "witness: its status, the command's, and its word" "0 0 true" "$? $(got witness.json /command_status /proved)"
disk=${a##*/}
same "witness: through device-mapper, by the drive below" "read direct 1 65536 0 0 0 ${b##*/} 65536" "$(seen 0)"
same "witness: direct" "read direct 1 65536 0 0 0 $disk 65536" "$(seen 1)"
same "witness: edges bounced near, and moved as whole blocks" "read direct, edges near 1 4096 904 0 0 $disk 5120" "$(seen 2)"
same "witness: bounced through host memory" "read host 1 0 0 4096 0" "$(seen 3 | cut -d' ' -f1-7)"
same "witness: refused" "read refused 1 0 0 0 0 absent absent" "$(seen 4)"
same "witness: a ring's requests, one of them by its worker" "read direct, edges near 9 33280 488 0 0 $disk 1536" "$(seen 5)"
same "witness: what was sent without waiting was moved" "read $disk 32768 false" "$(got witness.json /pools/0/direction /pools/0/leaves/0/name /pools/0/leaves/0/bytes /pools/0/of_others_too)"
same "witness: a write" "write direct 1 65536 0 0 0 $disk 65536" "$(seen 6)"
rm $out/dm
dmsetup remove seeing

mdadm --build /dev/md7 --level=1 -n 2 --assume-clean "$b" "$c" >/dev/null 2>&1
# By a grandchild.
witness -- bash -c "bash -c 'seeing read:/dev/md7:0:65536:0 write:/dev/md7:0:65536:0'; true" >$out/witness-md.json
same "witness: a mirror, read from one leg" "0 read direct 1 65536 0 0 0" "$? $(seen 0 witness-md | cut -d' ' -f1-7)"
same "witness: and written to both" "write direct 1 65536 0 0 0" "$(seen 1 witness-md | cut -d' ' -f1-7)"
check "witness: each leg has all of it" test "$(grep -c '"bytes": 65536' $out/witness-md.json)" = 3
cat $stats >$out/debugfs
same "debugfs: the mirror and its leaves" "1 1 131072 0 0 0 0" "$(entry "disk provider=1 dev=9:7 name=md7 leaves=(${b##*/},${c##*/}|${c##*/},${b##*/}) ")"
mdadm --stop /dev/md7 2>/dev/null

peerdma witness -- seeing read:$dir/hole:0:65536:0 >$out/witness-hole
same "witness: a hole proves nothing" 1 $?
check "witness: because no device moved it" grep -qE "^  UNMOVED +65536 bytes" $out/witness-hole
check "witness: what it cannot see" grep -q "^what this command cannot see" $out/witness-hole

# watch NAME FILE: starts a witness of a process of start() and waits until it waits for events
watch() {
	peerdma witness --json "${pids[$1]}" >"$out/$2" 2>/dev/null &
	watcher=$!
	own=$tracing/instances/peerdma-$watcher
	for ((i = 0; i < 200; i++)); do
		[[ "$(cat $own/events/peerdma/peerdma_submit/enable 2>/dev/null) $(</proc/$watcher/wchan)" != "1 "*poll* ]] || break
		sleep 0.05
	done
}

# A process that existed before, and an interruption halfway.
start idle read:$dir/w1:0:4096:0 wait read:$dir/w1:0:8192:0 wait again
watch idle witness-pid.json
check "witness: an instance of its own" test -d $own
echo >&"${ends[idle]}"
await idle 2
kill -TERM $watcher
wait $watcher
same "witness: what it saw until it was interrupted" "0 true read direct 1 8192 0 0 0" "$? $(got witness-pid.json /interrupted) $(seen 0 witness-pid | cut -d' ' -f1-7)"
eval "exec ${ends[idle]}>&-"
wait "${pids[idle]}"

# Events for which the kernel's buffer had no room.
many=()
for ((i = 0; i < 200; i++)); do many[i]=read:$dir/w1:0:4096:0; done
start fast read:$dir/w1:0:4096:0 wait "${many[@]}" wait
watch fast witness-lost.json
kill -STOP $watcher
echo 8 >$own/buffer_size_kb
echo >&"${ends[fast]}"
await fast 2
kill -CONT $watcher
echo >&"${ends[fast]}"
wait $watcher
same "witness: not proved, as events were lost" "1 false yes" "$? $(got witness-lost.json /proved) $([ "$(got witness-lost.json /lost_events)" -gt 100 ] && echo yes)"
wait "${pids[fast]}"
eval "exec ${ends[fast]}>&-"
same "witness: no instance is left" "" "$(ls $tracing/instances)"
why=$(nobody peerdma witness -- true 2>&1)
same "witness without root" "1 yes" "$? $([[ $why != *"for root"* ]] || echo yes)"

# --- peerdma topo
peerdma topo >$out/topo
check "topo: dot draws it" peerdma topo --svg $out/topo.svg
check "topo: into SVG, with the pair" grep -q 'bus address' $out/topo.svg
peerdma topo --json >$out/topo.json
nvme=$(nvme_bdf nvme0)
above=$(realpath "/sys/bus/pci/devices/$nvme/..")
check "topo: the pair" grep -qE "^$disk \($nvme\) to provider 1 \($gpu\): direct, distance 4, bus address$" $out/topo
check "topo: the drive in the tree" grep -qE "^ +$nvme  NVMe drive .*, nvme.*, disk $disk" $out/topo
check "topo: one that is refused, with the reason" grep -qE "^nvme.* to provider 1 .*: refused, .*INTEGRITY" $out/topo
functions=(/sys/bus/pci/devices/*)
same "topo: every function, once" "${#functions[@]}" "$(grep -c '^      "class":' $out/topo.json)"
check "topo: JSON has the drive below its bridge" grep -qF "$nvme${above##*/}" <(tr -d '\n ' <$out/topo.json | sed 's/"pci":"//g; s/","parent":"//g')
check "topo: without dot it says what to install" grep -q graphviz <(PATH=$LAB_BUILD/bin peerdma topo --svg $out/none.svg 2>&1)
chmod 660 /dev/peerdma

# --- None of this reveals a kernel address, and a removed provider stays visible in the totals
same "no address anywhere" "" "$(grep -rnE '0x[0-9a-f]{9,}|ffff[0-9a-f]{8}' $out --include='[a-z]*' --exclude='*.in')"
check "nor one of five-level page tables, or in the BAR" tells_no_address "$(find $out -type f)"
check "and there was something to look at" test "$(cat $out/{trace,stat,debugfs,witness-hole,topo,one} | wc -l)" -gt 50
check "unpublish" peerdma unpublish "$gpu"
trace=$tracing/instances/seeing
mkdir $trace
echo 1 >$trace/events/peerdma/enable
echo >&"${ends[one]}"
echo >&"${ends[one]}"
wait "${pids[one]}"
echo 0 >$trace/tracing_on
same "what lost its memory is traced as that" "refuse: read pid=${pids[one]} dev=$dev ino=$inode provider=0 reason=48 error=-19" "$(sed -n 's/.*peerdma_\(refuse: .*\)/\1/p' $trace/trace)"
rmdir $trace
same "what lost its memory is counted as that" "1 4" "$(sed -n 's/^fdinfo refused-48 //p' $out/one | tail -n 1) $(sed -n 's/^fdinfo refused //p' $out/one | head -n 1)"
eval "exec ${ends[one]}>&- ${ends[two]}>&-"
wait "${pids[two]}"
cat $stats >$out/debugfs
same "who is gone is not shown, but still in the total" "0 1" "$(grep -c '^file' $out/debugfs) $(grep -o 'refused-48=[0-9]*' $out/debugfs | cut -d= -f2)"
check "nothing holds the filesystem" umount $dir
check "unload" rmmod peerdma
check "debugfs is gone with the module" test ! -e $stats
plan $tap_n
