#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables and pictures of Documentation/results/README.md, made from the raw rows next to it.

    results.py            writes them
    results.py --check    fails if they do not match the rows

A ratio compares rows of one run that both libraries have: median with median, best row with best row.
"""
from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "perf")]
import rows  # noqa: E402
import tables  # noqa: E402
import view_rows  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "Documentation/results"
PAGE = FOLDER / "README.md"
VIEWS = FOLDER / "views-h100-2026-11-28.txt"
MIB = 1 << 20
Key = tuple[str, int, int]  # what, bytes, threads


@dataclass(frozen=True)
class Run:
    """A file of rows, and its name."""
    name: str
    file: str

    def samples(self, past_cache: bool) -> dict[Key, dict[str, list[rows.Sample]]]:
        return rows.samples(FOLDER / self.file, past_cache)

    def bus(self) -> float:
        """GB/s from pinned memory to the GPU; 0 if not measured."""
        found = [json.loads(line) for line in (FOLDER / self.file).read_text().splitlines() if '"what": "copy"' in line]
        return statistics.median(row["gb_s"] for row in found) if found else 0


LATEST = Run("11-24", "cufile-h200-2026-11-24.txt")
FIRST = Run("11-22", "cufile-h200-2026-11-22.txt")
RUNS = (
    FIRST,
    Run("11-22, again", "cufile-h200-2026-11-22-again.txt"),
    Run("11-22, more", "cufile-h200-2026-11-22-more.txt"),
    Run("11-23, 32 CPUs", "cufile-h200-2026-11-23-x2.txt"),
    Run("11-23, reads", "cufile-h200-2026-11-23-reads.txt"),
    Run("11-23, once more", "cufile-h200-2026-11-23-once-more.txt"),
    Run("11-23, writes", "cufile-h200-2026-11-23-writes.txt"),
    Run("11-23, mended", "cufile-h200-2026-11-23-mended.txt"),
    Run("11-24, short", "cufile-h200-2026-11-24-short.txt"),
    Run("11-24, writes", "cufile-h200-2026-11-24-writes.txt"),
    LATEST,
)


def cells(*words: object) -> str:
    return f"| {' | '.join(map(str, words))} |"


def head(*words: object) -> list[str]:
    return [cells(*words), "|" + "---|" * len(words)]


def link(run: Run) -> str:
    return f"[{run.name}]({run.file})"


# --- Ratios ----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Ratio:
    """Ours divided by theirs, for one row of a run."""
    median: float        # of medians
    rounds: list[float]  # round by round


def ratio(run: Run, past_cache: bool, key: Key, column: int) -> Ratio | None:
    """column 0: time, 1: CPU. None unless both libraries have the row."""
    by = run.samples(past_cache).get(key, {})
    if "ours" not in by or "theirs" not in by:
        return None
    ours, theirs = ([sample[column] for sample in by[name]] for name in ("ours", "theirs"))
    return Ratio(statistics.median(ours) / statistics.median(theirs), [a / b for a, b in zip(ours, theirs)])


@dataclass(frozen=True)
class Goal:
    text: str
    keys: tuple[Key, ...]
    most: float           # ratio to their time or CPU
    column: int = 0
    faster: bool = False  # shown as "N x as fast"
    past_cache: bool = False

    def show(self, values: list[float]) -> str:
        """The range of the values."""
        shown = [1 / value for value in values] if self.faster else values
        return " to ".join(dict.fromkeys(rows.share(value) + " x" * self.faster for value in (min(shown), max(shown))))

    def worst(self, run: Run) -> tuple[Key, Ratio] | None:
        """The row farthest from the goal, if the run has all of the goal's rows."""
        found = {key: got for key in self.keys if (got := ratio(run, self.past_cache, key, self.column))}
        return max(found.items(), key=lambda pair: pair[1].median) if len(found) == len(self.keys) else None


def every(*kinds: str) -> tuple[Key, ...]:
    return tuple((what, size, threads) for what in kinds
                 for size, threads in ((4096, 1), (65536, 1), (MIB, 1), (16 * MIB, 1), (128 * MIB, 1), (MIB, 8), (16 * MIB, 8)))


ALL = (*every("read", "write"), ("batch", 4 * MIB, 1))
GOALS = (
    Goal("a read of 4 KiB in .95 of the time", (("read", 4096, 1),), .95),
    Goal("a read of 64 KiB in .95 of the time", (("read", 65536, 1),), .95),
    Goal("a read of 1 MiB 2 x as fast", (("read", MIB, 1),), 1 / 2, faster=True),
    Goal("a read of 16 MiB 1.5 x as fast", (("read", 16 * MIB, 1),), 1 / 1.5, faster=True),
    Goal("a read of 128 MiB 1.3 x as fast", (("read", 128 * MIB, 1),), 1 / 1.3, faster=True),
    Goal("reads of 1 MiB by 8 threads 1.2 x as fast", (("read", MIB, 8),), 1 / 1.2, faster=True),
    Goal("no write slower", every("write"), 1),
    Goal("a write of 1 MiB 1.5 x as fast", (("write", MIB, 1),), 1 / 1.5, faster=True),
    Goal("the batch 2 x as fast", (("batch", 4 * MIB, 1),), 1 / 2, faster=True),
    Goal("no more CPU in any row", ALL, 1, column=1),
    Goal("no more CPU in any row, O_DIRECT", ALL, 1, column=1, past_cache=True),
    Goal("open and first read in .1 of the time", (("open", 4096, 1),), .1),
)


