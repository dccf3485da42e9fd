#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make bench-pack: how fast integers are packed and unpacked on one core of this machine.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" bench-pack
"$PEERDMA_ROOT/scripts/user.sh" bench-pack
exec "$PEERDMA_ROOT/tests/perf/view/pack.py" "$PEERDMA_BUILD/bench/pack"
