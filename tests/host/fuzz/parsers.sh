#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: all
# A short run of each user-space fuzzer on the committed inputs and on random variations. make fuzz-user runs them for
# long.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
n=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for source in "$root"/tests/fuzz/user/*.cpp; do
	name=$(basename "$source" .cpp)
	n=$((n + 1))
	rm -rf "$work/inputs"
	mkdir "$work/inputs" # libFuzzer writes to the first folder
	if "$build/fuzz/user/$name" -runs=2000 -max_total_time=10 -seed=1 -max_len=512 -artifact_prefix="$work/" \
		"$work/inputs" "$root/tests/fuzz/user/corpus/$name" >"$work/log" 2>&1; then
		echo "ok $n - random input: $name"
	else
		echo "not ok $n - random input: $name"
		tail -n 30 "$work/log" | sed 's/^/# /'
		failed=1
	fi
done
echo "1..$n"
exit $failed
