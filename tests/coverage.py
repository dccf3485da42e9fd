#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make coverage`: which lines and branches of kernel/ the guest tests run, by gcov.

Environment: K, T, GROUP as for `make check`. Tests run on a kernel with gcov that otherwise equals the plain one.
Tests for a debug kernel only run on the debug kernel, which has gcov as well; tests that cover more there run on
both ("# coverage: gcov debug" in their header), those that do not use the module on neither ("# coverage: none"). --json FILE writes the counts. A line that no test runs needs an
entry in tests/coverage.reasons:

    FILE | FUNCTION[: REGEX] | why no test runs it
    FILE | FUNCTION[: REGEX] | by luck: why not every run does

Without T and GROUP all boots are made anew. With them only the selected boots are made, and their counts are added
to those of earlier boots. Once every boot has been made, a line without a test and a reason is an error, and so is
an entry without such a line.
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
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "qemu"))
os.environ["PEERDMA_GCOV"] = "1"  # before the import of lab: read by kernel/Kbuild and guest.sh
import lab  # noqa: E402
import run  # noqa: E402

REASONS = lab.ROOT / "tests/coverage.reasons"
COUNTS = lab.BUILD / "coverage"  # a folder for each boot
LUCK = "by luck: "


@dataclass
class Source:
    """The data of one file: line -> count, (line, object, index) -> count, line -> function."""
    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    # The object includes the number of the line's branches there; branches are merged across kernels if it is equal.
    branches: dict[tuple[int, str, int], int] = field(default_factory=lambda: defaultdict(int))
    functions: dict[int, str] = field(default_factory=dict)

    def missed(self) -> list[int]:
        return sorted(line for line, count in self.lines.items() if not count)


def stamp(path: Path) -> bytes:
    """Identifies the compilation that a gcov file belongs to."""
    with path.open("rb") as file:
        return file.read(12)[8:]


def read_gcov(folder: Path, notes: Path, sources: dict[str, Source]) -> bool:
    """Adds the counts of one boot; False if it ran another module. gcov needs an object's notes next to its counts."""
    found = sorted(folder.rglob("*.gcda"))
    notes_of = {path.stem: path for path in notes.rglob("*.gcno")}
    if not found or any(counts.stem not in notes_of or stamp(counts) != stamp(notes_of[counts.stem]) for counts in found):
        return False
    for counts in found:
        shutil.copyfile(notes_of[counts.stem], folder / f"{counts.stem}.gcno")
        run_ = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", str(counts)],
                              cwd=folder, capture_output=True, text=True)
        if run_.returncode or not run_.stdout.strip():
            raise lab.LabError(f"gcov cannot read {counts}: {run_.stderr.strip()}")
        for text in run_.stdout.splitlines():
            for file in json.loads(text)["files"]:
                add_file(file, counts.stem, notes, sources)
    return True


def add_file(file: dict, of: str, notes: Path, sources: dict[str, Source]) -> None:
    path = Path(file["file"])
    path = path if path.is_absolute() else notes / path
    if not path.resolve().is_relative_to(notes.resolve()):
        return  # a header of the kernel
    source = sources.setdefault(f"kernel/{path.resolve().relative_to(notes.resolve())}", Source())
    for line in file["lines"]:
        number = line["line_number"]
        source.lines[number] += line["count"]
        source.functions.setdefault(number, line.get("function_name", ""))
        for index, branch in enumerate(line["branches"]):
            source.branches[number, f"{of}/{len(line['branches'])}", index] += branch["count"]


@dataclass
class Entry:
    file: str
    function: str
    regex: str
    reason: str
    used: bool = False

    def explains(self, file: str, function: str, text: str) -> bool:
        return self.file == file and self.function in ("*", function) and bool(re.search(self.regex, text))

    @property
    def lucky(self) -> bool:
        """Whether the entry's lines run by luck; it is then needed for some of them only."""
        return self.reason.startswith(LUCK)


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


