#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Memory of a vendor's driver as buffers: peerdma_nvidia.ko with a stand-in for NVIDIA's driver (tests/kmod/nvstand.c,
# nvidia.cpp). Covers both forms of registration, both versions of the table, every refusal, and memory that is freed at
# any moment. LAB_BRIEF: skips the longest parts, `moves` and `races`; for mutants.
# group: lifetime
# topologies: switch
# timeout: 120
# long: oldest debug
# coverage: gcov debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/foreign.sh"

program=(nvidia)
rounds=40
[ "$LAB_VARIANT" = plain ] || rounds=5

# stand [PARAMETERS]: loads the driver and binds it to the GPU
stand() { insmod "$modules/kmod/nvstand.ko" "$@" && bind_to nvstand; }
no_stand() { rmmod nvstand; }
# behave PARAMETER=VALUE...: resets all other parameters
behave() {
	local at=/sys/module/nvstand/parameters set
	for set in version=65538 flags=0 size_code=1 fewer=0 layout=0 refuse=0 refuse_persistent=0 early=0 lag=0 map_lag=0 owned=0 \
		no_memory=0 put_error=0 "$@"; do
		echo "${set#*=}" >$at/"${set%%=*}"
	done
}
# form 1|0: persistent registration, or with a callback
form() { echo "$1" >/sys/module/peerdma_nvidia/parameters/persistent; }
refusal() { part "$1" refused "$2" "$3"; }
# faulty WHAT REASON ERRNO PARAMETER=VALUE...: the refusal when the driver behaves so
faulty() {
	behave "${@:4}"
	refusal "${@:1:3}"
}
given() { [ "$(</sys/kernel/debug/nvstand/given)" = "$1" ]; }
# free_it frees the memory that nvidia.cpp has registered
free_it() { echo $((0x7f0000000000 + 20 * 65536)) >/sys/kernel/debug/nvstand/free; }
uvm_looks() { echo $((0x7f0000000000 + 20 * 65536)) >/sys/kernel/debug/nvstand/adopt; }
# others_have: takes references to pages of it
others_have() { insmod "$modules/kmod/pin.ko" "device=$GPU" bar=2 offset=$((20 * 65536)) pages=2 || bail "pin.ko"; }
# keep COMMAND...: starts nvidia.cpp, which waits for a line
keep() {
	coproc keeper { exec nvidia "$@"; } # sets keeper_PID
	read -r said <&"${keeper[0]}"
	same "a process has some" registered "$said"
}
# asks PID: several of its threads are inside ioctls
asks() { [ "$(cat "/proc/$1"/task/*/syscall | grep -c '^16 ')" -gt 1 ]; }
# let_go WHAT HOW [COMMAND]: starts nvidia.cpp, runs COMMAND and makes it release the memory
let_go() {
	keep let_go "$2"
	"${@:3}"
	echo >&"${keeper[1]}"
	read -r said <&"${keeper[0]}"
	same "$1" "done" "$said"
}
# no_memory_for WHAT FUNCTION [--all]: a registration for which this kernel function finds no memory
no_memory_for() { relay_as "no memory for $1" without_memory "${@:3}" "$2" nvidia refused 0 12; }
# lost WHAT: nvidia.cpp says that its memory is gone
lost() {
	read -r said <&"${keeper[0]}"
	same "$1" "gone 19" "$said"
}
# ours: reloads our module
ours() { insmod "$modules/peerdma_nvidia.ko" persistent=0 callback=1 || bail "peerdma_nvidia.ko"; }
fails() { ! "$@"; }
nobodys() { ! peerdma providers | grep -q "$GPU"; }
# kept_until_freed WHAT: the driver has nvidia.cpp's memory still, and calls our module when it is freed
kept_until_freed() {
	check "$1: our module stays" fails rmmod peerdma_nvidia
	check "$1: it is freed" free_it
	check "$1: and is the driver's" given 0
	check "$1: and our module goes" rmmod peerdma_nvidia
}
unbind_gpu() { echo "$GPU" >/sys/bus/pci/drivers/nvstand/unbind; }
# with_stand WHAT REASON ERRNO PARAMETER=VALUE...: the refusal when the driver is loaded so
with_stand() {
	stand "${@:4}"
	refusal "${@:1:3}"
	no_stand
}

afresh
load_module
foreign_files
# nvidia.cpp imports a dma-buf of the memory where the kernel lets the module revoke its own.
allowed=/sys/module/peerdma/parameters/revocable_imports
if has_function dma_buf_attach_revocable; then
	DRIVE=$(nvme_bdf)
	export DRIVE
	echo 1 >$allowed
