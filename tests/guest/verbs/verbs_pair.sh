#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Verbs between two guests, each with a GPU: the tests of verbs.sh, the worked example, and a lost link. The host
# compares both.
# group: rdma
# topologies: rp
# tier: all
# wants: rdma-on-demand
# variants: plain
# peer: gpu edu
# needs: rdma
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
mount_disk
kernel_has ib_uverbs
few_drivers
plug
check "the other node is there" host hear ready 60

far "verbs serve 4791 rxe0 >/tmp/served 2>&1 &"
relay verbs ask $far_ip 4791 rxe0 "$(gpu_bdf)" peer:gpu0
same "the other end had nothing to say" "" "$(far "cat /tmp/served")"

bytes=$((20 * 1048576 + 12345))
pattern fill /mnt/disk/sent 0 $bytes pattern:4
sync
host fill peer:gpu0 0 $((64 * 1048576)) pattern:9 >/dev/null
far "file_to_gpu receive 4792 >/tmp/received 2>&1 &"
far 'for _ in {1..300}; do ! grep -q ":12B8 " /proc/net/tcp6 || break; sleep 0.1; done'
check "node A" file_to_gpu send /mnt/disk/sent $far_ip 4792
read -r came _ _ _ _ at way <<<"$(far "cat /tmp/received")"
same "node B has all bytes" "$bytes on demand" "$came $way"
check "they are in the memory of its GPU" host compare peer:gpu0 "${at%,}" $bytes pattern:4
rm /mnt/disk/sent

# The other node's address is removed under WRITEs: they are retransmitted and then fail. Not its link: QEMU keeps
# packets that are not received, and soft-RoCE retransmits nothing until its packets have left.
far "verbs serve 4793 rxe0 >/tmp/served 2>&1 &"
verbs busy $far_ip 4793 rxe0 >/tmp/busy &
busy=$!
check "work requests are under way" soon 60 grep -qx busy /tmp/busy
far "ip addr del $far_ip/24 dev eth0"
check "the address goes: they end" soon 100 eval "! kill -0 $busy 2>/dev/null"
same "the address goes: with an error" "transport retry counter exceeded" "$(tail -n 1 /tmp/busy)"
host fill peer:gpu0 0 $((64 * 1048576)) pattern:9 >/dev/null
far "ip addr add $far_ip/24 dev eth0"
sleep 2
check "the address comes: nothing came afterwards" host compare peer:gpu0 0 $((64 * 1048576)) pattern:9

check "the other node goes" dismiss
rdma link del rxe0
umount /etc/libibverbs.d
plan $tap_n
