#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Other references hold pages of freed buffer memory. The log, debugfs and fdinfo must name the former owner until the
# last page is released and while an unbind waits for it. The memory must return to the pool at the last release,
# however many requests of other processes wait for a drive.
# group: lifetime
# topologies: switch
# variants: plain
# needs: CONFIG_BLK_DEV_DM dmsetup
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
device=/sys/bus/pci/devices/$gpu
kmod=$(dirname "$LAB_MODULE")/kmod
held=/sys/kernel/debug/peerdma/held
len=1048576
publish
after=/sys/module/peerdma/parameters/held_seconds
echo 0 >$after

# start_owner: starts a process with a buffer; 3 of its pages get 2 extra references
start_owner() {
	exec {owner_fd}< <(exec hold $len)
	owner=$!
	read -r _ <&"$owner_fd"
	read -r place <&"$owner_fd"
	insmod "$kmod/pin.ko" device="$gpu" offset=$((place + 8192)) pages=3 references=2 || bail "nothing is held"
}
end_owner() {
	kill -KILL "$owner"
	cat <&"$owner_fd" >/dev/null
	exec {owner_fd}<&-
	wait "$owner" 2>/dev/null
}
destroy() { kill -USR2 "$owner"; read -r said <&"$owner_fd"; echo "$said"; }
missing() { echo $(($(cat "$device/p2pmem/size") - $(cat "$device/p2pmem/available"))); }
logged() { dmesg | grep -c "peerdma $gpu: .*$1"; }
is_logged() { [ "$(logged "$1")" -ge 1 ]; }
in_fdinfo() { sed -n 's/^peerdma-held-pages:\t//p' "/proc/$owner/fdinfo/"*; }
names_nobody() { [ ! -s $held ]; }
full() { [ "$(missing)" = 0 ]; }
# line: the log line that names the owner
line() { echo "others hold 3 of $((len / 4096)) pages of buffer [0-9]* (pid $owner, hold), freed [0-9]* s ago"; }

start_owner
same "nothing is amiss while it is in use" "0 " "$(in_fdinfo) $(cat $held)"
same "destroying does not wait for who else holds pages" 0 "$(destroy)"
# If pages are freed one by one, only the held pages and those between them are kept back.
if has_declared mmzone.h page_pgmap; then
	same "three pages are missing from the pool" 12288 "$(missing)"
else
	same "all of it is missing from the pool" $len "$(missing)"
fi
check "debugfs says who had it" grep -Eqx "held provider=[0-9]+ pci=$gpu buffer=[0-9]+ file=[0-9]+ pid=$owner bytes=$len pages=3 references=2 seconds=[0-9]+ comm=hold" $held
same "and so does fdinfo, of the one it was" 3 "$(in_fdinfo)"
sleep 1.2
same "the log does not, if it is told to name nobody" 0 "$(logged "$(line)")"
echo 1 >$after
check "but else it does" soon 5 is_logged "$(line)"
sleep 0.6
same "and once" 1 "$(logged "$(line)")"
[ "$(logged "$(line)")" = 1 ] || diag "$(dmesg | grep "$(line)")"
{ cat $held; dmesg | grep 'others hold'; } >/tmp/held
check "without an address" bash -c "! grep -Ei 'ffff[0-9a-f]{4}|0x' /tmp/held"
check "also of five-level page tables, or in the BAR" tells_no_address /tmp/held
rmmod pin
check "when the last page is let go all is in the pool" soon 5 full
check "the log says so" soon 5 is_logged "the last page of buffer [0-9]* of pid $owner was freed after"
same "debugfs and fdinfo name nobody" " 0" "$(cat $held) $(in_fdinfo)"
end_owner

start_owner
end_owner
same "its owner may be gone" 1 "$(grep -c " pid=$owner .* comm=hold" $held)"
check "who had it is named" soon 5 is_logged "$(line)"
echo "$gpu" >"$device/driver/unbind" &
unbind=$!
check "an unbind says at once whom it waits for" soon 2 is_logged "pid $owner, hold.*; unbinding waits for them"
sleep 1.2
check "and waits" kill -0 $unbind
same "while debugfs lists it" 1 "$(grep -c " pid=$owner .* pages=3 " $held)"
rmmod pin
check "until the last page is let go" soon 5 ended $unbind
check "the log says that" soon 5 is_logged "the last page of buffer [0-9]* of pid $owner was freed after"
check "then debugfs names nobody" soon 5 names_nobody
wait $unbind

publish
start_owner
echo "$gpu" >"$device/driver/unbind" &
unbind=$!
check "a buffer in use: an unbind says in time whom it waits for" soon 5 is_logged "pid $owner, hold.*; unbinding waits for them"
check "and waits" kill -0 $unbind
same "what its owner asks for has ended" "-19 48" "$(kill -USR1 "$owner"; read -r said <&"$owner_fd"; echo "$said")"
same "its fdinfo has the pages" 3 "$(in_fdinfo)"
rmmod pin
check "until the last page is let go" soon 5 ended $unbind
wait $unbind
end_owner

publish
start_owner
end_owner
rmmod peerdma &
unload=$!
check "unloading: the log says in time whom it waits for" soon 5 is_logged "pid $owner, hold.*; unbinding waits for them"
check "and it waits" kill -0 $unload
rmmod pin
check "until the last page is let go" soon 5 ended $unload
wait $unload
check "and the module is gone" [ ! -d /sys/module/peerdma ]
publish

modprobe -d "$LAB_KERNEL" -a dm-mod 2>/dev/null
export DM_DISABLE_UDEV=1
! mountpoint -q /mnt/disk || umount /mnt/disk
disk=$(nvme_disk)
table crowd "0 $(blockdev --getsz "$disk") linear $disk 0"
# More commands than a work queue has workers. The suspended device refuses each until it may block.
crowded=1100
mkfifo /tmp/crowd.go
exec {crowd_fd}< <(exec ring_commands /dev/mapper/crowd $crowded </tmp/crowd.go)
exec {go_fd}>/tmp/crowd.go
read -r _ <&"$crowd_fd"
mkfifo /tmp/late.go
exec {late_fd}< <(exec ring_commands /dev/mapper/crowd 1 destroy </tmp/late.go)
exec {late_go_fd}>/tmp/late.go
read -r _ <&"$late_fd"
start_owner
dmsetup suspend --noflush --nolockfs crowd
echo >&"$go_fd"
read -r said <&"$crowd_fd"
same "$crowded commands are sent to a drive that does not answer" sent "$said"
destroy >/dev/null
rmmod pin
only_crowd() { [ "$(missing)" = 4096 ]; }
echo >&"$late_go_fd"
read -r said <&"$late_fd"
same "a later command is put off, and no worker is left for it" sent "$said"
read -r -t 5 said <&"$late_fd"
same "its buffer can be destroyed meanwhile" destroyed "$said"
check "what another let go, and nobody holds any more, is in the pool all the same" soon 5 only_crowd
dmsetup resume crowd
read -r said <&"$crowd_fd"
same "and the commands come whole" $crowded "$said"
read -r said <&"$late_fd"
same "and the later one found no buffer" 1 "$said"
exec {go_fd}>&- {crowd_fd}<&- {late_go_fd}>&- {late_fd}<&-
end_owner
check "then all is in the pool" soon 5 full
dmsetup remove --retry crowd
rm /tmp/crowd.go /tmp/late.go

echo 5 >$after
plan $tap_n
