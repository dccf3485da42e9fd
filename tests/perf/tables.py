#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables of Documentation/performance.md, made from the baselines next to this file.

    tables.py            writes them
    tables.py --check    fails if they do not match the baselines
"""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "qemu")]
import counts  # noqa: E402
import lab  # noqa: E402

PAGE = HERE.parents[1] / "Documentation/performance.md"
Values = dict[counts.Key, float]


def of(kind: str) -> dict[str, Values]:
    return {k: counts.read_csv(HERE / f"{kind}-{k}.csv") for k in lab.KERNELS}


def size_of(size: int) -> str:
    return counts.human(size) if size else ""


def rows(values: dict[str, Values], wanted: Callable[[str], bool]) -> list[str]:
    def cell(k: str, key: counts.Key) -> str:
        value, reference = values[k].get(key), values[k].get((counts.reference_of(key[0]), key[1]))
        if value is None:
            return "absent | "
        return f"{value:,.0f} | " + (f"{value / reference:.3f}" if reference else "")
    return [f"| metric | size | {' | '.join(f'{k} | x host' for k in values)} |", "|---|---|" + "---|---|" * len(values),
            *(f"| {key[0]} | {size_of(key[1])} | {' | '.join(cell(k, key) for k in values)} |"
              for key in values[lab.NEWEST] if wanted(key[0]))]


def is_main(metric: str) -> bool:
    return metric.startswith(("direct_", "host_", "p2pmem_", "bounce_"))


def is_merge(metric: str) -> bool:
    return metric.startswith("merge_")


def exact() -> list[str]:
    values = of("exact")
    lines = [f"| per operation | size | commands | {' | '.join(f'allocations, {k}' for k in values)} |", "|---|---|---|" + "---|" * len(values)]
    for (name, size), commands in values[lab.NEWEST].items():
        metric, _, what = name.rpartition(".")
        if what != "commands":
            continue
        then = "".join(f"; on {k} {of_kernel[name, size]:g}" for k, of_kernel in values.items() if of_kernel[name, size] != commands)
        allocations = (metric + ".allocations", size)
        lines.append(f"| {metric} | {size_of(size)} | {commands:g}{then} | {' | '.join(f'{of_kernel[allocations]:g}' for of_kernel in values.values())} |")
    return lines


def limits() -> list[str]:
    values = of("baseline")

    def verdict(limit: counts.Limit) -> str:
        ratio = values[limit.k][limit.metric, limit.size] / values[limit.k][limit.other, limit.other_size]
        state = "required" if limit.required else "holds" if ratio <= limit.ratio else "not yet"
        return f"{ratio:.3f} of {limit.ratio:.2f}, {state}"
    kernels = [counts.limits(k) for k in values]
    return [f"| limit | {' | '.join(values)} |", "|---|" + "---|" * len(values),
            *(f"| {a.metric} {size_of(a.size)} against {a.other} {size_of(a.other_size)} | {' | '.join(map(verdict, (a, *others)))} |"
              for a, *others in zip(*kernels, strict=True))]


def percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def span(values: list[float], digits: int = 1) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def to_host(metric: str, size: int, other: str = "") -> list[float]:
    """Ratio to the host's own I/O, on each kernel."""
    other = other or counts.reference_of(metric)
    return [values[metric, size] / values[other, size] for values in of("baseline").values()]


def growth() -> list[str]:
    """The spread between the sizes that fit into one command."""
    metrics = [f"direct_{what}{where}" for where in ("", "_raw") for what in ("read", "write")]
    spreads = []
    for values in of("baseline").values():
        for metric in metrics:
            of_sizes = [value for (name, size), value in values.items() if name == metric and size <= counts.MIB]
            if len(of_sizes) > 1:
                spreads.append(percent(max(of_sizes) / min(of_sizes)))
    return ["| direct requests of one command, 4 KiB to 1 MiB | |", "|---|---|",
            f"| the dearest size against the cheapest | {span(spreads)} % more instructions |"]


def cheaper() -> list[str]:
    """Metrics cheaper than a direct read of a file by one call, for at least one size on at least one kernel."""
    found: dict[str, list[str]] = {}
    for k, values in of("baseline").items():
        for (metric, size), value in values.items():
            call = values.get(("direct_read", size))
            is_read = "read" in metric and not metric.endswith("_raw") and not is_merge(metric) and metric != "direct_read"
            if call and is_read and value < call:
                found.setdefault(metric, []).append(f"{size_of(size)} on {k}")
    return ["| cheaper than a read of a file by one direct call | where |", "|---|---|",
            *(f"| `{metric}` | {', '.join(places)} |" for metric, places in found.items())]


def slower() -> list[str]:
    """The rows of "When direct is not faster" that quote counts."""
    rings = [ratio for where in ("", "_raw")
             for ratio in to_host(f"ring_direct_read_qd32{where}", 4096, f"uring_host_fixed_read_qd32{where}")]
    far = [values[f"{how}_direct_read", 4096] / values[f"{how}_host_odirect_read", 4096] for values in of("far").values()
           for how in ("nfs_rdma", "nfs_card")]
    writes = span([percent(ratio) for ratio in to_host("direct_write", 4096, "host_odirect_write")], 0)
    return ["| case, counted | against the host's own way |", "|---|---|",
            f"| a write of 4 KiB | {writes} % more instructions |",
            f"| reads of 4 KiB, each a command of its own of a ring | {span(rings, 2)} times those of a read into a fixed host buffer "
            '("Limits", below). As pieces of one command they are not more |',
            f'| a read of 4 KiB by NFS over RDMA | {span(far, 2)} times those of the calling thread ("Over a network", below) |']


def zeroing() -> list[str]:
    """The cost of allocating, for each byte."""
    per_byte = {k: values["buf_alloc", 256 * counts.MIB] / (256 * counts.MIB) for k, values in of("baseline").items()}

    def row(what: str, factor: float) -> str:
        return f"| {what} | {' | '.join(f'{each * factor:.2f}' for each in per_byte.values())} |"
    return [f"| allocating, instructions | {' | '.join(per_byte)} |", "|---|" + "---|" * len(per_byte), row("for each byte", 1),
            row("for 1 GiB, calculated from 256 MiB, thousand million", 1.073741824)]


TABLES: dict[str, Callable[[], list[str]]] = {
    "growth": growth,
    "cheaper": cheaper,
    "slower": slower,
    "zeroing": zeroing,
    "main": lambda: rows(of("baseline"), is_main),
    "rest": lambda: rows(of("baseline"), lambda metric: not is_main(metric) and not is_merge(metric)),
    "merge": lambda: rows(of("baseline"), is_merge),
    "exact": exact,
    "far": lambda: rows(of("far"), lambda metric: True),
    "limits": limits,
}


def filled(page: str, tables: dict[str, Callable[[], list[str]]] = TABLES) -> str:
    """The page with its tables made anew: each follows a mark "<!-- table: NAME -->" and ends at an empty line."""
    for name, table in tables.items():
        mark = f"<!-- table: {name} -->\n"
        if page.count(mark) != 1:
            raise ValueError(f"there is no place for the table {name}, or more than one")
        page = re.sub(re.escape(mark) + r"(\S.*\n)*", lambda _, t=table, m=mark: m + "\n".join(t()) + "\n", page)
    return page


def write() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


def is_current() -> bool:
    page = PAGE.read_text()
    return filled(page) == page


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(not is_current())
    write()