def report(sources: dict[str, Source], entries: list[Entry], complete: bool, root: Path = lab.ROOT) -> int:
    """Prints the table and the faults of the reasons. Returns the number of faults once every boot was counted,
    otherwise 0."""
    print(f"{'file':<24} {'lines':>18} {'branches':>18}  missed, with a reason")
    sums = [0, 0, 0, 0, 0]
    unexplained = []
    for name, source in sorted(sources.items()):
        text = (root / name).read_text().splitlines()
        reasoned = 0
        for line, count in sorted(source.lines.items()):
            what = text[line - 1].strip() if line <= len(text) else ""
            entry = next((e for e in entries if (e.lucky or not count)
                          and e.explains(name, source.functions[line], what)), None)
            if entry:
                entry.used = True
            if not count and entry:
                reasoned += 1
            elif not count:
                unexplained.append(f"{name}:{line} {source.functions[line]}: {what}")
        missed = source.missed()
        taken = sum(1 for count in source.branches.values() if count)
        row = (len(source.lines) - len(missed), len(source.lines), taken, len(source.branches), reasoned)
        sums = [a + b for a, b in zip(sums, row)]
        print(f"{name:<24} {percent(row[0], row[1]):>18} {percent(row[2], row[3]):>18}  {len(missed)}, {reasoned}")
    print(f"{'all':<24} {percent(sums[0], sums[1]):>18} {percent(sums[2], sums[3]):>18}  {sums[1] - sums[0]}, {sums[4]}")
    for line in unexplained:
        print(f"no test and no reason: {line}")
    stale = [entry for entry in entries if complete and not entry.used]
    for entry in stale:
        print(f"a reason that nothing needs: {entry.file} | {entry.function}: {entry.regex}")
    return len(unexplained) + len(stale) if complete else 0


def boot_name(kernel: lab.Kernel, topology: str, boot: str) -> str:
    """The folder that run.Check uses for a boot."""
    return "-".join(part for part in (kernel.name, topology, boot) if part)


class Choice(run.Choice):
    host = meta = False

    @property
    def kernels(self) -> list[tuple[str, str]]:
        return [(self.k or run.NEWEST, variant) for variant in ("gcov", "debug")]

    def power(self, variant: str) -> bool:
        return False

    def wants(self, test: lab.Test, k: str, variant: str, topology: str) -> bool:
        best = "gcov" if "plain" in test.words("variants", "plain") else "debug"
        return bool(variant in test.words("coverage", best) and topology in test.words("topologies") and self.topology in (None, topology)
                    and (self.group is None or self.group in test.words("group"))
                    and test.is_on(k) and test.boot != "counting")


class Coverage(run.Check):
    """`make check` of the guest tests; keeps the counts of each boot."""

    def guest(self, *args, **kwargs) -> lab.Guest:
        guest = super().guest(*args, **kwargs)
        # A boot of one group does not replace the whole boot.
        guest.out = COUNTS / "-".join(part for part in (guest.out.name, self.choice.group) if part)
        guest.patience *= 2
        guest.tests = [replace(test, notes=test.notes | {"timeout": str(2 * int(test.notes.get("timeout", "60")))})
                       for test in guest.tests]
        return guest


def all_boots(kernel: lab.Kernel) -> set[str]:
    choice = Choice(kernel.k, "plain", None, None)
    return {boot_name(kernel, topology, test.boot)
            for test in run.guest_tests() for topology in test.words("topologies")
            if choice.wants(test, kernel.k, kernel.variant, topology) and not run.missing_needs(test, kernel)}


def counted(kernel: lab.Kernel, sources: dict[str, Source]) -> set[str]:
    """Adds the counts of this kernel's boots; returns the boots."""
    folders = sorted(path.parent for path in COUNTS.glob(f"{kernel.name}-*/gcov"))
    notes = kernel.module.parent / "src/kernel"
    return {path.name for path in folders if read_gcov(path / "gcov", notes, sources)}


def boot(choice: Choice) -> int:
    """Makes the selected boots."""
    if not (choice.topology or choice.group):
        shutil.rmtree(COUNTS, ignore_errors=True)
    lab.init_binary()
    lab.pattern_binary()
    results = run.Report()
    asyncio.run(Coverage(choice, results).run())
    return results.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the counts here")
    parser.add_argument("--again", action="store_true", help="no boots: what is there")
    args = parser.parse_args()
    asked = run.Choice.from_environment()
    choice = Choice(asked.k, "plain", asked.topology, asked.group)
    status = 0 if args.again else boot(choice)
    sources: dict[str, Source] = {}
    known, boots = set(), set()
    for key in choice.kernels:
        kernel = lab.kernel(*key)
        assert kernel
        known |= counted(kernel, sources)
        boots |= all_boots(kernel)
    if not sources:
        raise lab.LabError("no boot left counts behind")
    missing = boots - known
    print(f"{len(known)} boots: {' '.join(sorted(known))}")
    print(f"not counted: {' '.join(sorted(missing))}" if missing else "that is all of them")
    if report(sources, load_reasons(), not missing):
        status = 1
    if args.json:
        args.json.write_text(json.dumps({
            name: {"lines": {str(n): c for n, c in sorted(source.lines.items())},
                   "branches": [{"line": n, "object": o, "index": i, "count": c}
                                for (n, o, i), c in sorted(source.branches.items())]}
            for name, source in sorted(sources.items())}, indent=1) + "\n")
    return status


if __name__ == "__main__":
    lab.as_command(main)
