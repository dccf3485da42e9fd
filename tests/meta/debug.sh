#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A lock order that could deadlock elsewhere, and leaked kernel memory.
# must-fail: leak objects
# also: splat unreferenced object; splat possible circular
# variants: debug
. "$LAB_ROOT/tests/guest/lib.sh"
plan 2
check "a module that takes locks in both orders" splat locks
rmmod splat
check "a module that leaks" splat leak
