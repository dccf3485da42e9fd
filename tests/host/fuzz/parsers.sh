#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: all
# A short run of each user-space fuzzer on the committed inputs and on random variations. make fuzz-user runs them for
# long.
. "$(dirname "$0")/../tap.sh"
temporary
for source in "$root"/tests/fuzz/user/*.cpp; do
	name=$(basename "$source" .cpp)
	rm -rf "$tmp/inputs"
	mkdir "$tmp/inputs" # libFuzzer writes to the first folder
	if "$build/fuzz/user/$name" -runs=2000 -max_total_time=10 -seed=1 -max_len=512 -artifact_prefix="$tmp/" \
		"$tmp/inputs" "$root/tests/fuzz/user/corpus/$name" >"$tmp/log" 2>&1; then
		ok "random input: $name"
	else
		not_ok "random input: $name" "$(tail -n 30 "$tmp/log")"
	fi
done
finish
