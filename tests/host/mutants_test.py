#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The patches of tests/mutants/ are of use: each still applies, names a test, and is in the documentation's table."""
from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]
import mutants  # noqa: E402
import tap  # noqa: E402

ROOT = mutants.lab.ROOT


def every_mutant_still_applies() -> None:
    assert len(mutants.mutants()) > 20
    for mutant in mutants.mutants():
        mutants.apply(mutant, ROOT, dry=True)


def each_changes_the_module_and_nothing_else() -> None:
    for mutant in mutants.mutants():
        files = re.findall(r"^\+\+\+ b/(.*)", mutant.path.read_text(), re.M)
        assert files and all(re.fullmatch(r"kernel/\w+\.[ch]", name) for name in files), (mutant.name, files)


def each_names_a_test_that_runs_there() -> None:
    for mutant in mutants.mutants():
        assert mutant.must and mutant.variant in mutant.test.words("variants", mutant.variant), mutant.name
        assert mutant.topology in mutant.test.words("topologies"), mutant.name


def each_is_in_the_table_of_mutants() -> None:
    testing = (ROOT / "Documentation/testing.md").read_text()
    table = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| `(\w+)`.* \|$", testing, re.M))
    assert table == {mutant.name: mutant.test.name for mutant in mutants.mutants()}, table


def a_complaint_is_a_line_that_is_not_ok_with_what_is_said_about_it() -> None:
    def heard(must: str, *lines: str) -> str:
        ear = mutants.Ear(re.compile(must), Path("/nonexistent"))
        for line in lines:
            ear.say(line)
        return ear.heard

    assert heard("lost", "ok 1 - a", "not ok 2 - the pool", "# lost 4096") == "the pool lost 4096"
    assert heard("lost", "ok 1 - a", "# lost 4096", "not ok 2 - the pool") == "the pool lost 4096"
    assert heard("pool", "not ok 1 - the pool") == "the pool"
    assert not heard("lost", "ok 1 - nothing is lost", "# lost")
    assert not heard("lost", "not ok 1 - the pool", "ok 2 - a", "# lost")


if __name__ == "__main__":
    sys.exit(tap.run([
        every_mutant_still_applies, each_changes_the_module_and_nothing_else, each_names_a_test_that_runs_there,
        each_is_in_the_table_of_mutants, a_complaint_is_a_line_that_is_not_ok_with_what_is_said_about_it]))
