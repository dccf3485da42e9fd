#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tiers of tests/run.py: what check-quick runs, check runs too, and check-all runs everything that they run. And its report
of a failed host test."""
from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/host"), str(ROOT / "qemu")]
import run  # noqa: E402
import tap  # noqa: E402

Runs = set[tuple[str, str, str, str]]  # kernel, build, topology, test


def choice(tier: str, short: bool = False) -> run.Choice:
    return run.Choice(None, "plain", None, None, None, tier, short)


def guest_runs(tier: str, short: bool = False) -> Runs:
    of = choice(tier, short)
    return {(k, variant, topology, test.name) for test in run.guest_tests() for k, variant in of.kernels
            for topology in test.words("topologies")
            if of.wants(test, k, variant, topology) and not of.why_not(test, k, variant)}


def host_runs(tier: str) -> set[Path]:
    return {path for path in run.host_tests() if choice(tier).wants_host(path)}


def each_tier_runs_what_the_one_before_runs() -> None:
    for less, more in zip(run.TIERS, run.TIERS[1:]):
        assert guest_runs(less) < guest_runs(more), guest_runs(less) - guest_runs(more)
        assert host_runs(less) < host_runs(more), host_runs(less) - host_runs(more)


def check_runs_each_guest_test_once_on_a_plain_kernel() -> None:
    plain = [test for _, variant, _, test in guest_runs("check") if variant == "plain"]
    assert len(plain) == len(set(plain))
    absent = [test for test in run.guest_tests() if test.name not in plain]
    assert all("all" in test.words("tier") or test.is_long(run.NEWEST, "plain") or not test.is_on(run.NEWEST)
               or "plain" not in test.words("variants", "plain") for test in absent), [test.name for test in absent]


def check_quick_needs_one_kernel_and_one_boot() -> None:
    quick = guest_runs("quick")
    assert quick and {run_[:3] for run_ in quick} == {(run.NEWEST, "plain", "switch")}, quick


def all_has_each_test() -> None:
    assert host_runs("all") == set(run.host_tests())
    here = guest_runs("all")
    for test in run.guest_tests():
        expected = {(k, "plain", topology, test.name) for k in run.lab.KERNELS for topology in test.words("topologies")
                    if test.is_on(k) and test.is_for("plain")}
        assert expected <= here, expected - here


def short_leaves_out_what_is_long() -> None:
    tests = {test.name: test for test in run.guest_tests()}
    left_out = guest_runs("all") - guest_runs("all", short=True)
    assert left_out == {ran for ran in guest_runs("all") if tests[ran[3]].is_long(ran[0], ran[1])}, left_out
    assert set(run.lab.KERNELS) == {ran[0] for ran in left_out} and {"plain", "debug"} == {ran[1] for ran in left_out}
    assert guest_runs("check") < guest_runs("all", short=True)


def a_failed_test_says_why() -> None:
    """Of TAP, whose reasons come behind the line."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        path = Path(folder) / "fails.sh"
        path.write_text("#!/bin/sh\necho 1..2\necho not ok 1 - one\necho '# of this'\necho ok 2 - two\nexit 1\n")
        path.chmod(0o755)
        asyncio.run(run.run_host_test(path, run.Report()))
    lines = said.getvalue().splitlines()
    assert lines[0].endswith("fails: one") and "# of this" in lines[2], lines


if __name__ == "__main__":
    sys.exit(tap.run([each_tier_runs_what_the_one_before_runs, check_runs_each_guest_test_once_on_a_plain_kernel,
                      check_quick_needs_one_kernel_and_one_boot, all_has_each_test, short_leaves_out_what_is_long,
                      a_failed_test_says_why]))
