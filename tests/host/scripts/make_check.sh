#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/check.sh with stand-ins for what it calls: what it builds for a selection, and what ends with it.
. "$(dirname "$0")/../tap.sh"
temporary
unset TIER K DEBUG T GROUP TEST CHANGED KSRC SHORT LIMIT MAKEFLAGS MAKELEVEL
export PEERDMA_BUILD=$tmp/build

mkdir -p "$tmp/scripts" "$tmp/qemu" "$tmp/tests"
cp "$root/scripts/check.sh" "$root/scripts/common.sh" "$tmp/scripts/"
cp "$root/qemu/kernels.tbl" "$tmp/qemu/"
# stand_in FILE LINE...
stand_in() {
	printf '%s\n' '#!/bin/bash' "${@:2}" >"$tmp/$1"
	chmod +x "$tmp/$1"
}
# runs LINE...: what tests/run.py does for a selection that is valid
runs() { stand_in tests/run.py '[ "${1:-}" != --validate ] || exit 0' "$@"; }
stand_in scripts/setup.sh :
stand_in scripts/user.sh "echo \"\$*\" >$tmp/user"
stand_in qemu/kernel.sh :
runs :
printf '%s\n' 'most all:' "	@echo \$@ >$tmp/programs" >"$tmp/tests/Makefile"

mkdir -p "$tmp/tests/guest/io" "$tmp/tests/perf" "$tmp/tests/host/tools"
echo "# tier: all" >"$tmp/tests/host/parsers.sh"
: >"$tmp/tests/host/tools/bench.sh"
: >"$tmp/tests/guest/io/bench.sh"
: >"$tmp/tests/guest/io/read.sh"
: >"$tmp/tests/perf/lines.sh"

# builds TARGETS PROGRAMS [VARIABLE=VALUE...]: whether it builds these targets of user/ and these programs of tests/
builds() {
	env "${@:3}" "$tmp/scripts/check.sh" || return
	echo "user/: $(<"$tmp/user"), tests/: $(<"$tmp/programs")"
	[ "$(<"$tmp/user")" = "$1" ] && [ "$(<"$tmp/programs")" = "$2" ]
}
check "TIER=check: no more than its tests need" builds host-tests most TIER=check
check "TIER=all: everything" builds host-tests-all all TIER=all
oldest=$(. "$root/scripts/common.sh" && oldest_kernel)
for selection in GROUP=host "K=$oldest" DEBUG=1 KSRC=/tmp TEST=unit_threads TEST=parsers; do
	check "$selection: everything, as it is selected from everything" builds host-tests-all all TIER=check "$selection"
done
check "DEBUG=0 selects nothing" builds host-tests most TIER=check DEBUG=0
for test in unit bench; do
	check "TEST=$test: the host tests of check" builds host-tests most TIER=check TEST=$test
done
for test in read lines; do
	check "TEST=$test: no host test" builds guest-tests most TIER=check TEST=$test
done
for selection in GROUP=io T=switch "GROUP=io K=$oldest"; do
	# shellcheck disable=SC2086 # several variables
	check "$selection: no host test runs" builds guest-tests most TIER=check $selection
done

for test in read,lines lines,read; do
	check "TEST=$test: no host test among them" builds guest-tests most TIER=check TEST=$test
done
check "TEST=read,parsers: one of them needs everything" builds host-tests-all all TIER=check TEST=read,parsers
check "TEST=read,unit: host tests" builds host-tests most TIER=check TEST=read,unit
# limit_of LIMIT: that of tests/run.py
limit_of() { TIER=all LIMIT=$1 "$tmp/scripts/check.sh" | tail -n 1; }
runs 'echo "${LIMIT-none}"'
stand_in scripts/setup.sh "sleep 1"
check "LIMIT counts from the begin of the script" grep -qx '99[0-9]' <<<"$(limit_of 1000)"
stand_in scripts/setup.sh :
same "LIMIT=0 is none" none "$(limit_of 0)"
runs :
# refused: a selection that tests/run.py refuses ends check.sh with its error, and nothing is built
refused() {
	local out
	rm -f "$tmp/user"
	! out=$(TIER=check K=typo "$tmp/scripts/check.sh" 2>&1) && [ "$out" = "error: --validate K=typo" ] && [ ! -e "$tmp/user" ]
}
stand_in tests/run.py 'echo "error: $* K=$K" >&2' "exit 1"
check "a selection that is not valid is refused first" refused

gone() { ! kill -0 "$1" 2>/dev/null; }
# soon COMMAND...: the command succeeds within 5 s
soon() {
	for _ in {1..50}; do
		! "$@" || return 0
		sleep 0.1
	done
	return 1
}
# A build that takes long, with a compiler as its child.
stand_in qemu/kernel.sh "sleep 100 & echo \$! >$tmp/compiler; wait"
runs "echo \$\$ >$tmp/run; exec sleep 100"
TIER=check setsid "$tmp/scripts/check.sh" &
check=$!
check "run.py has begun" soon [ -s "$tmp/run" ]
check "and the build of the kernel" soon [ -s "$tmp/compiler" ]
runs "echo >$tmp/second"
TIER=check TEST=read "$tmp/scripts/check.sh" 2>"$tmp/waits" &
check "a second one waits" soon grep -q "waiting for another check" "$tmp/waits"
check "it has not begun" [ ! -e "$tmp/second" ]
kill -TERM $check
check "ended by SIGTERM: run.py ends" soon gone "$(<"$tmp/run")"
check "the build of the kernel ends" soon gone "$(<"$tmp/compiler")"
check "the second one goes on" soon [ -s "$tmp/second" ]
rm "$tmp/run" "$tmp/compiler"
runs "for _ in {1..50}; do [ ! -s $tmp/compiler ] || exit 3; sleep 0.1; done"
status=0
TIER=check "$tmp/scripts/check.sh" || status=$?
check "its status is that of run.py" [ $status = 3 ]
check "ended by itself: the build of the kernel ends" soon gone "$(<"$tmp/compiler")"
rm "$tmp/compiler"
status=0
TIER=check CHANGED=0 DEBUG=0 "$tmp/scripts/check.sh" || status=$?
check "CHANGED=0 DEBUG=0: the kernel is built meanwhile" [ $status = 3 ]
finish
