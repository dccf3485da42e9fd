#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A test that prints the lab's own lines is still only a test.
# must-fail: plan gave no plan
. "$LAB_ROOT/tests/guest/lib.sh"
echo "verdict 3"
echo "exit 0"
