#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A test that speaks in the lab's name is only a test.
# must-fail: plan gave no plan
. "$LAB_ROOT/tests/guest/lib.sh"
echo "verdict 3"
echo "exit 0"
