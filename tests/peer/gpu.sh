#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A node with a GPU and programs for verbs. Executes the other guest's commands.
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
plan 1

publish
kernel_has ib_uverbs
few_drivers
plug
host say ready >/dev/null
check "the other guest is done" obey
rdma link del rxe0
umount /etc/libibverbs.d
