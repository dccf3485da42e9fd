#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests the verdict on a server behind a real network card, with a stand-in for the card (tests/kmod/nicstand.c).
# Soft-RoCE carries the connections of NFS and NVMe; then the server's address moves to the card's interface, which
# breaks them, and `peerdma explain` must name the card. No byte goes through the stand-in. The test also covers siw,
# which the parameter does not allow. Soft-RoCE does not recover from such breaks, so the test ends with the boot.
# group: rdma
# topologies: edu edu-vtd rp
# boot: nic
# variants: plain debug
# needs: rdma losetup rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 400
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth dummy loop nvmet nvmet-rdma nvme-rdma rpcrdma nfsd nfsv3
DISTANCE=34 RDMA_ROUTE=46
case $LAB_TOPOLOGY in
edu) function=$(pci_of 0x1234:0x11e8) map='bus address' ;;
edu-vtd) function=$(pci_of 0x1234:0x11e8) map=iova ;;
rp) function=$(nvme_bdf) map='host bridge' ;; # the drive's; this test does not use the drive
esac
card=/sys/kernel/debug/nicstand
pci=/sys/bus/pci

# says FILE: reason, the backing device's PCI function or else its name, mapping
says() { verdict "$1" reason backing mapping; }
reads() { pdio read "$1" 0 4096 0 | cut -d' ' -f1-3; }
known() { [[ $(says $share/file) != RDMA_ROUTE* ]]; }
two_paths() { [ "$(grep -c . <(ls -d /sys/class/block/nvme*c*n1))" = 2 ]; }
# The client reconnects at its own intervals of up to 30 s, and a soft mount fails requests made in between.
answers() { dd if=$share/file of=/dev/null bs=4096 count=1 iflag=direct status=none 2>/dev/null; }

# stand_in FUNCTION: binds the function to the stand-in
stand_in() {
	[ ! -e "$pci/devices/$1/driver" ] || echo "$1" >"$pci/devices/$1/driver/unbind"
	echo nicstand >"$pci/devices/$1/driver_override"
	echo "$1" >$pci/drivers_probe
}
# stand_down FUNCTION: returns the function to its own driver
stand_down() {
	echo "$1" >$pci/drivers/nicstand/unbind
	echo >"$pci/devices/$1/driver_override"
	echo "$1" >$pci/drivers_probe
}

# behind NETDEV: moves the server's address there. Its RDMA device is notified a moment later.
at=veth1/24
behind() {
	ip link set "$1" up
	ip addr add $far_ip/32 dev "$1"
	[ "$at" = "$1/32" ] || ip addr del "$far_ip/${at#*/}" dev "${at%/*}"
	at=$1/32
	soon 10 known
}

