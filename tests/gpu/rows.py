#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables of medians and pictures from the rows of tests/gpu/README.md.

    tests/gpu/rows.py FILE [PICTURE.svg]

Each line of FILE is a library ("ours", "theirs", "naive", or its path) and the output of cufile_gpu. Rows that
bypass the page cache ("direct" at the end) have their own table, and PICTURE-direct.svg.
"""
from __future__ import annotations

import functools
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

Key = tuple[str, int, int]    # what, bytes, threads
Sample = tuple[float, float]  # microseconds, CPU seconds per GB
Samples = dict[Key, dict[str, list[Sample]]]
Rows = dict[Key, dict[str, Sample]]
TITLES = {False: "bounced through host memory", True: "bounced through host memory, O_DIRECT"}
COLOURS = {"theirs": "#9aa5b1", "naive": "#d9b26f", "ours": "#2f6f4f"}


def library(word: str) -> str:
    """The library named by the first word or path of a line; "" for other lines."""
    if word in COLOURS:
        return word
    return "" if "/" not in word else "theirs" if "cuda" in word or "nvidia" in word else "ours"


@functools.cache
def samples(path: Path, direct: bool) -> Samples:
    """By row and library, in the order of the rounds. The file is read once."""
    found: Samples = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        word, _, text = line.partition(" ")
        if not text.startswith("{") or not library(word):
            continue
        row = json.loads(text)
        if row.get("direct", False) != direct:
            continue
        if row["what"] == "open":
            key, value = ("open", 4096, 1), (row["with_first_read_ms"] * 1e3, float("nan"))
        else:
            key = (row["what"].removeprefix("naive "), row["size"], row["threads"])
            value = (row["us"], row["cpu_s_per_gb"])
        found[key][library(word)].append(value)
    order = ["open", "batch", "read", "write"]
    return {key: dict(found[key]) for key in sorted(found, key=lambda key: (order.index(key[0]), key[2], key[1]))}


def medians(found: Samples) -> Rows:
    return {key: {name: tuple(statistics.median(column) for column in zip(*values)) for name, values in by.items()}
            for key, by in found.items()}


def size(n: int) -> str:
    return f"{n >> 20} MiB" if n >= 1 << 20 else f"{n >> 10} KiB"


def share(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= .1 else f"{ratio:.3f}"


def table(found: Samples) -> list[str]:
    lines = ["| | size | threads | rounds | ours, µs | theirs, µs | naive, µs | time, ours / theirs | CPU, ours / theirs |",
             "|---|---|---|---|---|---|---|---|---|"]
    for (what, n, threads), by in medians(found).items():
        times = [f"{by[name][0]:.1f}" if name in by else "" for name in ("ours", "theirs", "naive")]
        both = "ours" in by and "theirs" in by
        ratios = [share(by['ours'][i] / by['theirs'][i]) if both else "" for i in (0, 1)]
        rounds = max(map(len, found[what, n, threads].values()))
        lines.append(f"| {what} | {size(n)} | {threads} | {rounds} | {' | '.join(times)} | {ratios[0]} | {'' if what == 'open' else ratios[1]} |")
    return lines


def picture(rows: Rows, title: str) -> str:
    """Throughput relative to theirs."""
    rows = {key: by for key, by in rows.items() if key[0] != "open" and "theirs" in by}
    left, unit, step = 190, 200, 46
    width, height = left + int(unit * 2.6), 70 + step * len(rows)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="10" y="22" font-size="15">Throughput, theirs = 1: {title}</text>']
    at = 10
    for name, colour in COLOURS.items():
        lines.append(f'<rect x="{at}" y="34" width="12" height="12" fill="{colour}"/>'
                     f'<text x="{at + 17}" y="45">{name}</text>')
        at += 80
    for i, ((what, n, threads), by) in enumerate(rows.items()):
        top = 62 + i * step
        many = f" x {threads}" if threads > 1 else ""
        lines.append(f'<text x="{left - 8}" y="{top + 22}" text-anchor="end">{what} {size(n)}{many}</text>')
        for j, name in enumerate(name for name in COLOURS if name in by):
            speed = by["theirs"][0] / by[name][0]
            lines.append(f'<rect x="{left}" y="{top + 12 * j}" width="{speed * unit:.0f}" height="10" '
                         f'fill="{COLOURS[name]}"/><text x="{left + speed * unit + 5:.0f}" y="{top + 12 * j + 9}" '
                         f'font-size="10">{speed:.2f}</text>')
    lines.append(f'<line x1="{left + unit}" y1="56" x2="{left + unit}" y2="{height - 8}" stroke="#444" '
                 'stroke-dasharray="3 3"/></svg>')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    for past_cache, name in TITLES.items():
        of_file = samples(Path(sys.argv[1]), past_cache)
        if not of_file:
            continue
        print(f"\n{name}\n")
        print("\n".join(table(of_file)))
        if len(sys.argv) == 3:
            svg = Path(sys.argv[2])
            svg = svg.with_stem(svg.stem + "-direct") if past_cache else svg
            svg.write_text(picture(medians(of_file), name))
