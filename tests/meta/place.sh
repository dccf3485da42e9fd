#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Correct bytes at a wrong place, off by 8.
# must-fail: not-ok 1 of 2
. "$LAB_ROOT/tests/guest/lib.sh"
plan 2
check "the host fills" host fill gpu0 0 1048576 pattern:5 8
check "the host compares" host compare gpu0 0 1048576 pattern:5 0
