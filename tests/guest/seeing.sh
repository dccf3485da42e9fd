#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What can be seen of PeerDMA is what happened: counters, tracepoints, and the commands over them.
# group: seeing
# topologies: switch
# needs: dot python3
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

tracing=/sys/kernel/tracing
stats=/sys/kernel/debug/peerdma/stats
outputs=/tmp/seeing
gpu=$(gpu_bdf)
nvme=$(nvme_bdf)
[ ! -d /sys/module/peerdma ] || { peerdma unpublish "$gpu" >/dev/null; rmmod peerdma; }
mkdir -p $outputs
publish
mount_disk
disk=$(nvme_disk)
file=/mnt/disk/seeing
pattern fill $file 0 3000001 pattern:1
truncate -s 1048576 /mnt/disk/hole
sync
inode=$(stat -c %i $file)
dev=$(lsblk -dno MAJ:MIN "$disk" | tr -d ' ')

# start NAME READS: a process with a past, waiting
start() {
	mkfifo "$outputs/$1.in"
	seeing $file "$2" <"$outputs/$1.in" >"$outputs/$1" &
	pids[$1]=$!
	exec {fd}>"$outputs/$1.in"
	ends[$1]=$fd
	while kill -0 "${pids[$1]}" 2>/dev/null && ! grep -q ready "$outputs/$1"; do sleep 0.05; done
}
# said FILE PREFIX: its lines of that kind, in order
said() { grep "^$2 " "$outputs/$1" | cut -d' ' -f2- | grep -v '^file ' | sort; }
declare -A pids ends

# --- counters
start one 5
start two 9
same "what requests said: reads" "reads 9" "$(said one said | grep '^reads')"
same "and bytes" "direct-bytes 28672 near-bytes 193" "$(said one said | grep -E 'direct|near' | xargs)"
same "and refusals" "refused 3 refused-3 1 refused-4 2" "$(said one said | grep refused | xargs)"
same "and an error without a reason" "errors 1" "$(said one said | grep errors)"
same "fdinfo says exactly that" "$(said one said)" "$(said one fdinfo)"
same "a second process sees its own only" "$(said two said)" "$(said two fdinfo)"
same "which is something else" "reads 13" "$(said two fdinfo | grep '^reads')"
cp $stats $outputs/debugfs
# entry KIND-REGEX: of debugfs, as said prints
entry() { grep -E "^$1" $outputs/debugfs | tr ' ' '\n' | grep -E '^(reads|writes|direct|near|host|errors|refused)' | tr '=' ' ' | sed -E 's/^(direct|near|host) /\1-bytes /' | sort; }
counters() { grep -v buffer; }
for name in one two; do
	same "debugfs of the open file $name" "$(said $name said | counters)" "$(entry "file .* pid=${pids[$name]} .* comm=seeing$")"
done
sum=$(cat <(said one said) <(said two said) | counters | awk '{ n[$1] += $2 } END { for (k in n) print k, n[k] }' | sort)
same "the total is their sum" "$sum" "$(entry total)"
same "the provider's too" "$sum" "$(entry "provider id=[0-9]+ pci=$gpu ")"
same "the device's too" "$sum" "$(entry "device dev=$dev ")"
same "debugfs is for root" 400 "$(stat -c %a $stats)"
check "a fresh open file has no buffers" bash -c '
	exec 5<>/dev/peerdma; grep -q "^peerdma-buffers:.0$" /proc/self/fdinfo/5'

# --- tracepoints
trace=$tracing/instances/seeing
mkdir $trace
echo 1 >$trace/events/peerdma/enable
read -r _ _ _ direct near _ _ <<<"$(pdio read $file 2998272 4096 512)"
pdio read $file 1 4096 0 >/dev/null
echo 0 >$trace/tracing_on
cp $trace/trace $outputs/trace
rmdir $trace
events() { grep -o "$1: .*" $outputs/trace; }
key="dev=$dev ino=$inode file_off=2998272 len=4096 buffer=1 provider=1"
same "the request that was traced" "1536 193" "$direct $near"
same "submit" "peerdma_submit: read $key" "$(events peerdma_submit)"
same "complete" "peerdma_complete: read $key done=1729 direct=1536 near=193 host=0 reason=20 error=0" "$(events peerdma_complete | head -n 1)"
same "bounce" "peerdma_bounce: near dev=$dev ino=$inode bytes=193 provider=1 reason=20" "$(events peerdma_bounce)"
same "refuse" "peerdma_refuse: read dev=$dev ino=$inode provider=1 reason=4 error=-22" "$(events peerdma_refuse)"
same "revoke: each process's buffer" "peerdma_revoke: destroy provider=1 len=8192;peerdma_revoke: destroy provider=1 len=4096" "$(events peerdma_revoke | paste -sd';')"

