#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must-fail: plan gave no plan
. "$LAB_ROOT/tests/guest/lib.sh"
ok "and no plan"
