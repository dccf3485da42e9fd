#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must-fail: splat (BUG|Oops)
# also: qemu guest-reset
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that oopses" splat oops
