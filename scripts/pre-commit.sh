#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The git hook that `make hooks` offers: format and quick lint of what is staged, in seconds. `git commit --no-verify` passes it.
set -uo pipefail
root=$(git rev-parse --show-toplevel) || exit 1
. "$root/scripts/common.sh"
cd "$root" || exit 1
failed=0
mapfile -d '' -t staged < <(git diff --cached -z --name-only --diff-filter=ACMR)
[ ${#staged[@]} -gt 0 ] || exit 0
# The index may differ from the working tree.
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
git checkout-index -a --prefix="$copy/" || exit 1
cd "$copy" || exit 1

# run NAME COMMAND FILE...: nothing to do without files; a missing command is named. On all CPUs: shellcheck -x takes up to 1 s a file.
run() {
	local name=$1 command=$2 out
	shift 2
	[ $# -gt 0 ] || return 0
	command -v "${command%% *}" >/dev/null || {
		echo "pre-commit: $name: not checked, as ${command%% *} is not installed (scripts/setup.sh lint)"
		return
	}
	# shellcheck disable=SC2086 # a command and its options
	out=$(printf '%s\0' "$@" | xargs -0 -n 4 -P "$(nproc)" $command 2>&1) || {
		echo "pre-commit: $name:"
		printf '%s\n' "$out" | head -n 40
		failed=1
	}
}

of() { # of REGEX: the staged files that it matches
	printf '%s\n' "${staged[@]}" | grep -E "$1" || true
}
mapfile -t cpp < <(of "$CPP_FILES")
mapfile -t kernel < <(of "$KERNEL_FILES")
mapfile -t shell < <(of '\.sh$|^\.ci/run$')
mapfile -t python < <(of '\.py$')
# Another version than make lint's refuses lines that nobody has changed.
case $(clang-format --version 2>/dev/null) in
'' | *"version 14."*)
	run clang-format "clang-format --dry-run --Werror" "${cpp[@]}"
	if [ ${#kernel[@]} = 0 ]; then
		:
	elif cached_kernel_style >"$copy/.kernel-format"; then
		run "clang-format, the kernel's style" "clang-format --style=file:$copy/.kernel-format --dry-run --Werror" "${kernel[@]}"
	else
		echo "pre-commit: the kernel's style: not checked, as $PEERDMA_CACHE has no kernel (make demo)"
	fi
	;;
*) echo "pre-commit: clang-format: not checked, as it is not version 14, which make lint has" ;;
esac
run shellcheck "shellcheck -S warning -x -P SCRIPTDIR" "${shell[@]}"
run "python: syntax" "python3 -m py_compile" "${python[@]}"
run "python: pyflakes" pyflakes3 "${python[@]}"
run codespell "codespell -L $CODESPELL_KNOWS" "${staged[@]}"
PATH=$root/scripts:$PATH run SPDX spdx.sh "${staged[@]}"
exit $failed
