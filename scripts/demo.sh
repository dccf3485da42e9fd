#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# demo.sh [rdma]: make demo or make demo-rdma: builds everything it needs, then runs qemu/demo.py or qemu/demo_rdma.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

engine=$PEERDMA_ROOT/qemu/demo${1:+_$1}.py
"$PEERDMA_ROOT/scripts/setup.sh" "demo${1:+-$1}"
[ -z "${FILE:-}" ] || "$engine" --check-file "$FILE"
case ${DEBUG:-0} in
0) variant=plain ;;
1) variant=debug ;;
*) variant=$DEBUG ;;
esac
kernel=$("$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" "$variant")
"$PEERDMA_ROOT/scripts/module.sh" "$kernel" >/dev/null
"$PEERDMA_ROOT/scripts/user.sh" tools
# The program that writes in the demo's guest, built by the tests' rule.
[ -z "${1:-}" ] || make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" "$PEERDMA_BUILD/bin/pdio" ||
	die "the demo's test program does not build"
exec "$engine" --kernel "$kernel" ${FILE:+--file "$FILE"} ${T:+--topology "$T"}
