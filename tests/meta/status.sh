#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Good lines, then a bad exit status.
# must-fail: died status 7
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
ok "one"
exit 7
