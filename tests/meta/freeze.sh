#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The whole guest stops: only the host can detect it.
# must-fail: timeout silent in freeze
# timeout: 2
# grace: 3
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
host qmp '{"execute":"stop"}'
ok "cannot be"
