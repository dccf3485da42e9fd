#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: all
# A short run of each user-space fuzzer on the committed inputs and on random variations. make fuzz-user runs them for
# long.
. "$(dirname "$0")/../tap.sh"
temporary
corpus=$root/tests/fuzz/user/corpus length=2048

# fuzz PROGRAM INPUTS: 2000 runs. No limit of time: at one, libFuzzer ends with status 0 as well.
fuzz() {
	rm -rf "$tmp/inputs"
	mkdir "$tmp/inputs" # libFuzzer writes to the first folder
	"$1" -runs=2000 -seed=1 -max_len=$length -artifact_prefix="$tmp/" "$tmp/inputs" "$2" >"$tmp/log" 2>&1 &&
		grep -q '^Done 2000 runs ' "$tmp/log"
}

for source in "$root"/tests/fuzz/user/*.cpp; do
	name=$(basename "$source" .cpp)
	if fuzz "$build/fuzz/user/$name" "$corpus/$name"; then
		ok "random input: $name"
	else
		not_ok "random input: $name" "$(tail -n 30 "$tmp/log")"
	fi
done
whole() { ! find "$corpus" -type f -size "+${length}c" | grep .; }
check "libFuzzer cuts no committed input short" whole
printf '%s\n' '#!/bin/sh' 'echo "Done 1999 runs in 10 second(s)"' >"$tmp/early"
chmod +x "$tmp/early"
early() { ! fuzz "$tmp/early" "$tmp"; }
check "a fuzzer that ends early fails" early
finish
