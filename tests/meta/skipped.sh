#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must-fail: all-skipped no test
. "$LAB_ROOT/tests/guest/lib.sh"
skip_all "nothing to do"
