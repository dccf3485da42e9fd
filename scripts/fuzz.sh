#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make fuzz: builds everything it needs, then runs tests/fuzz.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
"$PEERDMA_ROOT/scripts/user.sh" lib tools
make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" "$PEERDMA_BUILD/bin/fuzz" || die "the fuzzer does not build"
exec "$PEERDMA_ROOT/tests/fuzz.py"
