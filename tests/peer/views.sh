#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A storage node with peerdma-viewd, which serves a file as a view and exports it by NVMe over RDMA to one host. The file is on a drive
# of device-mapper, which can be suspended. Executes the other guest's commands.
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

kernel_has nvmet nvmet-rdma
plug
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
make_drive 16
image halves /run/files/tokens 6
exports
same "a view" '' "$(image publish $socket tokens $'file = /run/files/tokens\ncodec = u32:u16\nprefetch = no\nhost = '$me)"
published "is published" tokens
host say ready "$prefix $me" >/dev/null
check "the other guest is done" obey
ends "it ends"
rdma link del rxe0
plan $tap_n