fi

refusal "no module for the vendor" 64 95
insmod "$modules/peerdma_nvidia.ko" || bail "peerdma_nvidia.ko"
refusal "no driver" 65 95

stand || bail "nvstand.ko"
behave version=131072 layout=1
part "persistent, version 2, scattered" moves scattered
faulty "not persistent, and no call allowed" 66 95 version=131072 refuse_persistent=-524
echo 1 >/sys/module/peerdma_nvidia/parameters/callback
part "not persistent on this GPU, version 2" moves linear
if [ "$LAB_VARIANT" = plain ]; then
	behave
	part "persistent, version 1" moves linear
	form 0
	behave layout=1
	part "by ticket, version 1, scattered" moves scattered
	form 1
fi
behave

part "two of them" once
faulty "memory of which nvidia-uvm has given out pages" 72 16 owned=1
behave no_memory=2
keep keep
uvm_looks
same "nvidia-uvm finds no page of it to give out" 0 "$(</sys/kernel/debug/nvstand/wrong)"
end_keeper
check "a driver that has no memory to take it back is asked again" soon 5 given 0
behave put_error=-5
keep keep
end_keeper
check "a driver that takes it back with an error" soon 5 given 0
check "is named in the log" soon 5 eval 'dmesg | grep -q "did not take memory back: -5"'
behave
beside_lock "the GPU" "$GPU" refusal "another has the GPU's device lock" 72 16
if has_faults; then
	no_memory_for "its addresses" __kvmalloc_node_noprof
	! has_function mmu_notifier_register || no_memory_for "watching its process" mmu_notifier_register --all
fi
if [ "$LAB_VARIANT" = plain ]; then
	faulty "the driver refuses" 66 95 refuse_persistent=-22
	faulty "a table of version 3" 67 95 version=196608
	faulty "a table of version 1.0" 67 95 version=65536
	faulty "pages of another size" 67 95 size_code=2
	faulty "a table that is too short" 67 95 fewer=1
	faulty "memory that is no BAR's" 68 95 version=131072 flags=1
	faulty "a frame outside of the BAR" 68 95 layout=2
	faulty "the same frame twice" 72 16 layout=3
	faulty "a frame that is not published" 69 95 layout=4
fi
form 0
for broken in version=196608 layout=2 layout=3; do
	behave $broken
	nvidia refused 0 0 >/dev/null
	check "by ticket, $broken: nothing is kept" soon 2 given 0
done
faulty "by ticket, the driver refuses" 66 95 refuse=-22
behave
! has_faults || no_memory_for "its ticket" __xa_alloc_cyclic
faulty "freed before it was known" 73 19 early=1
behave early=2
part "freed at once" early
behave
part "freed" freed
part "called twice" again
part "all at once" races $rounds
# 1 s: longer than what nvidia.cpp does meanwhile.
behave map_lag=1000
part "mapped at the same time" mapping
behave
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
if [ -e /sys/fs/cgroup/dmem.capacity ]; then part "at once by two" regions "$GPU"; fi

# Freeing also waits for other holders of pages.
keep keep
others_have
free_it &
freeing=$!
sleep 1
check "who frees it waits for who holds a page of it" kill -0 $freeing
rmmod pin
check "and not for longer" soon 5 ended $freeing
waited=$(</sys/kernel/debug/nvstand/waited) ran=$(</sys/kernel/debug/nvstand/ran)
check "and sleeps meanwhile" [ $((waited > 500 && ran < waited / 10)) = 1 ]
diag "$waited ms, of a CPU $ran ms"
lost "its owner hears of it"
end_keeper

keep keep
hold_lock /mnt/disk/foreign
free_it &
freeing=$!
check "who frees it does not wait for a file's lock" soon 10 ended $freeing
check "which another still has" kill -0 "$locker"
release_lock
lost "its owner hears of it then"
end_keeper

# With tickets the driver takes memory back from the process that registered it. For memory released otherwise, it calls
# our callback when the process frees it, and the callback must still exist.
let_go "its own process destroys it" thread
check "the driver has it back" given 0
check "and calls nobody" rmmod peerdma_nvidia
check "as there is nothing to free" fails free_it
end_keeper
ours
behave no_memory=1
let_go "the driver has no memory to take it back" thread
check "no memory to take it back: the driver has it still" given 1
kept_until_freed "no memory to take it back"
end_keeper
for how in destroy close; do
	ours
	let_go "$how by another process" $how
	check "$how: it is nobody's buffer any more" soon 5 nobodys
	check "$how: the driver has it still" given 1
	kept_until_freed "$how"
	end_keeper
