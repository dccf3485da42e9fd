#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs fuzz.sh on a drive that is connected by NVMe over RDMA, set up as in fabric_io.sh.
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
