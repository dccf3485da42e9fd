# SPDX-License-Identifier: MIT
"""A log-log plot of instructions per operation over size, one line per metric, as SVG."""
from __future__ import annotations

import math
from html import escape

import counts

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 50, 60
COLOURS = ("#0b6", "#075", "#d33", "#f80", "#36c", "#93c", "#6a3d00", "#777", "#0aa", "#c06")


def lines_of(values: dict[counts.Key, float]) -> dict[str, list[tuple[int, float]]]:
    """Metrics with at least two sizes."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for (metric, size), value in values.items():
        if size and value > 0:
            lines.setdefault(metric, []).append((size, value))
    return {metric: sorted(points) for metric, points in lines.items() if len(points) > 1}


def svg(title: str, values: dict[counts.Key, float]) -> str:
    lines = lines_of(values)
    sizes = sorted({size for points in lines.values() for size, _ in points})
    sums = [value for points in lines.values() for _, value in points]
    low, high = math.floor(math.log10(min(sums))), math.ceil(math.log10(max(sums)))

    def x(size: int) -> float:
        span = math.log2(sizes[-1] / sizes[0])
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(size / sizes[0]) / span

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (math.log10(value) - low) / (high - low)

    def text(at_x: float, at_y: float, words: str, anchor: str = "middle", colour: str = "#222") -> str:
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'

    def rule(x1: float, y1: float, x2: float, y2: float) -> str:
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           'font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           text((LEFT + WIDTH - RIGHT) / 2, 24, f"{title}: instructions per operation, not times")]
    for size in sizes:
        out += [rule(x(size), TOP, x(size), HEIGHT - BOTTOM)]
        if size.bit_length() % 2:  # only every second power of two has room for a label
            out += [text(x(size), HEIGHT - BOTTOM + 18, counts.human(size))]
    for power in range(low, high + 1):
        out += [rule(LEFT, y(10 ** power), WIDTH - RIGHT, y(10 ** power)),
                text(LEFT - 8, y(10 ** power) + 4, f"{10 ** power:,}", "end")]
    out += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "bytes per operation")]
    for n, (metric, points) in enumerate(lines.items()):
        colour = COLOURS[n % len(COLOURS)]
        path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in points)
        out += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
        out += [f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>' for size, value in points]
        out += [text(WIDTH - RIGHT + 20, TOP + 20 + 20 * n, metric, "start", colour)]
    return "\n".join([*out, "</svg>"]) + "\n"
