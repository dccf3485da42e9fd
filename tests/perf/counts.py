#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Judges counts of instructions by baselines, exact counts and limits.

    counts.py K FILE [--without SUFFIX]     judge the output of bench in FILE on kernel K; TAP. Ignores metrics whose
                                            name ends with SUFFIX

Baselines are baseline-K.csv and exact-K.csv beside this file, written by "make bench BASELINE=1".
"""
from __future__ import annotations

import csv
import math
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Sequence

HERE = Path(__file__).resolve().parent
KERNELS_TABLE = HERE.parents[1] / "qemu/kernels.tbl"
HEADERS = {"baseline": ("metric", "size", "instr_per_op"), "exact": ("count", "size", "per_op")}
TOLERANCE = 0.03  # the difference between boots is smaller, that of a relevant change larger
# The cost of host memory depends on the layout of its pages, which differs between boots.
TOLERANCES = {"host_odirect_read": 0.20, "host_odirect_read_raw": 0.20, "host_odirect_read_xfs": 0.20, "host_odirect_write_xfs": 0.20, "host_odirect_write": 0.20, "uring_host_fixed_read_qd32": 0.30,
              "uring_host_fixed_read_qd32_raw": 0.30}
FAR_TOLERANCE = 0.05  # storage over a network varies more
REFERENCE = "host_odirect_read"
FAR = ("nvme_rdma_", "nfs_rdma_", "nvme_card_", "nfs_card_")
KIB, MIB = 1 << 10, 1 << 20
# A direct read by NVMe over RDMA through a card that moves the bytes itself, against one into host memory by the same card: the most
# that it may cost.
CARD_LIMITS = {4 * KIB: 1.0, MIB: 0.10}

Key = tuple[str, int]  # metric, size


@dataclass(frozen=True)
class Limit:
    """metric at size costs at most ratio times what other at other_size costs."""
    k: str
    metric: str
    size: int
    other: str
    other_size: int
    ratio: float
    required: bool  # checked by make check; otherwise only reported

    def __str__(self) -> str:
        return f"{self.metric} {human(self.size)} <= {self.ratio:.2f} x {self.other} {human(self.other_size)}"


def against_host(k: str, what: str, size: int, ratio: float, required: bool = True) -> Limit:
    """what: "" for a file on ext4, "_xfs" for one on xfs, "_raw" for the drive itself."""
    return Limit(k, f"direct_read{what}", size, f"host_odirect_read{what}", size, ratio, required)


def growth(k: str) -> Limit:
    return Limit(k, "direct_read", MIB, "direct_read", 4 * KIB, 1.15, True)


def limits_of(k: str, smallest: float, raw_64k: bool) -> tuple[Limit, ...]:
    """The purpose of direct I/O: it costs less. A row that is not required does not hold yet. smallest: the ratio at 4 KiB;
    raw_64k: whether 64 KiB of a drive are required."""
    return (
        against_host(k, "", 4 * KIB, smallest),
        against_host(k, "", 64 * KIB, 0.35, False),
        against_host(k, "", 512 * KIB, 0.08),
        against_host(k, "", MIB, 0.05),
        against_host(k, "_raw", 4 * KIB, smallest),
        against_host(k, "_raw", 64 * KIB, 0.35, raw_64k),
        against_host(k, "_raw", 512 * KIB, 0.08),
        against_host(k, "_raw", MIB, 0.05),
        growth(k),
        against_host(k, "_xfs", 4 * KIB, smallest),
    )


def rings(k: str, what: str) -> tuple[Limit, ...]:
    """A request of a batch, as a command of its own and as a segment of a vector command."""
    fixed, single = f"uring_host_fixed_read_qd32{what}", f"ring_direct_read_qd32{what}"
    piece, host = f"ring_direct_readv_32{what}", f"host_odirect_read{what}"
    return (
        Limit(k, single, 4 * KIB, fixed, 4 * KIB, 1.05, False),
        Limit(k, single, 64 * KIB, fixed, 64 * KIB, 0.60, False),
        Limit(k, piece, 4 * KIB, host, 4 * KIB, 0.50, True),
        Limit(k, piece, 4 * KIB, fixed, 4 * KIB, 1.05, True),
        Limit(k, piece, 4 * KIB, fixed, 4 * KIB, 0.85, False),
        Limit(k, piece, 64 * KIB, fixed, 64 * KIB, 0.60, True),
    )


# Like the baselines, by kernel.
ROWS = [line.split()[1:] for line in KERNELS_TABLE.read_text().splitlines() if line.startswith("limits ")]
LIMITS = tuple(limit for k, smallest, raw_64k in ROWS
               for limit in limits_of(k, float(smallest), {"required": True, "goal": False}[raw_64k]) + rings(k, "") + rings(k, "_raw"))


def limits(k: str) -> list[Limit]:
    found = [limit for limit in LIMITS if limit.k == k]
    if not found:
        raise ValueError(f"{KERNELS_TABLE.name} has no limits for the kernel {k}")
    return found


def human(size: int) -> str:
    if size >= MIB:
        return f"{size // MIB} MiB"
    return f"{size // KIB} KiB" if size else "-"


@dataclass
class Counts:
    """The output of one boot."""
    instructions: dict[Key, float] = field(default_factory=dict)
    exact: dict[Key, float] = field(default_factory=dict)
    absent: dict[Key, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> Counts:
        """The minimum of repeated counts: on a busy host the drive completes requests one by one, which costs more."""
        counts = cls()
        for line in lines:
            words = line.removeprefix("# ").split(maxsplit=3)
            if len(words) == 4 and words[0] == "count":
                key = words[1], int(words[2])
                counts.instructions[key] = min(float(words[3]), counts.instructions.get(key, math.inf))
            elif len(words) == 4 and words[0] == "exact":
                counts.exact[words[1], int(words[2])] = float(words[3])
            elif len(words) == 4 and words[0] == "absent":
                counts.absent[words[1], int(words[2])] = words[3]
        return counts

    @classmethod
    def median(cls, boots: Sequence[Counts]) -> Counts:
        """The median of the metrics that all boots have."""
        keys = [key for key in boots[0].instructions if all(key in boot.instructions for boot in boots)]
        sums = {key: statistics.median(boot.instructions[key] for boot in boots) for key in keys}
        return cls(sums, boots[0].exact, boots[0].absent)


def read_csv(path: Path) -> dict[Key, float]:
    with open(path, newline="") as file:
        rows = iter(csv.reader(row for row in file if not row.startswith("#")))
        if tuple(next(rows, ())) not in HEADERS.values():
            raise ValueError(f"{path} has another header")
        return {(name, int(size)): float(value) for name, size, value in rows}


def write_csv(path: Path, kind: str, values: dict[Key, float]) -> None:
    with open(path, "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEADERS[kind])
        out.writerows((name, size, f"{value:g}" if kind == "exact" else round(value))
                      for (name, size), value in values.items())


# --- Judgement: each function returns failures and remarks ---------------------------------------

@dataclass
class Verdict:
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge_baseline(counts: Counts, baseline: dict[Key, float]) -> Verdict:
    verdict = Verdict()
    if not counts.instructions:
        verdict.wrong.append("nothing was counted")
    for key, why in counts.absent.items():
        if key in baseline:
            verdict.wrong.append(f"{name(key)} is in the baseline, but absent: {why}")
    for key, now in counts.instructions.items():
        before, tolerance = baseline.get(key), TOLERANCES.get(key[0], TOLERANCE)
        if before is None:
            verdict.wrong.append(f"{name(key)} has no baseline: make bench BASELINE=1")
        elif now > before * (1 + tolerance):
            verdict.wrong.append(f"{name(key)} costs {now:.0f}, {change(now, before)} than {before:.0f}")
        elif now < before * (1 - tolerance):
            verdict.notes.append(f"{name(key)} costs {now:.0f}, {change(now, before)} than {before:.0f}: "
                                 "keep it with make bench BASELINE=1")
    return verdict


def far_changes(counts: Counts, kept: dict[Key, float]) -> list[str]:
    """Remarks that are not failures."""
    return [f"{name(key)} costs {now:.0f}, {change(now, kept[key])} than {kept[key]:.0f}"
            for key, now in counts.instructions.items()
            if key in kept and abs(now - kept[key]) > FAR_TOLERANCE * kept[key]]


def judge_exact(counts: Counts, wanted: dict[Key, float]) -> Verdict:
    """Exact counts: a lower one is a change as well."""
    verdict = Verdict()
    for key in wanted.keys() | counts.exact.keys():
        want, got = wanted.get(key), counts.exact.get(key)
        if want is None or got is None or abs(want - got) > 1e-4 * abs(want):
            verdict.wrong.append(f"{name(key)}: want {want}, got {got}")
    verdict.wrong.sort()
    return verdict


def judge_limit(counts: Counts, limit: Limit) -> Verdict:
    values = counts.instructions
    one, other = values.get((limit.metric, limit.size)), values.get((limit.other, limit.other_size))
    if one is None or other is None:
        return Verdict([f"{limit}: not counted"])
    says = f"{limit}: is {one / other:.3f} ({one:.0f} of {other:.0f})"
    return Verdict([], [says]) if one <= limit.ratio * other else Verdict([says], [])


def reference_of(metric: str) -> str:
    """The reference: a read into host memory from the same storage, counted in the same way."""
    way = next((way for way in FAR if metric.startswith(way)), "")
    return way + REFERENCE + ("_all" if metric.endswith("_all") else "")


def name(key: Key) -> str:
    return f"{key[0]} {human(key[1])}"


def change(now: float, before: float) -> str:
    return f"{abs(now / before - 1) * 100:.1f} % {'more' if now > before else 'less'}"


def main() -> int:
    k, path, *without = sys.argv[1:]
    suffix = without[1] if without else "\n"
    counts = Counts.parse(Path(path).read_text().splitlines())
    required = [limit for limit in limits(k) if limit.required and not limit.metric.endswith(suffix)]
    baseline = {key: value for key, value in read_csv(HERE / f"baseline-{k}.csv").items() if not key[0].endswith(suffix)}
    verdicts = [
        (f"at most {TOLERANCE:.0%} above baseline-{k}.csv",
         judge_baseline(counts, baseline)),
        (f"commands, merges, bytes by way of the host and allocations are those of exact-{k}.csv",
         judge_exact(counts, read_csv(HERE / f"exact-{k}.csv"))),
        *((str(limit), judge_limit(counts, limit)) for limit in required),
    ]
    for n, (text, verdict) in enumerate(verdicts, 1):
        print(f"{'not ok' if verdict.wrong else 'ok'} {n} - {text}")
        for line in verdict.wrong + verdict.notes:
            print(f"# {line}")
    print(f"1..{len(verdicts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
