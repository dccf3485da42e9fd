#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# One wrong byte in 16 MiB of the GPU's memory.
# must-fail: not-ok 1 of 3
. "$LAB_ROOT/tests/guest/lib.sh"
plan 3
check "the host fills" host fill gpu0 0 16777216 pattern:5
check "the host spoils one byte" host fill gpu0 11111111 1 byte:0
check "the host compares" host compare gpu0 0 16777216 pattern:5
