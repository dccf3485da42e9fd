#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""make coverage reports a line without a test or a reason, and a reason without a line."""
from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import tempfile
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
import coverage  # noqa: E402
import tap  # noqa: E402

FILE = "kernel/a.c"
TEXT = "int f(void)\n{\n\tif (bad)\n\t\treturn -ENOMEM;\n\treturn 0;\n}\n"


def judged(counts: dict[int, int], reasons: str, complete: bool = True) -> tuple[int, str]:
    """Number of faults and the output, for these execution counts of the lines of f()."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        root = Path(folder)
        (root / "kernel").mkdir()
        (root / FILE).write_text(TEXT)
        (root / "reasons").write_text(reasons)
        source = coverage.Source()
        source.lines.update(counts)
        source.functions.update({line: "f" for line in counts})
        wrong = coverage.report({FILE: source}, coverage.load_reasons(root / "reasons"), complete, root)
    return wrong, said.getvalue()


RAN, MISSED = {3: 7, 4: 1, 5: 6}, {3: 7, 4: 0, 5: 7}
REASON = f"{FILE} | f: ENOMEM | there is always memory\n"
LUCK = f"{FILE} | f: ENOMEM | by luck: sometimes there is memory\n"


def all_lines_ran() -> None:
    wrong, said = judged(RAN, "# nothing\n")
    assert not wrong and "3/3 100.0 %" in said


def a_missed_line_needs_a_reason() -> None:
    wrong, said = judged(MISSED, "")
    assert wrong == 1 and f"no test and no reason: {FILE}:4 f: return -ENOMEM;" in said
    assert judged(MISSED, REASON)[0] == 0


def the_reason_must_be_that_line_s() -> None:
    for other in (REASON.replace("ENOMEM", "EIO"), REASON.replace("| f:", "| g:"), REASON.replace("a.c", "b.c")):
        assert judged(MISSED, other)[0] == 2  # one fault for the line, one for the entry


def a_reason_for_a_line_that_ran_is_wrong() -> None:
    wrong, said = judged(RAN, REASON)
    assert wrong == 1 and f"a reason that nothing needs: {FILE} | f: ENOMEM" in said


def luck_may_go_either_way() -> None:
    assert judged(RAN, LUCK)[0] == 0 and judged(MISSED, LUCK)[0] == 0
    assert judged(RAN, LUCK.replace("ENOMEM", "EIO"))[0] == 1


def some_boots_prove_nothing() -> None:
    wrong, said = judged(MISSED, "", complete=False)
    assert not wrong and "no test and no reason" in said
    assert judged(RAN, REASON, complete=False)[0] == 0


def counts_of_another_module_are_left_out() -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, boot = Path(folder) / "notes", Path(folder) / "boot"
        notes.mkdir()
        boot.mkdir()
        (boot / "a.gcda").write_bytes(b"adcg" + b"12.2" + b"new!")
        (notes / "a.gcno").write_bytes(b"oncg" + b"12.2" + b"old!")
        assert not coverage.read_gcov(boot, notes, {})


def notes_are_found_in_the_folders_of_the_sources() -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes, boot = Path(folder) / "notes", Path(folder) / "boot"
        (notes / "io").mkdir(parents=True)
        boot.mkdir()
        (boot / "a.gcda").write_bytes(b"adcg" + b"12.2" + b"same")
        (notes / "io/a.gcno").write_bytes(b"oncg" + b"12.2" + b"same")
        try:
            coverage.read_gcov(boot, notes, {})
        except coverage.lab.LabError as error:
            assert "gcov cannot read" in str(error)  # these: they are no real ones
        else:
            raise AssertionError("the notes were not found")


def each_boot_of_a_run_is_needed() -> None:
    choice, planned = coverage.Choice(None, "plain", None, None), set()

    async def plan() -> None:
        check = coverage.Coverage(choice, coverage.run.Report())

        async def reported(where: str, *_: object) -> None:
            planned.add(where.replace("/", "-"))
        check.reported = reported  # type: ignore[method-assign]
        await asyncio.gather(*check.plan())
    with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(coverage.run, "missing_needs", return_value=[]):
        asyncio.run(plan())
        needed = {name for key in choice.kernels for name in coverage.all_boots(coverage.lab.Kernel(*key, Path("/nonexistent")))}
    assert needed == planned, needed ^ planned


if __name__ == "__main__":
    sys.exit(tap.run([all_lines_ran, a_missed_line_needs_a_reason, the_reason_must_be_that_line_s,
                      a_reason_for_a_line_that_ran_is_wrong, luck_may_go_either_way, some_boots_prove_nothing,
                      counts_of_another_module_are_left_out, notes_are_found_in_the_folders_of_the_sources,
                      each_boot_of_a_run_is_needed]))
