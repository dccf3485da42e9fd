#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh ./p2p_read PROVIDER CONTROLLER: as root. CONTROLLER: one of NVMe over RDMA (nvme1), by a card that cannot reach the
# provider by peer-to-peer DMA, as below another root port of a host bridge that the kernel does not know. Its disk must have
# no other path. The controller is deleted.
set -u
program=$1 provider=$2 controller=$3
disk=/dev/${controller}n1
path=
for path in /sys/class/nvme/"$controller"/nvme*; do
	[ ! -e "$path/diag/multipath_failover_count" ] || break
done
worked() { cat /proc/*/stat 2>/dev/null | awk '/\(kworker/ { sum += $15 } END { print sum / 100 }'; }
before=$(worked)
"$program" "$provider" "$disk" &
reader=$!
sleep 5
status=0
if kill -9 "$reader" 2>/dev/null; then
	sleep 1
	grep State "/proc/$reader/status" && status=1
	echo "after 6 s, killed: made again $(cat "$path/diag/multipath_failover_count") times; the last line of the log:"
	dmesg | tail -n 1
	echo "CPU time of kernel workers, in s: $(echo "$before $(worked)" | awk '{ print $2 - $1 }')"
fi
echo 1 >"/sys/class/nvme/$controller/delete_controller"
wait "$reader"
read=$?
[ $status = 1 ] || [ $read = 0 ] || { echo "nothing was tried"; exit 2; }
[ $status = 0 ] || echo "a read that no path can map waits until the controller goes, and cannot be killed"
exit $status
