#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/meta/peer.sh: a peer that fails.
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
ok "so far"
exit 1
