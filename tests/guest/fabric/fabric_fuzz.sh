#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Random calls while the drive is one by way of NVMe over RDMA: fuzz.sh, as fabric_io.sh has the others.
# group: rdma
# topologies: switch
# boot: fuzz
# variants: debug
# needs: rdma
# timeout: 400
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

load_module
far_drive
carried fuzz
no_far_drive
plan $tap_n