# --- peerdma stat
# member PYTHON-EXPRESSION: of the JSON on standard input, called j
member() { python3 -c "import json, sys; j = json.load(sys.stdin); print($1)"; }
peerdma stat --json >$outputs/stat.json
of_one='next(f for f in j["files"] if f["pids"] == ['${pids[one]}'])'
same "stat: a process" "seeing 9 28672 193 0 {'BUF_RANGE': 1, 'FILE_ALIGN': 2} 1" "$(member "'%s %s %s %s %s %s %s' % tuple(${of_one}[k] for k in ('comm', 'reads', 'direct_bytes', 'near_bytes', 'host_bytes', 'refused_by_reason', 'errors'))" <$outputs/stat.json)"
same "stat: the device" "$(basename "$disk") $((28672 + 45056 + 1536))" "$(member "'%s %s' % tuple(next(d for d in j['devices'] if d['dev'] == '$dev')[k] for k in ('name', 'direct_bytes'))" <$outputs/stat.json)"
check "stat: text names the process" grep -q "^${pids[one]} seeing" <(peerdma stat | tee $outputs/stat)
chmod 666 /dev/peerdma
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
same "stat without root: nobody else's" "0 None" "$(nobody peerdma stat --json | member "'%s %s' % (len(j['files']), j['total'])")"
same "stat without root: one's own" 1 "$(nobody bash -c 'exec 7<>/dev/peerdma; peerdma stat --json' | member "len(j['files'])")"
same "stat: one open file in two processes is one" "1 True" "$(nobody bash -c 'exec 7<>/dev/peerdma; sleep 5 & peerdma stat --json; kill $!' | member "'%s %s' % (len(j['files']), len(j['files'][0]['pids']) > 1)")"
same "stat --watch --count" 2 "$(peerdma stat --watch 0.01 --count 2 | grep -c '^since the module')"

# --- peerdma witness
witness() { peerdma witness --json "$@" 2>/dev/null; }
claims='"%s %s %s %s" % (j["proved"], j["files"][0]["direct"], j["files"][0]["near"], j["files"][0]["unmoved"])'
witness -- pdio read $file 2998272 4096 512 >$outputs/witness.json
same "witness: proves a file's read" 0 $?
same "its bytes, those of the end included" "True 1536 193 0" "$(member "$claims" <$outputs/witness.json)"
same "the drive moved whole blocks" "$(basename "$disk") 2048" "$(member '"%s %s" % (j["files"][0]["leaves"][0]["name"], j["files"][0]["leaves"][0]["bytes"])' <$outputs/witness.json)"
same "and the command's own status" 0 "$(member 'j["command_status"]' <$outputs/witness.json)"
witness -- pdio read /mnt/disk/hole 0 65536 0 >$outputs/witness-hole.json
same "witness: a hole proves nothing" 1 $?
same "because no device moved it" "False 65536 0 65536 0" "$(member "$claims + ' %d' % len(j['files'][0]['leaves'])" <$outputs/witness-hole.json)"
same "witness: a write, by a child of a child" "True 65536 write" "$(witness -- bash -c "bash -c 'pdio write $file 0 65536 0'; true" | member '"%s %s %s" % (j["proved"], j["files"][0]["direct"], j["files"][0]["direction"])')"
same "witness: a refusal" "False 1" "$(witness -- pdio read $file 1 4096 0 | member '"%s %s" % (j["proved"], j["files"][0]["refused"])')"
witness -- true >$outputs/witness-none.json
same "witness: silence is no proof" "1 False" "$? $(member 'j["proved"]' <$outputs/witness-none.json)"
same "witness: says what it cannot see" 1 "$(peerdma witness -- true | grep -c '^what this command cannot see')"
# A process that is there already, and an interruption half way. It is idle while it is attached to: an emulated
# CPU that runs where the kernel patches a tracepoint in may trip over the breakpoint that is there meanwhile.
mkfifo $outputs/idle.in
bash -c "read; pdio read $file 0 4096 0; echo done; read" <$outputs/idle.in >$outputs/idle &
idle=$!
exec {fd}>$outputs/idle.in
peerdma witness --json $idle >$outputs/witness-pid.json 2>/dev/null &
watcher=$!
for ((i = 0; i < 100; i++)); do
	[ ! -e $tracing/instances/peerdma-$watcher ] || [ ! -s $tracing/instances/peerdma-$watcher/set_event_pid ] || break
	sleep 0.05
