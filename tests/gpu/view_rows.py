# SPDX-License-Identifier: MIT
"""Rows of tests/gpu/view_gpu.cpp: int32 elements per second, counted as 4 bytes, by way and number of threads."""
from __future__ import annotations

import json
import statistics
from pathlib import Path

WAYS = ("plain", "view 16 bits", "view 16 bits, verified", "view 17 bits", "packed on the fly", "packed on the fly, mapped")
COLORS = ("#555555", "#2a7a2a", "#8e44ad", "#1f6fb2", "#c0392b", "#b8860b")
GOALS = (("view 16 bits", 8, 80.0), ("packed on the fly, mapped", 16, 60.0))
Speeds = dict[str, dict[int, list[float]]]  # GB/s by way and threads, one for each repeat


def speeds(path: Path) -> Speeds:
    by: Speeds = {way: {} for way in WAYS}
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        row = json.loads(line)
        if not row["checked"]:
            raise ValueError(f"{path}: a row whose elements were not compared")
        by[row["what"]].setdefault(row["threads"], []).append(row["gb_s"])
    return by


def table(path: Path) -> list[str]:
    by = speeds(path)
    threads = sorted(by["plain"])

    def cell(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
    return ["| GB/s, median (smallest to largest) | " + " | ".join(f"{n} thread{'s' * (n > 1)}" for n in threads) + " |",
            "|---" * (len(threads) + 1) + "|",
            *(f"| {way} | " + " | ".join(cell(by[way][n]) for n in threads) + " |" for way in WAYS)]


def goals(path: Path) -> list[str]:
    by = speeds(path)
    lines = ["| wanted | GB/s, each round | median |", "|---|---|---|"]
    for way, threads, goal in GOALS:
        lines.append(f"| {way}, {threads} threads: at least {goal:.0f} | {', '.join(f'{value:.1f}' for value in by[way][threads])} "
                     f"| {statistics.median(by[way][threads]):.1f} |")
    return lines


def picture(path: Path, title: str) -> str:
    """Medians: a line for each way, threads to the right in equal steps."""
    by = speeds(path)
    threads = sorted(by["plain"])
    left, top, width, height, most = 60, 60, 460, 260, 100.0
    x = {n: left + width * i / (len(threads) - 1) for i, n in enumerate(threads)}

    def y(value: float) -> float:
        return top + height * (1 - value / most)
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 370" width="720" height="370" font-family="sans-serif" font-size="13">',
             '<!-- SPDX-License-Identifier: MIT --><rect width="720" height="370" fill="#fff"/>',
             f'<text x="20" y="26" font-size="16" font-weight="bold">{title}</text>',
             '<text x="20" y="46" fill="#555">GB/s of int32 elements by threads; files in the page cache, all bytes through host memory</text>']
    for value in range(0, int(most) + 1, 20):
        lines.append(f'<path d="M{left} {y(value):.0f}H{left + width}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y(value) + 4:.0f}" text-anchor="end">{value}</text>')
    lines += [f'<text x="{x[n]:.0f}" y="{top + height + 20}" text-anchor="middle">{n}</text>' for n in threads]
    for way, color in zip(WAYS, COLORS):
        points = [(x[n], y(statistics.median(by[way][n]))) for n in threads]
        path_of = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        lines.append(f'<path d="M{path_of}" stroke="{color}" stroke-width="2" fill="none"/>')
    ends = sorted(((y(statistics.median(by[way][threads[-1]])), way, color) for way, color in zip(WAYS, COLORS)))
    at = 0.0
    for end, way, color in ends:
        at = max(end, at + 15)
        lines.append(f'<text x="{left + width + 10}" y="{at + 4:.0f}" fill="{color}">{way}</text>')
    return "\n".join([*lines, "</svg>\n"])
