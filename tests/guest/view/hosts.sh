#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The memory of peerdma-viewd stays within its bound with the streams of 64 hosts at once: 16 views, each exported by NVMe over TCP to
# four hosts of their own NQNs, IDs and connections, all in this guest. The drive has added latency, and is cold. Each host reads in
# order, each byte is compared, and chunks are prefetched.
# group: view
# coverage: none
# topologies: switch
# boot: single
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_DM_DELAY CONFIG_NVME_TARGET_TCP CONFIG_NVME_TCP
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

# With NVMe multipath the four connections to a view would be four paths of one disk, which reads by one of them.
modprobe -d "$LAB_KERNEL" -r nvme nvme_core
modprobe -d "$LAB_KERNEL" nvme_core multipath=N && modprobe -d "$LAB_KERNEL" nvme || bail "no nvme_core without multipath"
same "each connection has a disk of its own" N "$(cat /sys/module/nvme_core/parameters/multipath)"
modprobe -d "$LAB_KERNEL" -a dm-delay nvmet nvmet-tcp nvme-tcp || bail "no drive with latency, or no NVMe over TCP"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
ip link set lo up

size=32 # MiB
memory=160 threads=4 views=16
make_drive 48
image halves /mnt/data/tokens $size # what the reads are compared with
cp /mnt/data/tokens /run/files/tokens
begin --port tcp:127.0.0.1:4420 --nqn-prefix $prefix
idle=$(memory_of VmRSS)

# id_of NUMBER: of a host
id_of() { printf '%08x-2222-3333-4444-555555555555' "$1"; }
nqn_of() { echo "nqn.2014-08.org.nvmexpress:uuid:$(id_of "$1")"; }
# Hosts I * 4 to I * 4 + 3 may connect to view I. Together the views have more chunks than the service's memory has room for.
for ((i = 0; i < views; i++)); do
	conf=$'file = /run/files/tokens\ncodec = u32:u16\n'
	for ((host = 4 * i; host < 4 * i + 4; host++)); do conf+="host = $(nqn_of $host)"$'\n'; done
	said=$(image publish $socket "v$i" "$conf")
	[ -z "$said" ] || bail "v$i: $said"
done
for ((i = 0; i < views; i++)); do soon 60 is "v$i" state published || bail "v$i is not published"; done

controllers=() readers=()
for ((host = 0; host < 4 * views; host++)); do
	# A busy guest may not send in time what keeps a connection alive.
	options=$patient,keep_alive_tmo=120,nr_io_queues=1,queue_size=16,transport=tcp,traddr=127.0.0.1,trsvcid=4420
	controller=$(connect "$options,nqn=${prefix}v$((host / 4)),hostnqn=$(nqn_of $host),hostid=$(id_of $host)") ||
		bail "host $host does not connect"
	controllers+=("$controller")
	disk=/dev/${controller}n1
	soon 20 [ -b "$disk" ] || bail "host $host has no disk"
	# The streams of a view begin 4 MiB apart.
	readers+=("$disk@$((host % 4 * size / 8))")
done
same "64 hosts have a disk each" 64 "$(printf '%s\n' "${readers[@]%@*}" | sort -u | wc -l)"

prefetched() { peerdma view status --socket $socket | sed -n 's/^cache:.* \([0-9]*\) chunks prefetched.*/\1/p'; }
all_read() { image read "$(IFS=, && echo "${readers[*]}")" /mnt/data/tokens "$(seq -s, 0 $((size / 2 - 1)))" 1 4 >/run/seconds; }
drive "$(delayed 5)"
cold
before=$(prefetched)
check "they read each byte, in order" all_read
drive "$(delayed 0)"
now=$(prefetched)
diag "$(cat /run/seconds) s; $before chunks prefetched before, $now now"
check "chunks are prefetched for them" [ $((now - before)) -ge 32 ]
all_live() {
	local controller
	for controller in "${controllers[@]}"; do live "$controller" || { echo "$controller is not"; return 1; }; done
}
check "all are connected still" all_live
bound=$((memory * 1024 * 11 / 10)) most=$(memory_of VmHWM)
diag "memory: idle $idle KiB, at most $most, now $(memory_of RssAnon) of its own; bound $bound"
check "its memory stayed within its bound" [ "$most" -le $bound ]

for controller in "${controllers[@]}"; do disconnect "$controller"; done
all_gone() {
	local controller
	for controller in "${controllers[@]}"; do no_controller "$controller" || return 1; done
}
check "they disconnect" soon 60 all_gone
ends "it ends"
same "no export is left" '' "$(find "$nvmet"/{ports,subsystems,hosts} -mindepth 1 -maxdepth 1)"
plan $tap_n
