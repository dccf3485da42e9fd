#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# must-fail: qemu status -9
# also: no-verdict silent in killed
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
host kill-qemu
ok "cannot be"
