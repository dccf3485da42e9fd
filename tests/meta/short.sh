#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must-fail: plan planned 3 and showed 2
. "$LAB_ROOT/tests/guest/lib.sh"
plan 3
ok "one"
ok "two"
