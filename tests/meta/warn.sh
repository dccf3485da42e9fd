#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A WARN in the kernel, with good TAP only.
# must-fail: splat WARNING
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that warns" splat warn
