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

# What is selected is selected from everything. With T or another GROUP, and for one guest test, no host test runs.
built=host-tests programs=most polite=
if [ "${TIER:-all}" = all ] || [ -n "${TEST:-}${GROUP:-}${T:-}${K:-}${DEBUG:-}" ]; then
	built=host-tests-all programs=all
fi
if [ -n "${T:-}" ] || { [ -n "${GROUP:-}" ] && [ "${GROUP:-}" != host ]; }; then
	built=guest-tests programs=most
elif [ -n "${TEST:-}" ] && [ -n "$(find "$PEERDMA_ROOT"/tests/guest "$PEERDMA_ROOT/tests/perf" -name "$TEST.sh")" ]; then
	built=guest-tests
# What only "all" needs is needed for the programs of ThreadSanitizer and for scripts of that tier.
elif [ -n "${TEST:-}" ] && [[ $TEST != *_threads ]] &&
	! grep -qrx '# tier: all' "$PEERDMA_ROOT/tests/host" --include="$TEST.*"; then
	built=host-tests
fi
# The kernel that the first guests need is built meanwhile: its download and its links use one CPU or none. tests/run.py
# waits for it, or reports why it cannot be built.
if [ -z "${TEST:-}${GROUP:-}${CHANGED:-}${DEBUG:-}${KSRC:-}" ]; then
	# With its compilers it is one process group. An interrupt does not reach it.
	setsid "$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" >/dev/null &
	trap end_builder EXIT
	polite="nice -n 5"
fi
# shellcheck disable=SC2086 # several words or none
$polite "$PEERDMA_ROOT/scripts/user.sh" $built
$polite make -s -C "$PEERDMA_ROOT/tests" -j"$(nproc)" BUILD="$PEERDMA_BUILD" $programs || die "the test programs do not build"
# It ends when this script does.
setpriv --pdeathsig TERM "$PEERDMA_ROOT/tests/run.py" "$@"
