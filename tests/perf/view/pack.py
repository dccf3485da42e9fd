#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""pack.py PROGRAM: runs a benchmark of packing (pack.cpp) and compares it with memcpy() in the same run.

Prints the median of five repetitions, and how far they lie apart, as GB/s of elements that are not packed. Fails if packing or
unpacking is slower than what LEAST demands. On a machine without AVX2 nothing is demanded. --json prints one object.
"""
from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

REPETITIONS = 5
LEAST = {16: .8, 18: .3}  # by bits: of memcpy's rate


def measured(program: Path) -> dict[str, list[float]]:
    """The rates of each benchmark, in GB/s."""
    command = [str(program), f"--benchmark_repetitions={REPETITIONS}", "--benchmark_min_time=0.2", "--benchmark_format=json",
               "--benchmark_enable_random_interleaving=true"]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)["benchmarks"]
    rates: dict[str, list[float]] = {}
    for row in rows:
        if row["run_type"] == "iteration":
            rates.setdefault(row["run_name"], []).append(row["bytes_per_second"] / 1e9)
    return dict(sorted(rates.items(), key=lambda one: [int(part) if part.isdigit() else part for part in one[0].split("/")]))


def has_avx2() -> bool:
    return re.search(r"^flags.*\bavx2\b", Path("/proc/cpuinfo").read_text(), re.M) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rates = measured(args.program)
    memcpy = statistics.median(rates["copied"])
    slow = []
    for name, runs in rates.items():
        way, _, bits = name.partition("/")
        least = LEAST.get(int(bits or 0), 0) if way in ("packed", "unpacked") and has_avx2() else 0
        if statistics.median(runs) < least * memcpy:
            slow.append(f"{name}: {statistics.median(runs) / memcpy:.2f} x memcpy, less than {least}")
    if args.json:
        print(json.dumps({"unit": "GB/s", "runs": rates, "slow": slow}))
    else:
        print(f"{'':22}{'GB/s':>8}{'runs':>16}{'x memcpy':>10}")
        for name, runs in rates.items():
            middle = statistics.median(runs)
            print(f"{name:22}{middle:8.1f}{min(runs):9.1f} -{max(runs):5.1f}{middle / memcpy:10.2f}")
    for line in slow:
        print(f"too slow: {line}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
