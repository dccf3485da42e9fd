# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # rdma.sh assigns far_ip
# Sourced by rdma.sh: targets and controllers of NVMe over Fabrics, and whole tests of the block path over it.

# memory_drive NAME MIB: /dev/NAME, whose blocks are in host memory
memory_drive() {
	local dir=/sys/kernel/config/nullb/$1
	modprobe -d "$LAB_KERNEL" null_blk nr_devices=0 && mkdir -p /sys/kernel/config || bail "no null_blk"
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir "$dir"
	echo "$2" >"$dir/size"
	echo 1 >"$dir/memory_backed"
	echo 1 >"$dir/power"
}
# no_memory_drive NAME
no_memory_drive() {
	rmdir "/sys/kernel/config/nullb/$1"
	rmmod null_blk
}

# reset CONTROLLER
reset() { echo 1 >"/sys/class/nvme/$1/reset_controller"; }

nvmet=/sys/kernel/config/nvmet

# target NAME DRIVE: creates a subsystem with DRIVE as its namespace
target() {
	local dir=$nvmet/subsystems/$1
	mkdir -p /sys/kernel/config
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
	mkdir -p "$dir/namespaces/1"
	echo 1 >"$dir/attr_allow_any_host"
	echo -n "$2" >"$dir/namespaces/1/device_path"
	echo 1 >"$dir/namespaces/1/enable"
}

# port NUMBER NAME TRANSPORT [FAMILY ADDRESS]
port() {
	local dir=$nvmet/ports/$1
	mkdir -p "$dir"
	echo "$3" >"$dir/addr_trtype"
	if [ -n "${4:-}" ]; then
		echo "$4" >"$dir/addr_adrfam"
		echo "$5" >"$dir/addr_traddr"
		echo $((4420 + $1)) >"$dir/addr_trsvcid"
	fi
	ln -s "$nvmet/subsystems/$2" "$dir/subsystems/$2" || bail "no port for $3"
}

# no_targets: removes all targets
no_targets() {
	local dir
	rm "$nvmet"/ports/*/subsystems/*
	rmdir "$nvmet"/ports/*
	for dir in "$nvmet"/subsystems/*; do
		echo 0 >"$dir/namespaces/1/enable"
		rmdir "$dir/namespaces/1" "$dir"
	done
}

# Fails its requests soon after its target is lost.
# shellcheck disable=SC2034
soon=reconnect_delay=1,ctrl_loss_tmo=60,fast_io_fail_tmo=1,keep_alive_tmo=2
# Waits for a lost target.
# shellcheck disable=SC2034
patient=reconnect_delay=1,ctrl_loss_tmo=60
# Is removed when its target is lost.
# shellcheck disable=SC2034
once=reconnect_delay=1,ctrl_loss_tmo=0,keep_alive_tmo=2

# connect OPTIONS: creates a controller; prints its device name. On a busy machine the connection manager's 3 s may pass: twice in
# a test it tries again, and says so.
connect() {
	until connects_once "$1"; do
		[ "$(cat /tmp/again.$$ 2>/dev/null)" != 11 ] || return 1
		echo -n 1 >>/tmp/again.$$
		diag "no connection with $1: tried again" >&2
	done
}
connects_once() {
	local fd answer=''
	exec {fd}<>/dev/nvme-fabrics
	printf '%s' "$1" >&"$fd" && read -r answer <&"$fd"
	exec {fd}>&-
	[[ $answer == instance=* ]] || return 1
	answer=${answer#instance=}
	echo "nvme${answer%%,*}"
}

disconnect() { echo 1 >"/sys/class/nvme/$1/delete_controller"; }

live() {
	local state
	read -r state <"/sys/class/nvme/$1/state" && [ "$state" = live ]
}
no_controller() { [ ! -e "/sys/class/nvme/$1" ]; }

# disk_of NAME: waits for the disk of a subsystem
disk_of() {
	local dir nqn name
	for _ in {1..300}; do
		for dir in /sys/class/nvme-subsystem/*; do
			read -r nqn <"$dir/subsysnqn"
			name=${dir##*/nvme-subsys}
			[ "$nqn" != "$1" ] || [ ! -b "/dev/nvme${name}n1" ] || { echo "/dev/nvme${name}n1"; return; }
		done
		sleep 0.1
	done
	return 1
}

# path_of DISK CONTROLLER: the hidden disk of the path by this controller
path_of() {
	local name=${1#/dev/}
	echo "${name%n1}c${2#nvme}n1"
}

# far_drive [OPTIONS]: replaces the drive nvme0 by FAR_DISK, over NVMe over RDMA. no_far_drive: restores it.
far_drive() {
	kernel_has veth nvmet nvmet-rdma nvme-rdma
	knows_rdma
	wire
	! mountpoint -q /mnt/disk || umount /mnt/disk
	goes_far nvme0 "$@"
	# shellcheck disable=SC2154 # exported by goes_far
	export FAR_DISK=$FAR_nvme0
}
homes=()
# goes_far NVME [OPTIONS]: replaces one more drive
goes_far() {
	local number=$((${#homes[@]} + 1)) disk
	target "home-$1" "$(nvme_disk "$1")"
	port $number "home-$1" rdma ipv4 $far_ip
	homes+=("$(connect "$patient${2:+,$2},transport=rdma,traddr=$far_ip,trsvcid=$((4420 + number)),nqn=home-$1")") ||
		bail "no connection to $1"
	disk=$(disk_of "home-$1") || bail "no disk of $1"
	export "FAR_$1=$disk"
}
no_far_drive() {
	come_home
	unwire
}
# come_home: the drives are those of this machine again
come_home() {
	diag "$(dmesg | grep -c "nvme.*starting error recovery") times the connection broke"
	local controller
	unset FAR_DISK "${!FAR_nvme@}"
	for controller in "${homes[@]}"; do disconnect "$controller"; done
	for controller in "${homes[@]}"; do soon 20 no_controller "$controller"; done
	no_targets
	check "peerdma_rdma.ko goes" rmmod peerdma_rdma
	homes=()
}

# What fabric_lifetime and card_lifetime let happen to a buffer and its provider (revoke.cpp).
# shellcheck disable=SC2034
lifetime_events="unbind remove:busy unpublish:block kill exit:block exec:sync pass:completing fork:busy teardown squeeze rmmod:busy"

# carried NAME: runs a whole test of the block path on that drive
carried() {
	whole "$1.sh" "$LAB_ROOT"/tests/guest/*/"$1.sh"
	! mountpoint -q /mnt/disk || umount /mnt/disk
}
# whole DESCRIPTION COMMAND...: its TAP must match its plan without failures. Its skips are passed on.
whole() {
	local line
	"${@:2}" >/tmp/group 2>&1
	check "$1" all_is_ok $?
	diag "$(grep -c "^ok" /tmp/group) of it"
	while IFS= read -r line; do
		line=${line#ok * - }
		skip "$1: ${line%% # SKIP*}" "${line#* # SKIP }"
	done < <(grep "^ok .* # SKIP" /tmp/group)
}
# all_is_ok STATUS: checks the TAP in /tmp/group and its program's exit status
all_is_ok() {
	local planned
	! grep -A 5 "^not ok\|^Bail" /tmp/group && planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' /tmp/group) &&
		[ "$1 ${planned:-0}" = "0 $(grep -c "^ok" /tmp/group)" ] && [ "$planned" -gt 0 ] && return
	echo "status $1, planned ${planned:-nothing}"
	tail -n 3 /tmp/group
	return 1
}
