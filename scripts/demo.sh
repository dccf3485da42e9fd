#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make demo: everything it needs, then qemu/demo.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" demo
[ -z "${FILE:-}" ] || "$PEERDMA_ROOT/qemu/demo.py" --check-file "$FILE"
case ${DEBUG:-0} in
0) variant=plain ;;
1) variant=debug ;;
*) variant=$DEBUG ;;
esac
kernel=$("$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-7.2}" "$variant")
"$PEERDMA_ROOT/scripts/module.sh" "$kernel" >/dev/null
"$PEERDMA_ROOT/scripts/user.sh" tools
exec "$PEERDMA_ROOT/qemu/demo.py" --kernel "$kernel" ${FILE:+--file "$FILE"} ${T:+--topology "$T"}
