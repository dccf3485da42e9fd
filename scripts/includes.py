#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Checks the includes of user/: no file includes itself indirectly. Between the folders of user/cufile, includes point
downwards. No two units of it (a header with its source) include each other, directly or indirectly.

    includes.py [ROOT]     ROOT: the folder to check, user/ by default
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

USER = Path(__file__).resolve().parent.parent / "user"
# A folder of user/cufile may include its own files and those of the folders to its right.
CUFILE = ("api", "async", "path", "registry", "config", "diag", "platform")

Graph = dict[str, set[str]]


def read(root: Path) -> Graph:
    """For each file the files of ROOT that it includes: beside it, below ROOT, or in the only folder of ROOT that
    has it."""
    files = {path.relative_to(root).as_posix() for path in sorted(root.rglob("*.[ch]pp"))}
    tops = sorted({name.split("/")[0] for name in files if "/" in name})
    graph: Graph = {}
    for name in files:
        graph[name] = set()
        for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', (root / name).read_text(), re.M):
            beside = (root / name).parent / included
            candidates = [beside.resolve(), *((root / top / included).resolve() for top in ("", *tops))]
            found = next((path for path in candidates if path.is_file() and root.resolve() in path.parents), None)
            if found:
                graph[name].add(found.relative_to(root.resolve()).as_posix())
    return graph


def circle(graph: Graph) -> list[str]:
    """The nodes of one cycle, with the first one again at its end; [] without a cycle."""
    done: set[str] = set()
    for start in sorted(graph):
        path: list[str] = []
        stack = [(start, iter(sorted(graph[start])))] if start not in done else []
        path += [start] if stack else []
        while stack:
            after = next(stack[-1][1], None)
            if after is None:
                done.add(stack.pop()[0])
                path.pop()
            elif after in path:
                return [*path[path.index(after):], after]
            elif after not in done:
                stack.append((after, iter(sorted(graph.get(after, ())))))
                path.append(after)
    return []


def units(graph: Graph) -> Graph:
    """The same graph for units: a header and its source without suffixes."""
    joined: Graph = {}
    for name, included in graph.items():
        unit = name.rsplit(".", 1)[0]
        joined.setdefault(unit, set()).update({other.rsplit(".", 1)[0] for other in included} - {unit})
    return joined


def folder(name: str) -> str:
    """api for cufile/api/library.hpp; "" for a file in no folder of cufile."""
    parts = name.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "cufile" else ""


def faults(root: Path) -> list[str]:
    graph = read(root)
    out = []
    if found := circle(graph):
        out.append("circle of includes: " + " -> ".join(found))
    cufile = {name: {other for other in included if folder(other)} for name, included in graph.items() if folder(name)}
    if found := circle(units(cufile)):
        out.append("circle of units: " + " -> ".join(found))
    for name, included in sorted(cufile.items()):
        if folder(name) not in CUFILE:
            out.append(f"{name}: no layer has the folder {folder(name)}")
            continue
        for other in sorted(included):
            if folder(other) in CUFILE and CUFILE.index(folder(other)) < CUFILE.index(folder(name)):
                out.append(f"{name} includes {other}: {folder(name)} is below {folder(other)}")
    return out


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else USER
    found = faults(root)
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
