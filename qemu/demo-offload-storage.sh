#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storage node's part of `make demo-offload`: its kernel exports the token files of its drives by NVMe over RDMA to one host, as they
# are and as views. It limits its end of the cable when the other guest says so.
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

# plain BITS: exports the file of that many bits as it is, on the port of the views. The kernel's target leaves out what is less than a block.
plain() {
	local subsystem=$nvmet/subsystems/${prefix}plain$1 file=/mnt/tokens$1/plain
	cp "/mnt/tokens$1/file" "$file" && truncate -s %4096 "$file" && mkdir -p "$subsystem/namespaces/1" &&
		ln -s "$nvmet/hosts/$me" "$subsystem/allowed_hosts/" && echo -n "$file" >"$subsystem/namespaces/1/device_path" &&
		echo 1 >"$subsystem/namespaces/1/enable" && ln -s "$subsystem" "$port/subsystems/"
}
not_plain() {
	local subsystem=$nvmet/subsystems/${prefix}plain$1
	rm "$port/subsystems/${prefix}plain$1" "$subsystem/allowed_hosts/$me" && echo 0 >"$subsystem/namespaces/1/enable" &&
		rmdir "$subsystem/namespaces/1" "$subsystem"
}

# For the other guest: limits what this end sends to so many bits a second. The queue is long enough for all that
# soft-RoCE has under way, so nothing is dropped.
limit() { tc qdisc replace dev eth0 root tbf rate "$1bit" burst 32kb limit 16mb; }
dropped() { tc -s qdisc show dev eth0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p'; }

begin --port rdma:$far_ip:4420 --nqn-prefix $prefix || bail "no peerdma-viewd"
view bits16 16 u32
view bits18 18 u32
for name in bits16 bits18; do published "$name is scanned" $name; done
same "one needs 16 bits" u32:u16 "$(field bits16 codec)"
same "the other 18" u32:18 "$(field bits18 codec)"
port=$(dirname "$(dirname "$nvmet"/ports/*/subsystems/"${prefix}bits18")")
for bits in 16 18; do check "the file of $bits bits is exported as it is" plain $bits; done
host say ready "$prefix $me" >/dev/null
check "the other guest is done" obey
same "no read has failed" "0 0" "$(field bits16 failed_reads) $(field bits18 failed_reads)"
for bits in 16 18; do check "the file of $bits bits is not exported any more" not_plain $bits; done

ends "the service ends"
tc qdisc del dev eth0 root
rdma link del rxe0
check "the driver is free" rmmod ublk_drv
plan $tap_n
