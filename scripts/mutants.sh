#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make mutants: builds everything it needs, then runs tests/mutants.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
"$PEERDMA_ROOT/scripts/user.sh" guest-tests
make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" programs || die "the test programs do not build"
exec "$PEERDMA_ROOT/tests/mutants.py"
