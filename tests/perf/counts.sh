#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Instructions per operation against the baseline of this kernel, and what the kernel did against exact counts.
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
# Requests that are many at once cost more where the host is slow to answer them: what is too much is counted once more.
if "$LAB_ROOT/tests/perf/counts.py" "$LAB_K" /run/counts --without _xfs | grep -q '^not ok'; then
	run_bench main >>/run/counts
fi
bench_xfs >>/run/counts || bail "bench did not come to its end on xfs"
exec "$LAB_ROOT/tests/perf/counts.py" "$LAB_K" /run/counts
