#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make bench: builds everything it needs, then runs tests/perf/bench.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" bench
"$PEERDMA_ROOT/scripts/user.sh" lib tools
make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" programs || die "the test programs do not build"
exec "$PEERDMA_ROOT/tests/perf/bench.py"
