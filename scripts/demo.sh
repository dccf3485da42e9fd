#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# demo.sh [rdma|offload]: make demo, make demo-rdma or make demo-offload: builds everything it needs, then runs qemu/demo.py,
# qemu/demo_rdma.py or qemu/demo_offload.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

which=${1:-}
engine=$PEERDMA_ROOT/qemu/demo${which:+_$which}.py
"$PEERDMA_ROOT/scripts/setup.sh" "demo${which:+-$which}"
options=()
if [ "$which" = offload ]; then
	[ -z "${JSON:-}" ] || options+=(--json "$JSON")
	"$engine" --check "${options[@]}"
elif [ -n "${FILE:-}" ]; then
	"$engine" --check-file "$FILE"
	options+=(--file "$FILE")
fi
case ${DEBUG:-0} in
0) variant=plain ;;
1) variant=debug ;;
*) variant=$DEBUG ;;
esac
kernel=$("$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" "$variant")
"$PEERDMA_ROOT/scripts/module.sh" "$kernel" >/dev/null
# Beside the command, what the demo's guests run: a test program, by the tests' rule, and the service.
case $which in
rdma) targets=tools program=pdio ;;
offload) targets='tools viewd softgpu' program=view_read ;;
*) targets=tools program= ;;
esac
# shellcheck disable=SC2086 # words
"$PEERDMA_ROOT/scripts/user.sh" $targets
[ -z "$program" ] || make -s -C "$PEERDMA_ROOT/tests" BUILD="$PEERDMA_BUILD" "$PEERDMA_BUILD/bin/$program" ||
	die "the demo's test program does not build"
exec "$engine" --kernel "$kernel" "${options[@]}" ${T:+--topology "$T"}
