#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh: as root, in a machine that may be lost: afterwards its soft-RoCE devices may not go. Kernel with rdma_rxe, nvmet-rdma,
# nvme-rdma and veth; iproute2. An NVMe over RDMA controller, initiator and target in this machine, whose link goes for a few
# seconds, shall be connected again half a minute later; exits with 1 if it is not, and shows what it waits for, and the
# state of the queue pairs that connect.
set -u
modprobe -q crc32_generic # of soft-RoCE before 6.18, where it is a module
modprobe -a veth rdma_rxe nvmet nvmet-rdma nvme-rdma
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
ip link add veth0 type veth peer name veth1
for n in 0 1; do
	ip addr add "10.7.0.$((n + 1))/24" dev veth$n
	ip link set veth$n up
	rdma link add rxe$n type rxe netdev veth$n
done
file=$(mktemp)
truncate -s 64M "$file"
target=/sys/kernel/config/nvmet/subsystems/gone port=/sys/kernel/config/nvmet/ports/77
mkdir -p $target/namespaces/1 $port
echo 1 >$target/attr_allow_any_host
printf %s "$file" >$target/namespaces/1/device_path
echo 1 >$target/namespaces/1/enable
echo rdma >$port/addr_trtype
echo ipv4 >$port/addr_adrfam
echo 10.7.0.2 >$port/addr_traddr
echo 4477 >$port/addr_trsvcid
ln -s $target $port/subsystems/gone || exit 2
exec 3<>/dev/nvme-fabrics
printf %s transport=rdma,traddr=10.7.0.2,trsvcid=4477,nqn=gone,reconnect_delay=1,keep_alive_tmo=2 >&3
read -r answer <&3
exec 3>&-
name=nvme$(echo "$answer" | sed -n 's/^instance=\([0-9]*\).*/\1/p')
state() { cat "/sys/class/nvme/$name/state"; }
echo "$name is $(state)"
ip link set veth1 down
sleep 5
echo "its link is down: $(state)"
ip link set veth1 up
for second in $(seq 30); do
	[ "$(state)" != live ] || break
	sleep 1
done
echo "its link has been up for $second s: $(state)"
[ "$(state)" != live ] || exit 0
for task in /proc/[0-9]*; do
	! grep -qs nvme_rdma "$task/stack" || cat "$task/comm" "$task/stack"
done
rdma res show qp | grep "type GSI"
exit 1
