#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make check: everything it needs, then tests/run.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
"$PEERDMA_ROOT/scripts/user.sh" lib tools host-tests
exec "$PEERDMA_ROOT/tests/run.py" "$@"