done
check "witness: an instance of its own" test -d $tracing/instances/peerdma-$watcher
echo >&"$fd"
for ((i = 0; i < 100; i++)); do
	! grep -q '^done$' $outputs/idle || break
	sleep 0.05
done
sleep 0.3
kill -TERM $watcher
wait $watcher
check "which is gone when it is interrupted" test ! -d $tracing/instances/peerdma-$watcher
same "what it saw until then, of a child too" "True True 4096" "$(member '"%s %s %s" % (j["interrupted"], j["proved"], j["files"][0]["direct"])' <$outputs/witness-pid.json)"
exec {fd}>&-
wait $idle
same "no instance is left" "" "$(ls $tracing/instances)"
out=$(nobody peerdma witness -- true 2>&1)
same "witness without root: its status" 1 $?
check "and why" grep -q "for root" <<<"$out"

# --- peerdma topo
peerdma topo --json >$outputs/topo.json
same "topo: the pair" "$nvme $gpu direct 4 bus address" "$(member "'%s %s %s %s %s' % tuple(next(p for p in j['pairs'] if p['disk'] == '$(basename "$disk")')[k] for k in ('disk_pci', 'provider_pci', 'verdict', 'distance', 'map'))" <$outputs/topo.json)"
same "topo: every function" "$(ls /sys/bus/pci/devices)" "$(member '"\n".join(sorted(f["pci"] for f in j["functions"]))' <$outputs/topo.json)"
above() { basename "$(dirname "$(realpath "/sys/bus/pci/devices/$1")")"; }
same "topo: the drive is below its bridge" "$(above "$nvme")" "$(member "next(f['parent'] for f in j['functions'] if f['pci'] == '$nvme')" <$outputs/topo.json)"
peerdma topo >$outputs/topo
check "topo: text" grep -qE "^$(basename "$disk") \($nvme\) to provider 1 \($gpu\): direct, distance 4, bus address$" $outputs/topo
check "topo: the tree's drive" grep -qE "^ +$nvme  NVMe drive .*, disk $(basename "$disk")" $outputs/topo
peerdma topo --dot >$outputs/topo.dot
check "topo: DOT has the pair" grep -qF "\"$nvme\" -> \"$gpu\" [label=\"$(basename "$disk"): direct\\ndistance 4\\nbus address\"" $outputs/topo.dot
check "topo: dot draws it" peerdma topo --svg $outputs/topo.svg
same "topo: the picture is XML and has the pair" "svg True" "$(python3 -c "
import xml.etree.ElementTree as e
root = e.parse('$outputs/topo.svg').getroot()
print(root.tag.split('}')[1], 'bus address' in ''.join(root.itertext()))")"
check "topo: without dot it says what to install" grep -q graphviz <(PATH=$LAB_BUILD/bin peerdma topo --svg $outputs/none.svg 2>&1)
same "topo: without the right to open the drive" "unknown EACCES" "$(nobody peerdma topo --json | member '"%s %s" % (j["pairs"][0]["verdict"], j["pairs"][0]["errno"])')"
chmod 660 /dev/peerdma

# --- nothing of all this tells an address of the kernel
peerdma witness -- pdio read $file 0 4096 0 >$outputs/witness 2>&1
addresses=$(grep -rnE '0x[0-9a-f]{9,}|ffff' $outputs --include='[a-z]*' --exclude='*.in')
same "no address anywhere" "" "$addresses"
check "and there was something to look at" test "$(cat $outputs/{trace,stat,debugfs,witness,topo,one} | wc -l)" -gt 50

# Both before either is waited for: the second has inherited the first's end.
eval "exec ${ends[one]}>&- ${ends[two]}>&-"
wait "${pids[one]}" "${pids[two]}"
same "who is gone is not shown" 0 "$(grep -c '^file' $stats)"
check "unpublish" peerdma unpublish "$gpu"
check "unload" rmmod peerdma
check "debugfs is gone with the module" test ! -e $stats
plan $tap_n