def goals() -> list[str]:
    lines = head("wanted, against NVIDIA's library", "2026-11-24: medians (round by round)", "rounds", "other runs: medians", "reached, of all runs")
    for goal in GOALS:
        found = {run: got for run in RUNS if (got := goal.worst(run))}
        key, latest = found.pop(LATEST)
        others = [got.median for _, got in found.values()]
        reached = sum(got.median <= goal.most for got in (latest, *(got for _, got in found.values())))
        which = f", {row(key)}" if len(goal.keys) > 1 else ""
        lines.append(cells(goal.text, f"{goal.show([latest.median])} ({goal.show(latest.rounds)}){which}", len(latest.rounds),
                           f"{goal.show(others)}, {len(others)} runs", f"{reached} of {len(others) + 1}"))
    return lines


def row(key: Key) -> str:
    what, n, threads = key
    return f"{what} {rows.size(n)}" + (f" x {threads}" if threads > 1 else "")


# --- The best reads --------------------------------------------------------------------------------

def speeds(run: Run) -> dict[str, dict[Key, list[float]]]:
    """GB/s of reads through the page cache, by library and row."""
    found: dict[str, dict[Key, list[float]]] = {"ours": defaultdict(list), "theirs": defaultdict(list)}
    for line in (FOLDER / run.file).read_text().splitlines():
        word, _, text = line.partition("{")
        # A line without a library is ours; theirs was not run with that size and number of threads.
        name = rows.library(word.strip()) if word else "ours"
        if name not in found or not line.endswith("}"):
            continue
        said = json.loads("{" + text)
        if said["what"] == "read" and not said["direct"]:
            found[name]["read", said["size"], said["threads"]].append(said["gb_s"])
    return found


def of_best(by: dict[Key, list[float]], best: Callable[[Iterable[float]], float]) -> tuple[Key, float]:
    key = max(by, key=lambda one: best(by[one]))
    return key, best(by[key])


BEST_ROW: Key = ("read", 16 * MIB, 8)  # the fastest of the rows that each round of tests/gpu/README.md has


@dataclass(frozen=True)
class Best:
    """The best reads of a run, in GB/s."""
    run: Run
    rounds: dict[str, list[float]]       # of BEST_ROW
    tops: dict[str, tuple[Key, float]]   # of any row
    samples: dict[str, int]              # of that row
    alone: bool                          # theirs was not run with the size and threads of our best row
    bus: float

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def medians(self) -> float:
        return self.median("ours") / self.median("theirs")

    def bests(self) -> float:
        return self.tops["ours"][1] / self.tops["theirs"][1]


def bests() -> list[Best]:
    found = []
    for run in RUNS:
        by = speeds(run)
        if not all(BEST_ROW in of_library for of_library in by.values()):
            continue
        tops = {name: of_best(by[name], max) for name in by}
        found.append(Best(run, {name: by[name][BEST_ROW] for name in by}, tops, {name: len(by[name][tops[name][0]]) for name in by},
                          tops["ours"][0] not in by["theirs"], run.bus()))
    return found


def best() -> list[str]:
    lines = head("run", "ours, median (min to max)", "theirs, median (min to max)", "rounds", "median to median", "ours, best row", "theirs, best row",
                 "best to best", "of the bus")
    for one in bests():
        shown = [f"{one.median(name):.1f} ({min(of):.1f} to {max(of):.1f})" for name, of in one.rounds.items()]
        tops = [f"{top:.1f}, {rows.size(n)} x {threads}, {one.samples[name]} row{'s' * (one.samples[name] > 1)}"
                for name, ((_, n, threads), top) in one.tops.items()]
        bus = f"{100 * one.tops['ours'][1] / one.bus:.0f} % of {one.bus:.1f}" if one.bus else "not measured"
        lines.append(cells(link(one.run), *shown, len(one.rounds["ours"]), f"{one.medians():.2f} x",
                           tops[0] + ", theirs not run" * one.alone, tops[1], f"{one.bests():.2f} x", bus))
    return lines


def best_said() -> list[str]:
    found = bests()
    measured = [one for one in found if one.bus]
    held = [one for one in found if one.bests() >= 1.2]
    return [*head("goal of the best read", "reached, of runs"),
            cells("1.2 x, median to median", f"{sum(one.medians() >= 1.2 for one in found)} of {len(found)}"),
            cells("1.2 x, best row to best row", f"{len(held)} of {len(found)}"),
            cells("of these by a row that NVIDIA's library was not run with", f"{sum(one.alone for one in held)} of {len(held)}"),
            cells("85 % of the bus", f"{sum(one.tops['ours'][1] >= .85 * one.bus for one in measured)} of {len(measured)} that measured it")]


