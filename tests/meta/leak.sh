#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Kernel memory that nobody points to.
# must-fail: leak objects
# also: splat unreferenced object
# variants: debug
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that leaks" splat leak
