#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make check: builds everything it needs, then runs tests/run.py.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
# With KSRC there is one kernel, not two.
[ -z "${KSRC:-}" ] || export K="${K:-$(newest_kernel)}"
end_builder() {
	local job
	for job in $(jobs -rp); do kill -- "-$job" 2>/dev/null || true; done
}

host_tests=host-tests programs=most polite=
# What is selected is selected from everything. With T or another GROUP no host test runs.
if [ "${GROUP:-}" = host ] || { [ -z "${GROUP:-}${T:-}" ] && { [ "${TIER:-all}" = all ] || [ -n "${TEST:-}${K:-}${DEBUG:-}" ]; }; }; then
	host_tests=host-tests-all programs=all
fi
# One guest test needs no host test, and ThreadSanitizer's programs are needed for those of their name.
if [ -n "${TEST:-}" ] && [ "${GROUP:-}" != host ]; then
	if [ -n "$(find "$PEERDMA_ROOT"/tests/guest/*/ "$PEERDMA_ROOT/tests/perf" -name "$TEST.sh")" ]; then
		host_tests=
	elif [[ $TEST != *_threads ]]; then
		host_tests=host-tests
	fi
fi
# The kernel that the first guests need is built meanwhile: its download and its links use one CPU or none. tests/run.py
# waits for it, or reports why it cannot be built.
if [ -z "${TEST:-}${GROUP:-}${CHANGED:-}${DEBUG:-}${KSRC:-}" ]; then
	# With its compilers it is one process group. An interrupt does not reach it.
	setsid "$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" >/dev/null &
	trap end_builder EXIT
	polite="nice -n 5"
fi
# shellcheck disable=SC2086 # one word or none
$polite "$PEERDMA_ROOT/scripts/user.sh" lib tools $host_tests
$polite make -s -C "$PEERDMA_ROOT/tests" -j"$(nproc)" BUILD="$PEERDMA_BUILD" $programs || die "the test programs do not build"
# It ends when this script does.
setpriv --pdeathsig TERM "$PEERDMA_ROOT/tests/run.py" "$@"
