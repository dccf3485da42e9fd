#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A test that never ends, in uninterruptible sleep in the kernel.
# must-fail: hung hang
# also: stuck-tasks insmod
# timeout: 3
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that sleeps for good" splat hang