done
ours
let_go "while others hold it" thread others_have
rmmod pin
check "while others hold it: nobody waits for them" soon 5 nobodys
check "while others hold it: the driver has it still" given 1
end_keeper
kept_until_freed "while others hold it"
ours
let_go "just when others held it" thread others_have
rmmod pin
part "just when others held it" soon
end_keeper

# The user exits, or the owner exits. The driver takes its time.
behave lag=300
for persistent in 1 0; do
	form $persistent
	keep keep
	check "form $persistent: our module stays meanwhile" fails rmmod peerdma_nvidia
	check "form $persistent: the driver stays meanwhile" fails rmmod nvstand
	end_keeper
	check "form $persistent: a process that is killed keeps nothing" soon 5 given 0
	keep keep
	check "form $persistent: the GPU is unbound" timeout 20 bash -c "echo $GPU >/sys/bus/pci/drivers/nvstand/unbind"
	lost "form $persistent: who had some has lost it"
	check "form $persistent: the driver has all of it back" given 0
	same "form $persistent: nothing wrong" 0 "$(</sys/kernel/debug/nvstand/wrong)"
	end_keeper
	bind_to nvstand
	if grep -q " mmu_notifier_register$" /proc/kallsyms; then
		keep pass
		echo >&"${keeper[1]}"
		read -rt 5 said <&"${keeper[0]}"
		same "form $persistent: its process ends: who was passed it has lost it" "gone 19" "$said"
		check "form $persistent: its process ends: the driver has it back" soon 5 given $((1 - persistent))
		wait
		[ $persistent = 1 ] || free_it
	fi
done
# Other holders release their pages just before the unbind; the module is not notified.
form 1
for _ in 1 2 3; do
	keep keep
	others_have
	end_keeper
	sleep 1
	check "others have let go: the GPU is unbound" nvidia unbind "$GPU"
	bind_to nvstand
done
same "others have let go: the driver had it back before" 0 "$(</sys/kernel/debug/nvstand/wrong)"
same "nobody gives back what another one has asked for" 0 "$(</sys/kernel/debug/nvstand/strangers)"
# The second of two that unbind it holds its device lock while the first one waits for a read.
keep keep
throttle 131072
soon 20 waits $keeper_PID || not_ok "a slow read is under way"
unbind_gpu &
unbinding=$!
sleep 0.5
same "a GPU that is being unbound: no more is registered" ok "$(nvidia refused 48 19 | head -n 1 | cut -d' ' -f1)"
unbind_gpu &
second=$!
sleep 1
check "two who unbind the GPU wait for a read" eval 'kill -0 $unbinding && kill -0 $second'
throttle 0
check "and not for longer" soon 20 eval 'ended $unbinding && ended $second'
wait $unbinding $second
lost "who had some has lost it"
same "and the driver had it back before" 0 "$(</sys/kernel/debug/nvstand/wrong)"
end_keeper
bind_to nvstand
# Processes that keep registering memory must not keep the GPU bound. Memory registered at the last moment does not
# count as wrong: separating its own calls is the driver's task.
keep keep
nvidia insist &
insisting=$!
soon 20 asks $insisting || not_ok "others ask for more"
# An unbinding that waits for them cannot be killed.
unbind_gpu &
unbinding=$!
check "while others ask for more: the GPU is unbound" soon 20 ended $unbinding
kill -9 $insisting
wait $insisting 2>/dev/null
wait $unbinding
end_keeper
bind_to nvstand
no_stand

stand stays=1
form 0
keep keep
unbind_gpu
read -r said <&"${keeper[0]}"
same "who unbinds a GPU gives nothing back" "gone 19 1" "$said $(</sys/kernel/debug/nvstand/given)"
end_keeper
check "its process does, when it ends" soon 5 given 0
form 1
no_stand

stand stays=1
bind_to peerdma
unbind_gpu
refusal "a GPU that nobody drives" 73 19
echo "$GPU" >/sys/bus/pci/drivers_probe
refusal "a GPU that is bound to us" 71 95
echo "$GPU" >/sys/bus/pci/drivers/peerdma/unbind
no_stand

with_stand "a BAR that nobody has published" 69 95 publish=0
with_stand "one that is mapped write-combined" 70 95 publish=0 write_combined=1
with_stand "and one that was published so" 70 95 write_combined=1
check "our module goes" rmmod peerdma_nvidia
echo 0 >$allowed

plan $tap_n
