#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The GPU node's part of `make demo-offload`: connects to the files and views of the storage node with nvme-cli and reads them
# into the GPU's memory, with and without a limit of the wire. The storage node's part is qemu/demo-offload-storage.sh.
# timeout: 900
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has nvme-rdma
plug
insert peerdma_rdma
echo 1 >$software
host log "$(dmesg | sed -n 's/.*\(peerdma_rdma: allow_software\)/\1/p')" >/dev/null
prefix=$(host hear ready 180) || bail "no storage node: $prefix"
read -r _ prefix me <<<"$prefix"

views="plain16 bits16 plain18 bits18"
declare -A disk
for view in $views; do
	check "$view: nvme connect" nvme connect -t rdma -a $far_ip -s 4420 -n "$prefix$view" --hostnqn "$me" \
		--hostid "${me##*:}" --nr-io-queues 1
	disk[$view]=$(disk_of "$prefix$view") || bail "no disk of $view"
done

# counted: what has passed this end of the cable, received and sent bytes; bytes that the module has put into the GPU's
# memory, which soft-RoCE makes the CPU copy
counted() {
	read -r received </sys/class/net/eth0/statistics/rx_bytes
	read -r sent </sys/class/net/eth0/statistics/tx_bytes
	by_module=$(host_bytes)
}

# reads NAME: reads the elements of a view or a file into CUDA memory. The host then compares them, before the memory is reused.
reads() {
	local json received sent by_module before
	counted
	before=("$received" "$sent" "$by_module")
	case $1 in plain*) local -x PLAIN_ELEMENTS=$OFFLOAD_ELEMENTS ;; esac
	json=$(view_read "$1" "${disk[$1]}" 4 $((1 << 19)))
	counted
	same "$1: by the module" "$(sed -n 's/.*"bytes_read": \([0-9]*\),.*/\1/p' <<<"$json")" $((by_module - before[2]))
	check "$1: read" host took "$1" $((received - before[0])) $((sent - before[1])) "${json//$'\n'/ }"
}

for view in $views; do reads $view; done
rate=$(host limit) || bail "no limit: $rate"
rate=${rate#ok }
check "the limit" far "limit $rate"
for ((i = 0; i < OFFLOAD_REPEATS; i++)); do
	for view in $views; do reads $view; done
done
same "the limiter has dropped" 0 "$(far dropped)"

for view in $views; do
	check "$view: nvme disconnect" nvme disconnect -n "$prefix$view"
done
dismiss
rmmod peerdma_rdma
rdma link del rxe0
plan $tap_n
