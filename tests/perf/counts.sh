#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Instructions per operation against this kernel's baseline, and the kernel's calls and allocations against exact
# counts.
# group: perf
# topologies: switch
# variants: plain
# boot: counting
# timeout: 120
. "$LAB_ROOT/tests/perf/lib.sh"

bench_disk
{
	run_bench main && run_bench exact
} >/run/counts || bail "bench did not come to its end"
# Batches cost more if the host completes requests slowly: a count that is too high is repeated once.
if "$LAB_ROOT/tests/perf/counts.py" "$LAB_K" /run/counts --without _xfs | grep -q '^not ok'; then
	run_bench main >>/run/counts
fi
bench_xfs >>/run/counts || bail "bench did not come to its end on xfs"
exec "$LAB_ROOT/tests/perf/counts.py" "$LAB_K" /run/counts
