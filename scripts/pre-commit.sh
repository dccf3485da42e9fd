#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The git hook that `make hooks` offers: format and quick lint of the staged files, in seconds. `git commit --no-verify` passes it.
set -uo pipefail
cd "$(git rev-parse --show-toplevel)" || exit 1
failed=0
mapfile -t staged < <(git diff --cached --name-only --diff-filter=ACMR)

# run NAME COMMAND FILE...: nothing to do without files or without the command
run() {
	local name=$1 command=$2 out
	shift 2
	[ $# -gt 0 ] && command -v "${command%% *}" >/dev/null || return 0
	# shellcheck disable=SC2086 # a command and its options
	out=$($command "$@" 2>&1) || {
		echo "pre-commit: $name:"
		printf '%s\n' "$out" | head -n 40
		failed=1
	}
}

of() { # of REGEX: the staged files that it matches
	printf '%s\n' "${staged[@]}" | grep -E "$1" || true
}
mapfile -t cpp < <(of '\.(cpp|hpp)$')
mapfile -t shell < <(of '\.sh$|^\.ci/run$')
mapfile -t python < <(of '\.py$')
run clang-format "clang-format --dry-run --Werror" "${cpp[@]}"
run shellcheck "shellcheck -S warning -x -P SCRIPTDIR" "${shell[@]}"
run "python: syntax" "python3 -m py_compile" "${python[@]}"
run codespell "codespell" "${staged[@]}"
for file in "${staged[@]}"; do
	case $file in *.c | *.h | *.cpp | *.hpp | *.sh | *.py | *Makefile)
		head -n 5 "$file" | grep -q SPDX-License-Identifier || {
			echo "pre-commit: $file: no SPDX line in its first 5 lines"
			failed=1
		}
		;;
	esac
done
exit $failed
