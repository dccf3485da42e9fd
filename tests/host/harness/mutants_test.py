#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Each change in tests/mutants/ still applies, names a test, and is in the documentation's table."""
from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
import mutation  # noqa: E402
import mutants  # noqa: E402
import tap  # noqa: E402

ROOT = mutants.lab.ROOT


def every_mutant_still_applies() -> None:
    found = mutants.mutants()
    assert found and [mutant.path for mutant in found] == sorted((ROOT / "tests/mutants").iterdir()), found
    for mutant in found:
        mutants.apply(mutant, ROOT, dry=True)


SOURCE = """\
#define LEN 4

static int look(int held)
{
	if (held)
		return LEN;
	return 0;
}

static const struct op ops[] = {
	{ .execute = look },
};
"""


def changed(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        (tree / "kernel/part").mkdir(parents=True)
        (tree / "kernel/part/held.c").write_text(SOURCE)
        mutation.apply(text, tree)
        return (tree / "kernel/part/held.c").read_text()


def a_change_finds_its_place_by_name_and_not_by_white_space() -> None:
    assert changed("in look\n if (held)\n-  return  LEN;\n+\t\treturn 5;\n") == SOURCE.replace("return LEN", "return 5")
    assert changed("in LEN\n-#define LEN 4\n+#define LEN 8\n") == SOURCE.replace("LEN 4", "LEN 8")
    assert changed("in ops\n-{ .execute = look },\n") == SOURCE.replace("\t{ .execute = look },\n", "")
    assert changed("in look\n-return 0;\n" + "in LEN\n-#define LEN 4\n+#define LEN 8\n") == \
        SOURCE.replace("\treturn 0;\n", "").replace("LEN 4", "LEN 8")


def a_change_without_exactly_one_place_is_refused() -> None:
    for text in ("in look\n-return 1;\n", "in gone\n-return 0;\n", "in look\n+return 0;\n", "-return 0;\n", "",
                 "in ops\n-return 0;\n", "in look\n }\n-}\n"):
        try:
            changed(text)
        except mutation.MutationError:
            continue
        raise AssertionError(f"taken: {text!r}")


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
        every_mutant_still_applies, a_change_finds_its_place_by_name_and_not_by_white_space,
        a_change_without_exactly_one_place_is_refused, each_names_a_test_that_runs_there,
        each_is_in_the_table_of_mutants, a_complaint_is_a_line_that_is_not_ok_with_what_is_said_about_it]))
