#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The worked example, Documentation/examples/file_to_gpu.cpp: sends a file of a drive over the network into GPU memory.
# Both nodes are in this guest; the host compares.
# group: rdma
# topologies: rp
# tier: all
# wants: rdma-on-demand
# variants: plain
# needs: script rdma
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
roce
# Neither whole pieces nor whole blocks.
bytes=$((20 * 1048576 + 12345))
pattern fill /mnt/disk/sent 0 $bytes pattern:4
sync
host fill gpu0 0 $((64 * 1048576)) pattern:9 >/dev/null

# receive PORT: starts node B and waits until it listens
receive() {
	file_to_gpu receive "$1" >/tmp/received &
	receiver=$!
	for _ in {1..300}; do ! grep -qi ":$(printf %x "$1") " /proc/net/tcp6 || return; sleep 0.1; done
	bail "nobody listens"
}

receive 4792
# On a terminal, which receives only its messages.
script -qec "file_to_gpu send /mnt/disk/sent 127.0.0.1 4792 >/tmp/sent" /dev/null >/tmp/typed
status=$?
diag "$(tr '\r' '\n' </tmp/typed | tail -n 2)"
same "node A" 0 $status
wait $receiver
same "node B" 0 $?
check "it moves on a terminal" [ "$(tr '\r' '\n' </tmp/typed | grep -c "% of $bytes bytes")" -gt 2 ]
check "the bar is full at the end" grep -q "\[#\{40\}\] 100 % of $bytes bytes" /tmp/typed
read -r came _ _ _ _ at way </tmp/received
same "how many bytes" "$bytes on demand" "$came $way"
check "every byte is in the memory of node B's GPU" host compare gpu0 "${at%,}" $bytes pattern:4
same "what the drive reads itself" "$((bytes / 512 * 512))" "$(head -n 1 /tmp/sent | cut -d' ' -f3)"
read -r overlapped _ pieces _ <<<"$(tail -n 1 /tmp/sent)"
diag "$(tail -n 1 /tmp/sent)"
same "pieces" 21 "$pieces"
check "most of them were read while an earlier one was on its way" [ "$overlapped" -gt $((pieces / 2)) ]
receive 4793
check "a file that is not there: node A says so" bash -c "file_to_gpu send /mnt/disk/none 127.0.0.1 4793 2>&1 | grep 'none: No such file'"
wait $receiver
same "and node B does not wait for it" 1 $?
receive 4794
throttle $((256 * 1024))
timeout -s KILL 3 file_to_gpu send /mnt/disk/sent 127.0.0.1 4794 2>/dev/null
check "node A is killed half way: node B ends" soon 20 eval "! kill -0 $receiver 2>/dev/null"
wait $receiver
same "node A is killed half way: and says so" 1 $?
receive 4795
# sent: packets that soft-RoCE has sent, of 4096 bytes; the drive is slow from the second MiB on
sent() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
before=$(sent)
file_to_gpu send /mnt/disk/sent 127.0.0.1 4795 >/dev/null 2>&1 &
sender=$!
soon 30 eval '[ "$(sent)" -gt $((before + 256)) ]' || not_ok "node A sends"
check "node B is killed half way: node A was at it" kill -0 $sender
kill -9 $receiver
check "node B is killed half way: node A ends" soon 60 eval "! kill -0 $sender 2>/dev/null"
wait $sender
same "node B is killed half way: and says so" 1 $?
throttle 0
no_roce
rm /mnt/disk/sent
plan $tap_n
