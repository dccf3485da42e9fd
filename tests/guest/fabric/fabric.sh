#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# NVMe over RDMA through soft-RoCE, target and initiator in this guest, with the lab's parameter. Tests which transports
# are refused and why, the bytes as the host sees them on both sides, and the fate of requests when the path breaks.
# group: rdma
# topologies: disks
# tier: all
# variants: plain
# needs: rdma
# timeout: 400
# long: oldest
#
# Not on a debug kernel; ways.sh covers that. There soft-RoCE needs longer for rings of many writes than any usable
# timeout (with 30 s nvme-rdma gives up and reconnects in a loop), and lockdep reports the target's own locks
# (nvmet_config_sem and its listener's handler_mutex when a port is removed).
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has veth nvmet nvmet-rdma nvmet-tcp nvme-rdma nvme-tcp nvme-loop xfs
FABRIC_TCP=42 FABRIC_LOOP=43 RDMA_ROUTE=46

says() { verdict "$1" reason refused mapping; }

# refused DESCRIPTION DISK NUMBER NAME BY
refused() {
	same "explain: $1" "$4 $5 none" "$(says "$2")"
	same "read: $1" "$EXDEV $3 0" "$(pdio read "$2" 0 4096 0 | cut -d' ' -f1-3)"
	same "write: $1" "$EXDEV $3 0" "$(pdio write "$2" 0 4096 0 | cut -d' ' -f1-3)"
}

# path CONTROLLER DISK: the hidden path device
path() { echo "${2%n1}c${1#nvme}n1" | sed 's,/dev/,,'; }

# Give up requests without an answer after a few seconds.
timeouts=/sys/module/nvme_core/parameters
read -r io_timeout <$timeouts/io_timeout
# A request that takes half a minute must end only because the path breaks.
echo 60 >$timeouts/io_timeout
# A controller that is removed tells its target, perhaps over a broken path. It then waits for this long.
read -r admin_timeout <$timeouts/admin_timeout
echo 10 >$timeouts/admin_timeout

wire
drive=$(nvme_disk nvme1)
wipefs -qa "$drive" "$(nvme_disk nvme2)"
host fill disk1 0 $((16 * mib)) pattern:3 >/dev/null
blockdev --flushbufs "$drive"
target far "$drive"
target near "$(nvme_disk nvme2)"
port 1 far rdma ipv4 10.9.0.2
port 2 far rdma ipv6 fd09::2
port 3 far tcp ipv4 127.0.0.1
port 4 near loop