# Loaded now, so that its removal callback runs before the connection manager's and after those of later clients.
insmod "$(dirname "$LAB_MODULE")/kmod/nicstand.ko" || bail "nicstand.ko"
insert peerdma_rdma peerdma_nfs
echo 1 >$software
wire
truncate -s 256M /tmp/files && losetup /dev/loop0 /tmp/files || bail "no drive for files"
truncate -s 16M /tmp/drive && losetup /dev/loop1 /tmp/drive || bail "no drive"
stored /dev/loop0
echo N >/sys/module/nfs/parameters/localio_enabled
fresh file 65536 1
target far /dev/loop1
port 1 far rdma ipv4 $far_ip
# `explain` leaves a process that waits for a drive that does not answer, if need be until requests to it fail.
controller=$(connect transport=rdma,traddr=$far_ip,trsvcid=4421,nqn=far,fast_io_fail_tmo=20) || bail "no connection"
disk=$(disk_of far) || bail "no disk"
path=${disk#/dev/} # the hidden path disk, such as nvme1c1n1 of nvme1n1
path=${path%n1}c${controller#nvme}n1
# NFSv3 with cached attributes: opening a known file sends no request, so it works without the server.
client vers=3,rdma,port=20049,nolock,nocto,actimeo=3600,soft,timeo=50,retrans=1
same "soft-RoCE: a share" "NONE nfs software" "$(says $share/file)"
same "soft-RoCE: a read" "0 $RDMA_SOFTWARE 4096" "$(reads $share/file)"

# --- A card
stand_in "$function"
behind nic0
same "a card: a share" "NONE $function $map" "$(says $share/file)"
same "a card: a drive whose queue takes no pages of peers" "QUEUE $function none" "$(says "$disk")"
# If the driver of each path supports peers, the check covers the card as for a share.
insmod "$(dirname "$LAB_MODULE")/kmod/peers.ko" disk="$disk" && rmmod peers || bail "peers.ko"
same "a card: a drive whose queue takes them" "NONE $function $map" "$(says "$disk")"
before=$(cat $card/references)
for _ in {1..10}; do says $share/file && says "$disk"; done >/dev/null
same "the function's references are given back" "$before" "$(cat $card/references)"

# The route stays the same but its shared next hop changes the device. No machine has the address, and none needs to
# answer.
ip addr add 10.9.5.1/32 dev nic0
ip addr add 10.9.5.2/32 dev veth1
for dev in nic0 veth1; do ip neigh replace $far_ip lladdr 02:00:00:00:09:02 dev $dev nud permanent; done
ip nexthop add id 7 dev veth1
ip addr del $far_ip/32 dev nic0
ip route add $far_ip/32 nhid 7
same "a next hop: soft-RoCE" "NONE nfs software" "$(says $share/file)"
# Add a software RDMA device whose use of pages is unknown. Clients registered before ours are notified of its removal
# later than ours and may keep a connection on it until then: NFS keeps its connection, wherever routes lead.
echo 0 >$card/up
echo Y >$card/software
echo 1 >$card/up
same "software is there: a way by soft-RoCE" RDMA_SOFTWARE "$(says $share/file | cut -d' ' -f1)"
echo Y >$card/hold
echo 0 >$card/up &
check "software goes: it is going" soon 10 grep -q Y $card/held
same "software goes: a way by soft-RoCE" RDMA_SOFTWARE "$(says $share/file | cut -d' ' -f1)"
same "software goes: a read" "$EXDEV $RDMA_SOFTWARE 0" "$(reads $share/file)"
echo N >$card/hold
wait $!
sleep 1 # a negative answer is cached this long
same "software has gone: a way by soft-RoCE" "NONE nfs software" "$(says $share/file)"
echo N >$card/software
# Listeners are notified of the new next hop before it is visible. A read in between finds the old one, and the module remembers
# it for the reads of the next 5 s: the first of these shows whether it was told again.
echo Y >$card/hold
ip nexthop replace id 7 dev nic0 &
replaced=$!
check "another next hop: all have been told" soon 10 grep -q Y $card/held
reads $share/file >/tmp/between &
between=$!
sleep 1
echo N >$card/hold
wait $replaced
sleep 0.5
same "another next hop, without a card: a read is refused" "$EXDEV $RDMA_ROUTE 0" "$(reads $share/file)"
wait $between
read -r got reason _ </tmp/between
check "another next hop: the read in between went by the old one" [ "$got" = 0 -o "$got" = $EIO ]
diag "errno $got, reason $reason"
echo 1 >$card/up
soon 10 known
same "another next hop of the same route: the card" "NONE $function $map" "$(says $share/file)"
ip addr add $far_ip/32 dev nic0
ip route del $far_ip/32 nhid 7
ip nexthop del id 7
for dev in nic0 veth1; do ip neigh del $far_ip dev $dev; done
ip addr del 10.9.5.1/32 dev nic0
ip addr del 10.9.5.2/32 dev veth1
soon 10 known

# Only its RDMA device goes; the connection manager has not been notified yet.
echo Y >$card/hold
echo 0 >$card/up &
check "a card that goes: it is going" soon 10 grep -q Y $card/held
same "a card that goes: a share" "RDMA_ROUTE nfs none" "$(says $share/file)"
same "a card that goes: a read" "$EXDEV $RDMA_ROUTE 0" "$(reads $share/file)"
echo N >$card/hold
wait $!
same "a card that has gone: a read" "$EXDEV $RDMA_ROUTE 0" "$(reads $share/file)"
echo 1 >$card/up
soon 10 known
same "it is back: a share" "NONE $function $map" "$(says $share/file)"

echo "$function" >$pci/drivers/nicstand/unbind
same "its function is unbound: a share" "RDMA_ROUTE nfs none" "$(says $share/file)"
same "its function is unbound: a drive" "RDMA_ROUTE $path none" "$(says "$disk")"
stand_in "$function"
soon 10 known
same "and bound: a share" "NONE $function $map" "$(says $share/file)"
echo 1 >"$pci/devices/$function/remove"
same "its function is taken out: a share" "RDMA_ROUTE nfs none" "$(says $share/file)"
echo 1 >$pci/rescan
check "its function is back" soon 10 [ -e "$pci/devices/$function" ]
stand_in "$function"
soon 10 known
same "and is the card again: a share" "NONE $function $map" "$(says $share/file)"
stand_down "$function"

# --- Cards without a path to the GPU
if [ "$LAB_TOPOLOGY" = edu ]; then
	elsewhere=$(pci_of 0x1234:0x11e8 1)
	stand_in "$elsewhere"
	soon 10 known
	same "a card elsewhere: a share" "DISTANCE $elsewhere none" "$(says $share/file)"
	same "a card elsewhere: a drive" "DISTANCE $elsewhere none" "$(says "$disk")"
	for file in $share/file "$disk"; do
		same "a card elsewhere: a read of ${file#/*/}" "$EXDEV $DISTANCE 0" "$(reads "$file")"
	done
	# One path of the drive through such a card, and a good one through an extra, unbroken cable.
	ip link add veth2 type veth peer name veth3
	ip addr add 10.9.1.2/24 dev veth3
	ip link set veth2 up
	ip link set veth3 up
	rdma link add rxe3 type rxe netdev veth3
	port 2 far rdma ipv4 10.9.1.2
	# Use a different controller ID than the first connection. The target has released that ID and may reuse it.
	echo 100 >$nvmet/subsystems/far/attr_cntlid_min
	second=$(connect transport=rdma,traddr=10.9.1.2,trsvcid=4422,nqn=far) || bail "no second connection"
	check "a second path: the disk has it" soon 10 two_paths
	same "a card elsewhere: both paths are asked" "software $elsewhere" \
		"$(peerdma explain "$disk" | awk '$1 == "backing"' | grep -o "software\|$elsewhere" | sort -r | xargs)"
	disconnect "$second"
	rm $nvmet/ports/2/subsystems/far
	rmdir $nvmet/ports/2
	rdma link del rxe3
	ip link del veth2
	stand_down "$elsewhere"
fi
check "the module goes" rmmod nicstand
insmod "$(dirname "$LAB_MODULE")/kmod/nicstand.ko" platform=1 || bail "nicstand.ko"
behind nic0
same "a card that is no PCI function: a share" "DISTANCE nfs none" "$(says $share/file)"
same "a card that is no PCI function: a drive" "DISTANCE $path none" "$(says "$disk")"

# --- The other software device
if ! has_option CONFIG_RDMA_SIW; then
	skip "siw" "this kernel is built without it"
else
	modprobe -d "$LAB_KERNEL" siw && ip link add far0 type dummy && rdma link add siw1 type siw netdev far0 || bail "no siw"
	# The existing connection may be siw's, whatever the routes say now.
	same "siw is there: a way by another device" "RDMA_SOFTWARE" "$(says $share/file | cut -d' ' -f1)"
	same "siw is there: a read" "$EXDEV $RDMA_SOFTWARE 0" "$(reads $share/file)"
	behind far0
	same "the parameter is set" Y "$(cat $software)"
	for file in $share/file "$disk"; do
		same "siw: ${file#/*/}" RDMA_SOFTWARE "$(says "$file" | cut -d' ' -f1)"
		same "siw: a read of ${file#/*/}" "$EXDEV $RDMA_SOFTWARE 0" "$(reads "$file")"
	done
	rdma link del siw1
fi

behind veth1
same "soft-RoCE again: a share" "NONE nfs software" "$(says $share/file)"
if soon 90 answers || connects rxe1; then
	same "soft-RoCE again: a read" "0 $RDMA_SOFTWARE 4096" "$(reads $share/file)"
	umount $share
	disconnect "$controller"
	no_targets
	no_server
else
	# Removing a controller that is connecting would wait for an answer forever. Leave everything as it is until the
	# boot ends.
	skip "soft-RoCE again: a read" "it does not connect any more: Documentation/upstream/rxe-link-down"
	umount -i -l $share
fi
check "peerdma_nfs.ko goes" rmmod peerdma_nfs
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
check "and the stand-in" rmmod nicstand
plan $tap_n
