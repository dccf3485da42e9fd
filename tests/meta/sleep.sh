#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A test that never ends, in user space.
# must-fail: hung sleep
# timeout: 2
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
ok "then nothing"
sleep 1000
