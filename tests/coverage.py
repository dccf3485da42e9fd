#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make coverage`: which lines and branches of kernel/ the guest tests run, by gcov.

From the environment: K, T, GROUP as for `make check`. The debug kernel, which has gcov; tests that are kept from it
for their length run too. --json FILE writes it all. A line that nothing runs needs an entry in tests/coverage.reasons:

    FILE | FUNCTION[: REGEX] | why nothing runs it

Those without one are printed, and so are entries that nothing needs any more, if everything was run.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "qemu"))
os.environ["PEERDMA_GCOV"] = "1"  # before lab looks: kernel/Kbuild and guest.sh
os.environ["DEBUG"] = "1"
import lab  # noqa: E402
import run  # noqa: E402

REASONS = lab.ROOT / "tests/coverage.reasons"


@dataclass
class Source:
    """What is known of one file: line -> times, (line, object, index) -> times, line -> function."""
    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    branches: dict[tuple[int, str, int], int] = field(default_factory=lambda: defaultdict(int))
    functions: dict[int, str] = field(default_factory=dict)

    def missed(self) -> list[int]:
        return sorted(line for line, count in self.lines.items() if not count)


def read_gcov(folder: Path, notes: Path, sources: dict[str, Source]) -> None:
    """Adds what one boot counted. gcov wants an object's notes beside its counts."""
    for counts in sorted(folder.glob("*.gcda")):
        note = folder / f"{counts.stem}.gcno"
        shutil.copyfile(notes / note.name, note)
        run_ = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", str(counts)],
                              cwd=folder, capture_output=True, text=True)
        if run_.returncode or not run_.stdout.strip():
            raise lab.LabError(f"gcov cannot read {counts}: {run_.stderr.strip()}")
        for text in run_.stdout.splitlines():
            for file in json.loads(text)["files"]:
                add_file(file, counts.stem, notes, sources)


def add_file(file: dict, of: str, notes: Path, sources: dict[str, Source]) -> None:
    path = Path(file["file"])
    path = path if path.is_absolute() else notes / path
    if not path.resolve().is_relative_to(notes.resolve()):
        return  # the kernel's own headers
    source = sources.setdefault(f"kernel/{path.resolve().relative_to(notes.resolve())}", Source())
    for line in file["lines"]:
        number = line["line_number"]
        source.lines[number] += line["count"]
        source.functions.setdefault(number, line.get("function_name", ""))
        for index, branch in enumerate(line["branches"]):
            source.branches[number, of, index] += branch["count"]


@dataclass
class Entry:
    file: str
    function: str
    regex: str
    reason: str
    used: bool = False

    def explains(self, file: str, function: str, text: str) -> bool:
        return self.file == file and self.function in ("*", function) and bool(re.search(self.regex, text))


def load_reasons(path: Path = REASONS) -> list[Entry]:
    entries = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            fields = [part.strip() for part in line.split(" | ")]
            if len(fields) != 3:
                raise lab.LabError(f"{path}: not 'file | function: regex | reason': {line}")
            function, _, regex = fields[1].partition(":")
            entries.append(Entry(fields[0], function.strip(), regex.strip(), fields[2]))
    return entries


def percent(part: int, all_: int) -> str:
    return f"{part}/{all_} {100 * part / all_:.1f} %" if all_ else "-"


def report(sources: dict[str, Source], entries: list[Entry], everything: bool) -> list[str]:
    """Prints the table and what has no reason; returns the latter."""
    print(f"{'file':<24} {'lines':>18} {'branches':>18}  missed, with a reason")
    sums = [0, 0, 0, 0, 0]
    unexplained = []
    for name, source in sorted(sources.items()):
        text = (lab.ROOT / name).read_text().splitlines()
        reasoned = 0
        for line in source.missed():
            what = text[line - 1].strip() if line <= len(text) else ""
            entry = next((e for e in entries if e.explains(name, source.functions[line], what)), None)
            if entry:
                entry.used = True
                reasoned += 1
            else:
                unexplained.append(f"{name}:{line} {source.functions[line]}: {what}")
        missed = source.missed()
        taken = sum(1 for count in source.branches.values() if count)
        row = (len(source.lines) - len(missed), len(source.lines), taken, len(source.branches), reasoned)
        sums = [a + b for a, b in zip(sums, row)]
        print(f"{name:<24} {percent(row[0], row[1]):>18} {percent(row[2], row[3]):>18}  {len(missed)}, {reasoned}")
    print(f"{'all':<24} {percent(sums[0], sums[1]):>18} {percent(sums[2], sums[3]):>18}  {sums[1] - sums[0]}, {sums[4]}")
    for line in unexplained:
        print(f"no test and no reason: {line}")
    for entry in entries:
        if everything and not entry.used:
            print(f"a reason that nothing needs: {entry.file} | {entry.function}: {entry.regex}")
    return unexplained


class Coverage(run.Check):
    """`make check` of the guest tests on the debug kernel, each boot's counts kept."""

    def guest(self, *args, **kwargs) -> lab.Guest:
        guest = super().guest(*args, **kwargs)
        guest.patience *= 2
        return guest


class Choice(run.Choice):
    host = meta = False

    def wants(self, test: lab.Test, k: str, variant: str, topology: str) -> bool:
        return bool(topology in test.words("topologies") and self.topology in (None, topology)
                    and (self.group is None or self.group in test.words("group"))
                    and k in test.words("kernels", k) and test.notes.get("boot") not in ("counting", "large"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the counts here")
    parser.add_argument("--again", action="store_true", help="no boots: what the last run left behind")
    args = parser.parse_args()
    asked = run.Choice.from_environment()
    choice = Choice(asked.k, "debug", asked.topology, asked.group)
    kernel = lab.kernel(asked.k or run.NEWEST, "debug")
    assert kernel
    status = 0
    if not args.again:
        shutil.rmtree(lab.BUILD / "check", ignore_errors=True)
        lab.init_binary()
        lab.pattern_binary()
        results = run.Report()
        asyncio.run(Coverage(choice, results).run())
        status = results.close()
    sources: dict[str, Source] = {}
    boots = sorted((lab.BUILD / "check").glob("*/gcov"))
    for folder in boots:
        read_gcov(folder, kernel.module.parent / "src/kernel", sources)
    if not sources:
        raise lab.LabError("no boot left counts behind")
    print(f"{len(boots)} boots of {kernel.name}")
    report(sources, load_reasons(), not (asked.topology or asked.group))
    if args.json:
        args.json.write_text(json.dumps({
            name: {"lines": {str(n): c for n, c in sorted(source.lines.items())},
                   "branches": [{"line": n, "object": o, "index": i, "count": c}
                                for (n, o, i), c in sorted(source.branches.items())]}
            for name, source in sorted(sources.items())}, indent=1) + "\n")
    return status


if __name__ == "__main__":
    lab.as_command(main)
