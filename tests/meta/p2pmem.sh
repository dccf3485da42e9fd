#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A leaked page of the GPU's memory.
# must-fail: leak lost 4096
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that keeps a page of p2pmem" splat p2pmem
