#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make docs: installs what it needs, then runs docs.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" docs
exec "$PEERDMA_ROOT/scripts/docs.py" "$PEERDMA_BUILD/docs"
