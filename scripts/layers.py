#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""layers.py OBJECTS: checks the layers of kernel/ in a build of the module, by the symbols that each object defines and
needs, and by the headers that each source includes.

A folder is a layer. It needs only symbols and headers of its own layer and of those before it. Files of one layer do not
form a cycle. Every file may need trace.o, which sends events and calls no other file. addons/, modules of their own, and
compat/, which takes the place of files of several layers on an older kernel, are no layers. Prints a line for each file
with the files it needs, and fails with a line for each violation.
"""
from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

KERNEL = Path(__file__).resolve().parent.parent / "kernel"
LAYERS = ("base", "memory", "routing", "io", "face")
# (file, needed file): the reason. At most three.
ALLOWED: dict[tuple[str, str], str] = {}


def symbols(path: Path) -> tuple[set[str], set[str]]:
    """The symbols that an object defines, and those that it needs."""
    defines, needs = set(), set()
    for line in subprocess.run(["nm", str(path)], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        *_, kind, name = line.split()
        if kind == "U":
            needs.add(name)
        elif kind.isupper():
            defines.add(name)
    return defines, needs


def graph(folder: Path) -> dict[str, dict[str, set[str]]]:
    """For each file, as layer/name, the files that it needs, with the symbols."""
    owner: dict[str, str] = {}
    needs: dict[str, set[str]] = {}
    for path in sorted(folder.glob("*/*.o")):
        if path.parent.name not in LAYERS or path.name.endswith(".mod.o"):
            continue
        name = f"{path.parent.name}/{path.stem}"
        defined, needs[name] = symbols(path)
        owner.update(dict.fromkeys(defined, name))
    out: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in needs}
    for name, wanted in needs.items():
        for symbol in wanted & owner.keys():
            if owner[symbol] != name:
                out[name][owner[symbol]].add(symbol)
    return out


def upwards(edges: dict[str, dict[str, set[str]]]) -> list[str]:
    def layer(name: str) -> int:
        return LAYERS.index(name.split("/")[0])

    return [f"{name} needs {other}, of a layer above: {', '.join(sorted(what))}" for name, others in edges.items()
            for other, what in others.items() if layer(other) > layer(name) and (name, other) not in ALLOWED]


def includes_upwards(kernel: Path) -> list[str]:
    found = []
    for path in sorted(kernel.glob("*/*.[ch]")):
        layer = path.parent.name
        for other, header in re.findall(r'^#include "(\w+)/(\w+\.h)"', path.read_text(), re.M) if layer in LAYERS else ():
            if other in LAYERS and LAYERS.index(other) > LAYERS.index(layer):
                found.append(f"{layer}/{path.name} includes {other}/{header}, of a layer above")
    return found


def circles(edges: dict[str, dict[str, set[str]]]) -> list[str]:
    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [other for other in edges[start] if (start, other) not in ALLOWED]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += [other for other in edges[name] if (name, other) not in ALLOWED]
        return seen

    behind = {name: reached(name) for name in edges}
    found = {tuple(sorted({name} | {other for other in behind[name] if name in behind[other]}))
             for name in edges if name in behind[name]}
    return [f"a circle: {' '.join(circle)}" for circle in sorted(found)]


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or not (edges := graph(Path(arguments[1]))):
        print(f"usage: {arguments[0]} FOLDER: of a build of kernel/", file=sys.stderr)
        return 2
    for name, others in edges.items():
        print(f"{name}: {' '.join(sorted(others)) or '-'}")
    breaches = upwards(edges) + circles(edges) + includes_upwards(KERNEL)
    if len(ALLOWED) > 3:
        breaches.append("more than three exceptions")
    for breach in breaches:
        print(breach, file=sys.stderr)
    print(f"{len(edges)} files, {len(breaches)} breaches, {len(ALLOWED)} exceptions")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
