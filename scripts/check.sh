#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make check: builds everything it needs, then runs tests/run.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
# With KSRC there is one kernel, not two.
[ -z "${KSRC:-}" ] || export K="${K:-$(newest_kernel)}"
host_tests=host-tests programs=most
# What is selected is selected from everything.
[ "${TIER:-all}" != all ] && [ -z "${TEST:-}" ] && [ "${GROUP:-}" != host ] || host_tests=host-tests-all programs=all
# The kernel that the first guests need is built meanwhile: its download and its links use one CPU or none. tests/run.py
# waits for it, or reports why it cannot be built.
if [ -z "${TEST:-}${GROUP:-}${CHANGED:-}${DEBUG:-}${KSRC:-}" ]; then
	"$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" >/dev/null &
	trap 'kill $! 2>/dev/null || true' EXIT
fi
"$PEERDMA_ROOT/scripts/user.sh" lib tools "$host_tests"
make -s -C "$PEERDMA_ROOT/tests" -j"$(nproc)" BUILD="$PEERDMA_BUILD" $programs || die "the test programs do not build"
"$PEERDMA_ROOT/tests/run.py" "$@"
