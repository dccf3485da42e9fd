#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make check: builds everything it needs, then runs tests/run.py.
set -euo pipefail
"$(dirname "$0")/setup.sh" check
. "$(dirname "$0")/common.sh" # afterwards: ccache may be new
# As for tests/run.py, 0 is the same as no value.
for name in CHANGED DEBUG LIMIT; do
	[ "${!name:-}" != 0 ] || unset "$name"
done
# With KSRC there is one kernel, not two.
[ -z "${KSRC:-}" ] || export K="${K:-$(newest_kernel)}"

# Of the names in TEST:
# scripts FOLDER: those that are scripts there
scripts() {
	local name
	for name in ${TEST//,/ }; do
		[ -z "$(find "$PEERDMA_ROOT/tests/$1" -name "$name.sh" -o -name "$name.py")" ] || echo "$name"
	done
}
# for_guests: whether each of them is a guest test and none a host test
for_guests() { [ -z "$(scripts host)" ] && [ "$({ scripts guest; scripts perf; } | wc -l)" = "$(wc -w <<<"${TEST//,/ }")" ]; }
# only_all: whether one is a host test of "all" alone, which may need what only that builds
only_all() {
	local name
	for name in ${TEST//,/ }; do
		[[ $name != *_threads ]] || return 0
		! grep -qrx '# tier: all' "$PEERDMA_ROOT/tests/host" --include="$name.*" || return 0
	done
	return 1
}

# A typo is refused before anything is built.
"$PEERDMA_ROOT/tests/run.py" --validate
# One at a time: all use the same folder. tests/run.py keeps the lock until it ends.
mkdir -p "$PEERDMA_BUILD"
exec 7>"$PEERDMA_BUILD/check.lock"
flock -n 7 || { say "waiting for another check in $PEERDMA_BUILD"; flock 7; }

# What is selected is selected from everything. With T, a GROUP other than "host" or a guest test no host test runs.
built=host-tests programs=most polite=
if [ -n "${T:-}" ] || { [ -n "${GROUP:-}" ] && [ "${GROUP:-}" != host ]; }; then
	built=guest-tests
elif [ -n "${TEST:-}" ]; then
	if for_guests; then
		built=guest-tests
	elif only_all; then
		built=host-tests-all programs=all
	fi
elif [ "${TIER:-all}" = all ] && [ "${SHORT:-}" = 2 ] && [ -z "${GROUP:-}${K:-}${DEBUG:-}" ]; then
	built="host-tests hops" programs=all
elif [ "${TIER:-all}" = all ] || [ -n "${GROUP:-}${K:-}${DEBUG:-}" ]; then
	built=host-tests-all programs=all
fi
# The kernel that the first guests need is built meanwhile: its download and its links use one CPU or none. tests/run.py
# waits for it, or reports why it cannot be built.
if [ -z "${TEST:-}${GROUP:-}${CHANGED:-}${DEBUG:-}${KSRC:-}" ]; then
	# With its compilers it is one process group. An interrupt does not reach it.
	setsid "$PEERDMA_ROOT/qemu/kernel.sh" path "${K:-$(newest_kernel)}" >/dev/null 7>&- &
	trap 'end_groups $(jobs -rp)' EXIT
	polite="nice -n 5"
fi
# shellcheck disable=SC2086 # several words or none
$polite "$PEERDMA_ROOT/scripts/user.sh" $built
$polite make -s -C "$PEERDMA_ROOT/tests" -j"$(nproc)" BUILD="$PEERDMA_BUILD" $programs || die "the test programs do not build"
# Counted from the begin of this script.
[ -z "${LIMIT:-}" ] || export LIMIT=$((10#$LIMIT > SECONDS ? 10#$LIMIT - SECONDS : 1))
# It ends when this script does.
setpriv --pdeathsig TERM "$PEERDMA_ROOT/tests/run.py" "$@"
