#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A module that nobody uses and that says it is in use.
# must-fail: module-reference splat has 1
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that holds on to itself" splat reference
