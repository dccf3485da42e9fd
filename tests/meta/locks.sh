#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A lock order that cannot deadlock here, but could.
# must-fail: splat possible circular
# variants: debug
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
check "a module that takes locks in both orders" splat locks
