#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables of Documentation/performance.md, made of the baselines beside this file.

    tables.py            write them
    tables.py --check    fail if they are not what the baselines say
"""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import counts  # noqa: E402

PAGE = HERE.parents[1] / "Documentation/performance.md"
NEW, OLD = "7.2", "6.12"
Values = dict[counts.Key, float]


def of(kind: str) -> dict[str, Values]:
    return {k: counts.read_csv(HERE / f"{kind}-{k}.csv") for k in (NEW, OLD)}


def size_of(size: int) -> str:
    return counts.human(size) if size else ""


def rows(values: dict[str, Values], wanted: Callable[[str], bool]) -> list[str]:
    def cell(k: str, key: counts.Key) -> str:
        value, reference = values[k].get(key), values[k].get((counts.reference_of(key[0]), key[1]))
        if value is None:
            return "absent | "
        return f"{value:,.0f} | " + (f"{value / reference:.3f}" if reference else "")
    return ["| metric | size | 7.2 | x host | 6.12 | x host |", "|---|---|---|---|---|---|",
            *(f"| {key[0]} | {size_of(key[1])} | {cell(NEW, key)} | {cell(OLD, key)} |"
              for key in values[NEW] if wanted(key[0]))]


def is_main(metric: str) -> bool:
    return metric.startswith(("direct_", "host_", "p2pmem_", "bounce_"))


def is_merge(metric: str) -> bool:
    return metric.startswith("merge_")


def exact() -> list[str]:
    new, old = of("exact").values()
    lines = ["| per operation | size | commands | allocations, 7.2 | allocations, 6.12 |", "|---|---|---|---|---|"]
    for (name, size), commands in new.items():
        metric, _, what = name.rpartition(".")
        if what != "commands":
            continue
        then = "" if old[name, size] == commands else f"; on 6.12 {old[name, size]:g}"
        allocations = (metric + ".allocations", size)
        lines.append(f"| {metric} | {size_of(size)} | {commands:g}{then} | {new[allocations]:g} | {old[allocations]:g} |")
    return lines


def limits() -> list[str]:
    values = of("baseline")

    def verdict(limit: counts.Limit) -> str:
        ratio = values[limit.k][limit.metric, limit.size] / values[limit.k][limit.other, limit.other_size]
        state = "required" if limit.required else "holds" if ratio <= limit.ratio else "not yet"
        return f"{ratio:.3f} of {limit.ratio:.2f}, {state}"
    kernels = [[limit for limit in counts.LIMITS if limit.k == k] for k in (NEW, OLD)]
    return ["| limit | 7.2 | 6.12 |", "|---|---|---|",
            *(f"| {a.metric} {size_of(a.size)} against {a.other} {size_of(a.other_size)} | {verdict(a)} | {verdict(b)} |"
              for a, b in zip(*kernels, strict=True))]


TABLES: dict[str, Callable[[], list[str]]] = {
    "main": lambda: rows(of("baseline"), is_main),
    "rest": lambda: rows(of("baseline"), lambda metric: not is_main(metric) and not is_merge(metric)),
    "merge": lambda: rows(of("baseline"), is_merge),
    "exact": exact,
    "far": lambda: rows(of("far"), lambda metric: True),
    "limits": limits,
}


def filled(page: str) -> str:
    """Behind a mark "<!-- table: NAME -->", up to an empty line, stands that table."""
    for name, table in TABLES.items():
        mark = f"<!-- table: {name} -->\n"
        if page.count(mark) != 1:
            raise ValueError(f"{PAGE} has no place for the table {name}")
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
