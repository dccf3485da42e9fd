# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the host tests that are scripts: prints TAP. The script ends with finish. Without it, and after a failure, the exit
# status is not 0, wherever the script ends.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # for the scripts
build=${PEERDMA_BUILD:-$root/build}
tmp='' tap_n=0 tap_failed=0 tap_finished=0

tap_exit() {
	rm -rf "$tmp"
	[ $tap_failed$tap_finished = 01 ] || exit 1
}
trap tap_exit EXIT
# temporary [-p FOLDER]: makes the folder $tmp, which goes when the script ends
temporary() { tmp=$(mktemp -d "$@") || exit 1; }

ok() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $1"; }
# not_ok WHAT [NOTE...]
not_ok() {
	tap_n=$((tap_n + 1)) tap_failed=1
	echo "not ok $tap_n - $1"
	[ $# = 1 ] || printf '%s\n' "${@:2}" | sed 's/^/# /'
	return 1
}
# skip WHAT WHY
skip() { ok "$1 # SKIP $2"; }

# check WHAT COMMAND...: ok if the command succeeds, else with its output. Needs temporary. A function is called in this shell.
check() {
	if "${@:2}" >"${tmp:?}/.output" 2>&1; then ok "$1"; else not_ok "$1" "status $? from: ${*:2}" "$(cat "$tmp/.output")"; fi
}
# same WHAT WANT GOT: an empty WANT is a failure, because the program that makes it may have failed
same() {
	if [ -n "$2" ] && [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "want: $2" "got:  $3"; fi
}

# finish: prints the plan and ends the script. No test at all is a failure.
finish() {
	[ $tap_n != 0 ] || not_ok "there is a test"
	echo "1..$tap_n"
	tap_finished=1
	exit
}
