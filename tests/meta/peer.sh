#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The peer fails, and the guest that waits for it ends.
# peer: fails storage
# must-fail: died peer: fails ended with status 1
# also: peer ended because the other guest failed
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
host hear never 50 >/dev/null
sleep 50
ok "cannot be"
