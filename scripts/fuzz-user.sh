#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make fuzz-user: random input to each parser of the user side (tests/fuzz/user), for FUZZ_SECONDS in total. Inputs that
# reach new code are kept in build/fuzz/inputs, failures in build/fuzz/failures.
set -euo pipefail
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" check
make -s -C "$PEERDMA_ROOT/tests" -j"$(nproc)" BUILD="$PEERDMA_BUILD" parsers || die "the fuzzers do not build"
names=("$PEERDMA_ROOT"/tests/fuzz/user/*.cpp)
each=$((${FUZZ_SECONDS:-60} / ${#names[@]}))
failures=$PEERDMA_BUILD/fuzz/failures
mkdir -p "$failures"
bad=0
for source in "${names[@]}"; do
	name=$(basename "$source" .cpp)
	inputs=$PEERDMA_BUILD/fuzz/inputs/$name
	mkdir -p "$inputs"
	if "$PEERDMA_BUILD/fuzz/user/$name" -max_total_time=$((each > 0 ? each : 1)) -max_len=2048 -print_final_stats=1 \
		-artifact_prefix="$failures/$name-" "$inputs" "$PEERDMA_ROOT/tests/fuzz/user/corpus/$name" \
		>"$failures/$name.log" 2>&1; then
		printf '%-10s %s executions, cover %s, no failure\n' "$name" \
			"$(awk '/number_of_executed_units/ { print $2 }' "$failures/$name.log")" \
			"$(awk '/cov:/ { for (i = 1; i < NF; i++) if ($i == "cov:") n = $(i + 1) } END { print n }' "$failures/$name.log")"
	else
		tail -n 40 "$failures/$name.log"
		printf '%-10s FAILED: %s\n' "$name" "$failures/$name.log"
		bad=1
	fi
done
exit $bad
