# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced after lib.sh by tests that type the documentation's commands (Documentation/contributing.md). Sets up a folder
# that looks like the tree, where sudo runs its command and make prints what is built.

tree=/run/docs

# like_the_tree WHERE: creates it; the blocks tagged "run: WHERE" are in $tree/blocks
like_the_tree() {
	local entry
	mkdir -p $tree/bin $tree/blocks $tree/tree
	for entry in "$LAB_ROOT"/*; do ln -sfn "$entry" "$tree/tree/${entry##*/}"; done
	ln -sfn "$LAB_BUILD" $tree/tree/build
	stands_for sudo 'exec "$@"'
	stands_for make 'case $1 in tools) ;; module) echo "$LAB_MODULE" ;; *) exit 2 ;; esac'
	python3 "$LAB_ROOT/scripts/docs.py" "--$1" $tree/blocks || bail "no blocks"
}

# stands_for COMMAND WHAT: runs WHAT if a block calls COMMAND
stands_for() {
	printf '#!/bin/bash\n%s\n' "$2" >"$tree/bin/$1"
	chmod +x "$tree/bin/$1"
}

# typed BLOCK: runs it verbatim; prints its output, and how its end differs from its tag
typed() {
	local options out status=0 want=0
	read -r _ _ _ options <"$1" # "# run: guest, status 1"
	[[ ! $options =~ status\ ([0-9]+) ]] || want=${BASH_REMATCH[1]}
	out=$(cd $tree/tree && PATH=$tree/bin:$PATH bash -euo pipefail "$1" 2>&1) || status=$?
	[[ $out != *"not ok"* ]] || status="$status, and a test in it failed"
	[[ $out != *"cannot be preloaded"* ]] || status="$status, and a library was not there"
	[ -z "$out" ] || printf '%s\n' "$out"
	[ "$want" = "$status" ] || { echo "status $status, not $want"; return 1; }
}
