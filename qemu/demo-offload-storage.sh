#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storage node's part of `make demo-offload`: serves the token files of its drives as views, which its kernel exports
# by NVMe over RDMA to one host, and limits its end of the cable when the other guest says so.
# timeout: 900
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

kernel_has nvmet nvmet-rdma sch_tbf
plug
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
mount_disk nvme0 /mnt/tokens16
mount_disk nvme1 /mnt/tokens18
prefix=nqn.2026-11.org.example:
me=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555

# view NAME BITS CODEC: publishes the file of that many bits
view() { same "$1 is published" '' "$(image publish $socket "$1" $'file = /mnt/tokens'"$2"$'/file\ncodec = '"$3"$'\nhost = '$me)"; }

# For the other guest: limits what this end sends to so many bits a second. The queue is long enough for all that
# soft-RoCE has under way, so nothing is dropped.
limit() { tc qdisc replace dev eth0 root tbf rate "$1bit" burst 32kb limit 16mb; }
dropped() { tc -s qdisc show dev eth0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p'; }

begin --port rdma:$far_ip:4420 --nqn-prefix $prefix || bail "no peerdma-viewd"
view plain 18 u32:none
view bits16 16 u32
view bits18 18 u32
for name in plain bits16 bits18; do published "$name is scanned" $name; done
same "one needs 16 bits" u32:u16 "$(field bits16 codec)"
same "the other 18" u32:18 "$(field bits18 codec)"
host say ready "$prefix $me" >/dev/null
check "the other guest is done" obey
same "no read has failed" "0 0 0" "$(field plain failed_reads) $(field bits16 failed_reads) $(field bits18 failed_reads)"

ends "the service ends"
tc qdisc del dev eth0 root
rdma link del rxe0
check "the driver is free" rmmod ublk_drv
plan $tap_n
