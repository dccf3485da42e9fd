#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Includes of user/: no file includes itself by way of others; between the folders of user/cufile they point downwards, and no
two units of it, each a header and its source, include each other by way of any.

    includes.py [ROOT]     ROOT: the folder to look at, user/ if there is none
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

USER = Path(__file__).resolve().parent.parent / "user"
# Each folder of user/cufile may include files of its own and of those to its right.
CUFILE = ("api", "async", "path", "registry", "config", "diag", "platform")

Graph = dict[str, set[str]]


def read(root: Path) -> Graph:
    """By file, the files of ROOT that it includes: beside it, below ROOT, or in a folder of ROOT that only one of them is in."""
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
    """The nodes of one circle, the first one again at its end; [] if there is none."""
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
    """The same by header and source, without their suffixes."""
    joined: Graph = {}
    for name, included in graph.items():
        unit = name.rsplit(".", 1)[0]
        joined.setdefault(unit, set()).update({other.rsplit(".", 1)[0] for other in included} - {unit})
    return joined


def folder(name: str) -> str:
    """api of cufile/api/library.hpp; "" of what is in no folder of cufile."""
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
