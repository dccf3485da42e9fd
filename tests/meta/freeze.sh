#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The whole guest stops: only the host can detect it, and says where its CPUs are.
# must-fail: timeout silent in freeze
# also: timeout CPU#0\s+RIP=
# timeout: 2
# grace: 3
. "$LAB_ROOT/tests/guest/lib.sh"
plan 1
host qmp '{"execute":"stop"}'
ok "cannot be"
