#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# More than 2 GiB in one request by way of NVMe over RDMA: large.sh, as fabric_io.sh has the others.
# group: rdma
# topologies: switch
# boot: large
# variants: plain
# needs: rdma
# timeout: 300
# long: 6.12 7.2
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
far_drive
carried large
no_far_drive
plan $tap_n
