#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make bench`: counts instructions in several boots of a guest and prints the medians.

Environment: K=kernel of the lab (default: each), BASELINE=1 to write the baselines of make check, ONLY=near|far to
count only the guest's own drive, or only storage over a network.
"""
from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "qemu")]
import counts  # noqa: E402
import lab  # noqa: E402
import plot  # noqa: E402
import tables  # noqa: E402

BOOTS = 3
OUT = lab.BUILD / "bench"
CAVEAT = ("These are instructions of the calling thread in an emulated guest, per operation: an emulator's counts,\n"
          "not times. They compare software paths with each other and say nothing about hardware.")


async def boots_of(kernel: lab.Kernel, script: str, start: float) -> list[counts.Counts]:
    slots = asyncio.Semaphore(max(1, os.cpu_count() or 1))
    test = lab.Test.load(HERE / script)

    async def one(n: int) -> counts.Counts:
        async with slots:
            step(start, f"kernel {kernel.name}: boot {n} of {BOOTS} counts ({test.name}), usually one or two minutes")
            guest = lab.Guest(kernel, lab.Topology.load(test.words("topologies")[0]), [test],
                              OUT / f"{kernel.name}-{test.name}-{n}", counting=True)
            outcome = await lab.boot(guest)
        if not outcome.ok:
            raise lab.LabError(f"boot {n} of {kernel.name} failed: {'; '.join(map(str, outcome.reasons))}, "
                               f"logs in {guest.out}")
        for path in (*guest.out.glob("*.img"), guest.path("gpu0")):
            path.unlink(missing_ok=True)
        return counts.Counts.parse(outcome.notes)

    return list(await asyncio.gather(*(one(n) for n in range(1, BOOTS + 1))))


def step(start: float, text: str) -> None:
    print(f"==> [{time.monotonic() - start:4.0f} s] {text}", flush=True)


def ratios(result: counts.Counts) -> list[str]:
    """Instructions, each with its ratio to the reference of the same size."""
    lines = []
    for (metric, size), value in result.instructions.items():
        reference = result.instructions.get((counts.reference_of(metric), size))
        ratio = f"{value / reference:9.3f} x" if reference else ""
        lines.append(f"{metric:<32} {counts.human(size):>8} {value:>12.0f} {ratio}".rstrip())
    return lines


def table(k: str, result: counts.Counts) -> str:
    lines = [f"Kernel {k}: instructions per operation, x times those of {counts.REFERENCE} of the same size", "",
             *ratios(result)]
    lines += [f"{metric:<28} {counts.human(size):>8}       absent {why}" for (metric, size), why in result.absent.items()]
    lines += ["", f"Kernel {k}: what one operation does, exactly", ""]
    lines += [f"{count:<40} {counts.human(size):>8} {value:>10g}" for (count, size), value in result.exact.items()]
    lines += ["", f"Kernel {k}: limits", "", *(judged(result, limit) for limit in counts.limits(k))]
    return "\n".join(lines) + "\n"


def judged(result: counts.Counts, limit: counts.Limit) -> str:
    verdict = counts.judge_limit(result, limit)
    state = "holds" if not verdict.wrong else "BROKEN" if limit.required else "not yet"
    return f"{state:<8} {(verdict.wrong + verdict.notes)[0]}"


def report(k: str, boots: list[counts.Counts]) -> None:
    result = counts.Counts.median(boots)
    for boot in boots[1:]:
        if boot.exact != boots[0].exact:
            raise lab.LabError(f"exact counts of {k} differ between boots: {boot.exact} and {boots[0].exact}")
    text = table(k, result)
    counts.write_csv(OUT / f"{k}.csv", "baseline", result.instructions)
    counts.write_csv(OUT / f"{k}-exact.csv", "exact", result.exact)
    (OUT / f"{k}.txt").write_text(f"{CAVEAT}\n\n{text}")
    (OUT / f"{k}.svg").write_text(plot.svg(f"PeerDMA on kernel {k}, in an emulator", result.instructions))
    print(f"\n{text}\n{CAVEAT}\n")
    if baseline_wanted():
        counts.write_csv(HERE / f"baseline-{k}.csv", "baseline", result.instructions)
        counts.write_csv(HERE / f"exact-{k}.csv", "exact", result.exact)
        tables.write()
        print(f"written: {HERE / f'baseline-{k}.csv'} and exact-{k}.csv, which make check compares with,\n"
              f"and the tables of {tables.PAGE}\n")
    else:
        verdict = counts.judge_baseline(result, counts.read_csv(HERE / f"baseline-{k}.csv"))
        for line in verdict.wrong + verdict.notes:
            print(f"against the baseline: {line}")
    print(f"in {OUT}: {k}.csv, {k}-exact.csv, {k}.txt, {k}.svg", flush=True)


def card_limits(k: str) -> list[counts.Limit]:
    """The limits of reads by a card, where they are not refused: a count that is missing breaks its limit."""
    if k in lab.LACKS["nvme-rdma-p2p"].kernels:
        return []
    return [counts.Limit(k, "nvme_card_direct_read", size, "nvme_card_" + counts.REFERENCE, size, ratio, True)
            for size, ratio in counts.CARD_LIMITS.items()]


def report_far(k: str, boots: list[counts.Counts]) -> None:
    """Not compared with a baseline: the work of a network for one read varies between boots. What a card moves has its limits."""
    result = counts.Counts.median(boots)
    text = "\n".join([f"Kernel {k}: over RDMA by soft-RoCE and by a card, instructions per operation, of the calling thread and (_all) of "
                      "everybody\nat both ends; x times those of a read into host memory by the same way", "",
                      *ratios(result)])
    counts.write_csv(OUT / f"{k}-far.csv", "baseline", result.instructions)
    print(f"\n{text}\n\n{CAVEAT}\n")
    if not baseline_wanted():
        for line in counts.far_changes(result, counts.read_csv(HERE / f"far-{k}.csv")):
            print(f"against what was kept: {line}")
    print(f"in {OUT}: {k}-far.csv", flush=True)
    lines = [judged(result, limit) for limit in card_limits(k)]
    for line in lines:
        print(line, flush=True)
    if broken := [line for line in lines if line.startswith("BROKEN")]:
        raise lab.LabError("; ".join(broken))
    if baseline_wanted():
        counts.write_csv(HERE / f"far-{k}.csv", "baseline", result.instructions)
        tables.write()
        print(f"written: {HERE / f'far-{k}.csv'} and the tables of {tables.PAGE}\n")


def baseline_wanted() -> bool:
    return os.environ.get("BASELINE") not in (None, "", "0")


REPORTS = {"near": ("count.sh", report), "far": ("far.sh", report_far)}


def main() -> int:
    chosen = os.environ.get("K") or None
    if chosen not in (None, *lab.KERNELS):
        raise lab.LabError(f"K={chosen} is not a kernel of the lab: {' or '.join(lab.KERNELS)}")
    only = os.environ.get("ONLY") or None
    if only not in (None, *REPORTS):
        raise lab.LabError(f"ONLY={only} is neither {' nor '.join(REPORTS)}")
    start = time.monotonic()
    OUT.mkdir(parents=True, exist_ok=True)
    kernels = [chosen] if chosen else lab.KERNELS
    for k in kernels:
        counts.limits(k)  # a missing one is an error before anything is booted
    for k in kernels:
        kernel = lab.ready_kernel(k, "plain")
        for script, show in [REPORTS[only]] if only else REPORTS.values():
            show(k, asyncio.run(boots_of(kernel, script, start)))
    step(start, "done")
    return 0


if __name__ == "__main__":
    lab.as_command(main)
