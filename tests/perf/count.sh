#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# For make bench: all metrics, as diagnostics for the host.
# group: bench
# topologies: switch
# variants: plain
# boot: counting
# timeout: 300
. "$LAB_ROOT/tests/perf/lib.sh"

bench_disk
for what in all exact; do
	run_bench $what | sed -u 's/^/# /'
	same "$what is counted" 0 "${PIPESTATUS[0]}"
done
bench_xfs | sed -u 's/^/# /'
same "xfs is counted" 0 "${PIPESTATUS[0]}"
plan $tap_n