# --- Refusals and their reasons
four=$(connect $soon,transport=rdma,traddr=10.9.0.2,trsvcid=4421,nqn=far) || bail "no connection"
disk=$(disk_of far) || bail "no disk"
four_path=$(path "$four" "$disk")
loop=$(connect transport=loop,nqn=near) || bail "no loop"
near=$(disk_of near) || bail "no disk of the loop"
refused "rdma without its module" "$disk" $RDMA_MODULE RDMA_MODULE "$four_path"
refused "nvme-loop" "$near" $FABRIC_LOOP FABRIC_LOOP "$(path "$loop" "$near")"
disconnect "$loop"
insert peerdma_rdma
refused "soft-RoCE without the parameter" "$disk" $RDMA_SOFTWARE RDMA_SOFTWARE "$four_path"
same "the parameter is root's" "644 0" "$(stat -c '%a %u' $software)"
echo 1 >$software
warned() { dmesg | grep -c "peerdma_rdma: allow_software is set: .* The CPU copies each byte"; }
same "the log says what it means" 1 "$(warned)"
echo 1 >$software
same "once, as long as it is set" 1 "$(warned)"
same "explain: soft-RoCE with the parameter" "NONE - software" "$(says "$disk")"
check "explain: and that the CPU copies" grep -q '^bounced *RDMA_SOFTWARE: ' <(peerdma explain "$disk")
same "a read that nothing may bounce" "$EXDEV $RDMA_SOFTWARE 0" "$(NO_BOUNCE=1 pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"
peerdma check --verbose >/tmp/check
check "peerdma check: it is software" grep -q "${disk#/dev/}: by software" /tmp/check
check "peerdma check: and not direct" [ "$(grep -c "${disk#/dev/}: direct" /tmp/check)" = 0 ]
same "and the route" "bounced through host memory" "$(peerdma explain "$disk" | sed -n 's/^route *//p')"

# --- The bytes, as the host sees them on both sides
span=$((9 * mib))
for at in "0 4096" "512 512" "4096 65536" "1024 1049088" "0 $((8 * mib))"; do
	read -r off len <<<"$at"
	same "a read of $len bytes at $off" "$(straight "$len") 0" "$(pdio read "$disk" "$off" "$len" 0 $span \
		"host fill gpu0 0 $span pattern:9" | tail -n 1)"
	check "what came" host compare gpu0 0 "$len" pattern:3 "$off"
	check "what is behind it" host compare gpu0 "$len" $((span - len)) pattern:9 "$len"
done
for at in "0 4096" "8704 512" "$mib 8192" "$((2 * mib)) 1049088" "$((4 * mib)) $((8 * mib))"; do
	read -r off len <<<"$at"
	same "a write of $len bytes at $off" "$(straight "$len")" "$(pdio write "$disk" "$off" "$len" 0 $span \
		"host fill gpu0 %AT $len pattern:5" | tail -n 1 | cut -d' ' -f1-6)"
	check "what is on the drive" host compare disk1 "$off" "$len" pattern:5
done
check "and between" host compare disk1 4096 4608 pattern:3 4096
same "a ring's write" "0 65536" "$(RING=1 pdio write "$disk" 65536 65536 0 65536 "host fill gpu0 %AT 65536 pattern:2" | tail -n 1 | cut -d' ' -f1,3)"
check "what is on the drive by the ring" host compare disk1 65536 65536 pattern:2
same "its path is kept from merging" 3 "$(cat "/sys/class/block/$four_path/queue/nomerges")"

# Any offset: the CPU copies a partial block through another page here too.
host fill disk1 0 $mib pattern:3 >/dev/null
blockdev --flushbufs "$disk" "$drive"
same "a read at odd places" "$(straight 70001) 0" "$(pdio read "$disk" 3 70001 3 $mib "host fill gpu0 0 $mib pattern:9" | tail -n 1)"
check "what came" host compare gpu0 3 70001 pattern:3 3
check "what is before it" host compare gpu0 0 3 pattern:9
check "and behind" host compare gpu0 70004 $((mib - 70004)) pattern:9 70004

ring() { FAR_DISK=$disk uring /mnt/far/ring /mnt/far/scratch "/sys/class/block/$four_path/queue"; }
mkdir -p /mnt/far
for fs in ext4 xfs; do
	if [ $fs = ext4 ]; then mke2fs -q -F -t ext4 "$disk" 200M; else mkfs.xfs -q -f -d size=400m "$disk"; fi
	mount -t $fs "$disk" /mnt/far || bail "no $fs"
	pattern fill /mnt/far/file 0 $((8 * mib)) pattern:1
	sync
	moves $fs /mnt/far/file $mib $((2 * mib + 65536))
	moves "$fs, one block" /mnt/far/file 4096 4096
	same "$fs: explained" "NONE - software" "$(says /mnt/far/file)"
	peerdma bench --json /mnt/far/file --io-size 64K --bytes 256K --route direct,naive >/tmp/bench
	same "$fs: no row of a bench is direct, and it says why" "1 EXDEV RDMA_SOFTWARE 0 262144" \
		"$? $(seeing get /tmp/bench /rows/0/error/errno /rows/0/error/reason /rows/0/bytes /rows/1/bytes)"
	pattern fill /mnt/far/ring 0 $mib pattern:1
	sync
	whole "$fs: the cases of a ring (uring.cpp)" ring
	umount /mnt/far
done

# --- Paths appear and disappear while the route is cached
six=$(connect $soon,transport=rdma,traddr=fd09::2,trsvcid=4422,nqn=far) || bail "no connection by IPv6"
six_path=$(path "$six" "$disk")
for _ in {1..50}; do [ ! -e "/sys/class/block/$six_path" ] || break; sleep 0.1; done
for file in /sys/class/nvme-subsystem/*/iopolicy; do echo round-robin >"$file"; done
same "two paths: both are named" 2 "$(peerdma explain "$disk" | grep -c "^backing.*c[0-9]*n1.*NONE\|^backing.*software")"
ios() { awk '{ print $1 + $5 }' "/sys/class/block/$1/stat"; }
before4=$(ios "$four_path") before6=$(ios "$six_path")
moves "two paths" "$disk" $mib $((4 * mib))
check "the one by IPv4 had a part of it" [ "$(ios "$four_path")" -gt "$before4" ]
check "the one by IPv6 had a part of it" [ "$(ios "$six_path")" -gt "$before6" ]
tcp=$(connect $soon,transport=tcp,traddr=127.0.0.1,trsvcid=4423,nqn=far) || bail "no connection by tcp"
tcp_path=$(path "$tcp" "$disk")
for _ in {1..50}; do [ ! -e "/sys/class/block/$tcp_path" ] || break; sleep 0.1; done
refused "a path by tcp has come" "$disk" $FABRIC_TCP FABRIC_TCP "$tcp_path"
disconnect "$tcp"
same "it has gone" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
disconnect "$six"
# A connection with a given source address: this machine's, then one that has been removed from it.
ip addr add 10.9.0.3/24 dev veth1
from=$(soon 10 connect $soon,transport=rdma,traddr=10.9.0.2,host_traddr=10.9.0.3,trsvcid=4421,nqn=far) || bail "no connection from an address"
from_path=$(path "$from" "$disk")
check "a path from an address of ours has come" soon 10 [ -e "/sys/class/block/$from_path" ]
same "a path from an address of ours" "NONE - software" "$(says "$disk")"
ip addr del 10.9.0.3/24 dev veth1
refused "a path from an address that is not ours" "$disk" $RDMA_ROUTE RDMA_ROUTE "$from_path"
disconnect "$from"

# --- What a cached route was derived from changes
same "one path again" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
echo 0 >$software
refused "the parameter is taken back" "$disk" $RDMA_SOFTWARE RDMA_SOFTWARE "$four_path"
echo 1 >$software
same "and given again" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
same "the log says it again" 2 "$(warned)"

# --- The path breaks under a request
comes_back() {
	check "$1 comes back: the controller connects again" soon 30 live "$four"
	same "$1 comes back: so do the bytes" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"
}

breaks "the target goes" "$disk" disk1 rm "$nvmet/ports/1/subsystems/far"
same "the target goes: the next one" "$EIO 0 0" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"
ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
comes_back "the target"

unaddress() { ip addr del 10.9.0.2/24 dev veth1 && ip addr del 10.9.0.1/24 dev veth0; }
breaks "the addresses go" "$disk" disk1 unaddress
refused "no address" "$disk" $RDMA_ROUTE RDMA_ROUTE "$four_path"
ip addr add 10.9.0.1/24 dev veth0
# Without an answer each query takes seconds. Queries of killed processes are not sent.
killed=()
for _ in {1..64}; do
	pdio read "$disk" 0 4096 0 >/dev/null 2>&1 &
	killed+=($!)
done
sleep 1
kill -9 "${killed[@]}" 2>/dev/null
wait "${killed[@]}" 2>/dev/null
asked=$SECONDS
same "nobody answers: a read" "$EXDEV $RDMA_ROUTE 0" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"
check "nobody answers: a read does not wait for the answers of others, who were killed" [ $((SECONDS - asked)) -le 7 ]
diag "after $((SECONDS - asked)) s"
# One query serves all concurrent callers and those shortly after. Otherwise the second group of eight would take 2 s
# longer, and so on.
asked=$SECONDS
for _ in {1..64}; do pdio read "$disk" 0 4096 0 2>&1 & done >/tmp/refused
wait
same "nobody answers: 64 reads are refused" 64 "$(grep -c "^$EXDEV $RDMA_ROUTE 0 " /tmp/refused)"
check "nobody answers: by few questions" [ $((SECONDS - asked)) -le 12 ]
diag "after $((SECONDS - asked)) s"
ip addr add 10.9.0.2/24 dev veth1
comes_back "the address"

# Every event that may change a path invalidates the route. The loop causes such events without pause; setting the
# parameter is the quickest one. A read must end nevertheless.
: >/tmp/churn
{
	echo 1 >$software && : >/tmp/churns
	while [ -e /tmp/churn ]; do echo 1 >$software; done
} &
soon 10 [ -e /tmp/churns ] || not_ok "ways change"
asked=$SECONDS
got=$(timeout -s KILL 20 pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)
check "ways change all the time: a read ends" [ $((SECONDS - asked)) -le 8 ]
check "ways change all the time: refused, or whole" \
	[ "$got" = "$EXDEV $RDMA_ROUTE 0" -o "$got" = "0 $RDMA_SOFTWARE 4096" ]
diag "$got after $((SECONDS - asked)) s"
rm /tmp/churn /tmp/churns
wait
same "and no more: a read" "$(straight 4096) 0" "$(pdio read "$disk" 0 4096 0)"

# --- The GPU is unbound under a request
taken_twice "its memory" "$disk" disk1 $((2 * mib))

# --- Its queue pair fails under a request
queue_errs() { qp_errs nvme_rdma_send_done timeout 30 pdio read "$disk" 0 4096 0; }
for kind in read write; do
	what="a queue pair errs under a $kind"
	if [ $kind = read ]; then breaks "$what" "$disk" disk1 queue_errs; else write_breaks "$what" "$disk" disk1 "$drive" queue_errs; fi
	comes_back "$what: the controller"
done
host fill disk1 0 $((8 * mib)) pattern:3 >/dev/null
same "two queue pairs have erred" 2 "$(cat /sys/module/qperr/parameters/errors)"
check "the module that made them err goes" rmmod qperr

# --- A controller is reset under a request, which is retried
six=$(connect $patient,transport=rdma,traddr=fd09::2,trsvcid=4422,nqn=far) || bail "no patient connection"
disconnect "$four"
goes_on read "a controller is reset" "$disk" disk1 reset "$six"
four=$(connect $soon,transport=rdma,traddr=10.9.0.2,trsvcid=4421,nqn=far) || bail "no connection"

# --- One of two paths breaks under a request; the other path completes all of it
for way in read write; do
	check "a path of two: both are there, before a $way" soon 30 live "$four"
	check "a path of two: both are one disk's" soon 10 [ -e "/sys/class/block/$(path "$four" "$disk")" ]
	goes_on $way "a path of two goes" "$disk" disk1 rm "$nvmet/ports/1/subsystems/far"
	check "a path of two goes: the other does not" live "$six"
	ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
done
check "a path of two comes back" soon 30 live "$four"
disconnect "$six"
RING=1 breaks "a ring, the target goes" "$disk" disk1 rm "$nvmet/ports/1/subsystems/far"
ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
comes_back "a ring, the target"

breaks "the RDMA device goes" "$disk" disk1 rdma link del rxe1
check "and the controller with it" soon 15 no_controller "$four"

# Break the link of a controller that does not reconnect. Without a link soft-RoCE never answers the query and never
# tells the caller (Documentation/upstream/rxe-link-down).
rm "$nvmet/ports/1/subsystems/far"
rdma link add rxe1 type rxe netdev veth1
ln -s "$nvmet/subsystems/far" "$nvmet/ports/1/subsystems/far"
four=$(connect "$once,transport=rdma,traddr=10.9.0.2,trsvcid=4421,nqn=far") || bail "no connection for once"
disk=$(disk_of far) || bail "no disk"
breaks "the link goes" "$disk" disk1 ip link set veth1 down
check "the link goes: and the controller with it" soon 30 no_controller "$four"
ip link set veth1 up
sleep 1
check "the link is up: nothing came afterwards" host compare gpu0 0 $((8 * mib)) pattern:7

# --- Teardown
no_targets
rdma link del rxe0
ip link del veth0
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
wipefs -qa "$drive"
echo "$io_timeout" >$timeouts/io_timeout
echo "$admin_timeout" >$timeouts/admin_timeout
plan $tap_n