# --- All rows of all runs --------------------------------------------------------------------------

def runs(past_cache: bool) -> list[str]:
    found = {run: run.samples(past_cache) for run in RUNS}
    found = {run: by for run, by in found.items() if any("ours" in one and "theirs" in one for one in by.values())}
    keys = [("open", 4096, 1), *ALL]
    lines = head("time; CPU", *(link(run) for run in found))
    for key in keys:
        shown = []
        for run in found:
            time, cpu = (ratio(run, past_cache, key, column) for column in (0, 1))
            shown.append("" if not time else rows.share(time.median) if key[0] == "open" else f"{rows.share(time.median)}; {rows.share(cpu.median)}")
        if any(shown):
            lines.append(cells(row(key), *shown))
    rounds = []
    for by in found.values():
        counts = {len(one["ours"]) for key, one in by.items() if key in keys and "ours" in one and "theirs" in one}
        rounds.append(" to ".join(map(str, sorted({min(counts), max(counts)}))))
    return [*lines, cells("rounds", *rounds)]


def repeated(by: dict[str, list[rows.Sample]]) -> bool:
    return min(map(len, by.values())) > 1


def in_each_round(run: Run, past_cache: bool) -> rows.Samples:
    return {key: by for key, by in run.samples(past_cache).items() if repeated(by)}


TABLES: dict[str, Callable[[], list[str]]] = {
    "goals": goals,
    "best": best,
    "best, said": best_said,
    "runs": lambda: runs(False),
    "runs, O_DIRECT": lambda: runs(True),
    "views": lambda: view_rows.table(VIEWS),
    "views, goals": lambda: view_rows.goals(VIEWS),
}
TABLES["11-24, one round"] = lambda: rows.table({key: by for key, by in LATEST.samples(False).items() if not repeated(by)})
for each in (LATEST, FIRST):
    for past in (False, True):
        TABLES[f"{each.name}{', O_DIRECT' * past}"] = lambda each=each, past=past: rows.table(in_each_round(each, past))


def summary() -> str:
    """One bar for each row of the latest run, shortest first: time relative to NVIDIA's library."""
    found = [(row(key), got) for key in (("open", 4096, 1), *ALL) if (got := ratio(LATEST, False, key, 0))]
    found.sort(key=lambda pair: pair[1].median)
    left, unit, step = 190, 420, 24
    height = 96 + step * len(found)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" width="720" height="{height}" font-family="sans-serif" font-size="13">',
             f'<!-- SPDX-License-Identifier: MIT --><rect width="720" height="{height}" fill="#fff"/>',
             '<text x="20" y="26" font-size="16" font-weight="bold">Time of libcufile.so.0 against NVIDIA\'s, on an H200: shorter is better</text>',
             '<text x="20" y="46" fill="#555">all bytes through host memory, page cache, both libraries; medians of 3 rounds; nothing here is direct</text>']
    for number, (name, got) in enumerate(found):
        y, color = 62 + step * number, "#2a7a2a" if got.median <= 1 else "#c0392b"
        lines += [f'<text x="{left - 10}" y="{y + 13}" text-anchor="end">{name}</text>',
                  f'<rect x="{left}" y="{y}" width="{unit * got.median:.1f}" height="16" fill="{color}"/>',
                  f'<text x="{left + unit * max(got.median, 1) + 8:.1f}" y="{y + 13}">{rows.share(got.median)}</text>']
    return "\n".join([*lines, f'<path d="M{left + unit} 56V{height - 30}" stroke="#000" stroke-dasharray="4 3"/>',
                      f'<text x="{left + unit}" y="{height - 12}" text-anchor="end">1: NVIDIA\'s 1.15.1, compatible mode</text></svg>\n'])


def pictures() -> dict[Path, str]:
    views = view_rows.picture(VIEWS, "Reads of views into the memory of an H100")
    return {FOLDER / "summary.svg": summary(), VIEWS.with_suffix(".svg"): views} | {(FOLDER / run.file).with_name(Path(run.file).stem + "-direct" * past + ".svg"):
            rows.picture(rows.medians(in_each_round(run, past)), rows.TITLES[past]) for run in (LATEST, FIRST) for past in (False, True)}


def faults() -> list[str]:
    """What differs from the rows."""
    page = PAGE.read_text()
    wrong = [str(path) for path, text in pictures().items() if path.read_text() != text]
    lines = tables.filled(page, TABLES).splitlines()
    have = page.splitlines()
    return wrong + [f"the rows give: {line}" for line in lines if line not in have] + [f"the page has: {line}" for line in have if line not in lines]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(faults()) or None)
    PAGE.write_text(tables.filled(PAGE.read_text(), TABLES))
    for path, text in pictures().items():
        path.write_text(text)
