#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A storage node. Exports the drive nvme0 by NVMe over RDMA as the subsystem "far", and the files of the drive nvme1 by
# NFS over RDMA. Executes the other guest's commands.
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
plan 1

kernel_has nvmet nvmet-rdma rpcrdma nfsd
plug
target far "$(nvme_disk)"
port 1 far rdma ipv4 $far_ip
mount_disk nvme1 $store
server || bail "no server"
host say ready >/dev/null
check "the other guest is done" obey
no_server
no_targets
rdma link del rxe0
