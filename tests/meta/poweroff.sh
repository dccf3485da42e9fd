#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The guest shuts down in an orderly way, but too early.
# must-fail: no-verdict silent in poweroff
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
ok "one"
echo o >/proc/sysrq-trigger
sleep 100
