#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A module with a reference that no user holds.
# must-fail: module-reference splat has 1
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that holds on to itself" splat reference
