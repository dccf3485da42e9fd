#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# soak.sh [revoke]: builds everything it needs, then runs tests/soak.py or tests/soak_revoke.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
"$PEERDMA_ROOT/scripts/user.sh" lib tools
make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" programs || die "the test programs do not build"
exec "$PEERDMA_ROOT/tests/soak${1:+_$1}.py"
