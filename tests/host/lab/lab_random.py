#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Random changes to the lab's input: it reports an error of its own or gives a verdict, and never accepts bad input.

Input: a guest's lines, a test's header, a topology. libFuzzer cannot instrument Python; a fixed seed and a few
thousand inputs take two seconds.
"""
from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "qemu"), str(Path(__file__).resolve().parents[1])]
import lab  # noqa: E402
import tap  # noqa: E402

GOOD = ["check nvme ok", "begin one 60", "1..2", "ok 1 - first", "# a note", "ok 2 - second # SKIP why", "end one 0 12",
        *(f"check {name} ok" for name in lab.CHECKS if name != "nvme")]
WORDS = ["begin", "end", "check", "verdict", "exit", "ok", "not ok", "1..", "0", "-1", "99999999999999999999", "#", "",
         "one", "hung", "SKIP", "Bail out!", "\x00", "é", " "]


def judged(lines: list[str]) -> lab.Outcome:
    kernel = lab.Kernel(lab.NEWEST, "plain", Path("/nowhere"))
    test = lab.Test(Path("/nowhere/one.sh"), {})
    outcome = lab.Outcome(lab.Guest(kernel, lab.Topology("none", "", "", ()), [test], Path("/nowhere")))
    judge = lab.Judge(outcome)
    for line in lines:
        judge.line(line)
    judge.close()
    return outcome


def good_lines() -> list[str]:
    return [*GOOD, f"verdict {len(GOOD)}", "exit 0"]


def spoil(chance: random.Random, text: str) -> str:
    how = chance.randrange(5)
    at = chance.randrange(len(text) + 1)
    if how == 0:
        return text[:at]
    if how == 1:
        return text[:at] + chance.choice(WORDS) + text[at:]
    if how == 2:
        return " ".join(chance.sample(text.split(), len(text.split())))
    if how == 3:
        return text[:at] + text[at + 1:]
    return chance.choice(WORDS) + " " + chance.choice(WORDS)


def a_good_run_is_good() -> None:
    assert judged(good_lines()).ok


def spoilt_lines_of_a_guest_are_judged() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        lines = good_lines()
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(lines))
            if chance.randrange(3):
                lines[at] = spoil(chance, lines[at])
            else:
                lines.insert(at, spoil(chance, lines[at]))
        outcome = judged(lines)
        # An accepted run must be complete: the test's plan, its lines, and the end.
        if outcome.ok:
            assert lines[-1].split() == ["exit", "0"] and lines[-2].split() == ["verdict", str(len(lines) - 2)], lines
            assert sum(not line.ok for line in outcome.lines) == 0 and len(outcome.lines) >= 1, lines


def any_header_of_a_test_is_read() -> None:
    chance = random.Random(2)
    lines = lab.Test.named("fuzz").path.read_text().splitlines()[:12]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.sh"
        for _ in range(1000):
            path.write_text("\n".join(spoil(chance, line) if not chance.randrange(4) else line for line in lines))
            lab.Test.load(path).words("topologies")


def any_topology_is_read_or_refused() -> None:
    chance = random.Random(3)
    root = lab.ROOT
    lines = (root / "qemu/topo/disks.args").read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        lab.ROOT = Path(folder)
        try:
            path = Path(folder) / "qemu/topo/random.args"
            path.parent.mkdir(parents=True)
            for _ in range(1000):
                path.write_text("\n".join(spoil(chance, line) if not chance.randrange(4) else line for line in lines))
                topology = lab.Topology.load("random")
                assert all(disk.isidentifier() or disk.isalnum() for disk in topology.disks), topology.disks
        finally:
            lab.ROOT = root


if __name__ == "__main__":
    sys.exit(tap.run([a_good_run_is_good, spoilt_lines_of_a_guest_are_judged, any_header_of_a_test_is_read,
                      any_topology_is_read_or_refused]))
