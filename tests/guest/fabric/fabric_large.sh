#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs large.sh, requests over 2 GiB, on a drive that is connected by NVMe over RDMA, set up as in fabric_io.sh.
# group: rdma
# topologies: switch
# boot: large
# variants: plain
# needs: rdma
# timeout: 300
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
far_drive
carried large
no_far_drive
plan $tap_n
