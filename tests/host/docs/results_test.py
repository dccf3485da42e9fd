#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The figures in Documentation/results/README.md match the raw rows next to it."""
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "gpu"), str(Path(__file__).resolve().parents[1])]
import results  # noqa: E402
import rows  # noqa: E402
import tap  # noqa: E402

ROW = '%s {"what": "read", "direct": false, "size": 4096, "threads": 1, "us": %s, "gb_s": 1, "cpu_s_per_gb": 1}\n'


def the_page_has_what_the_rows_give() -> None:
    found = results.faults()
    assert not found, "tests/gpu/results.py writes it\n" + "\n".join(found)


def each_file_of_rows_is_in_it() -> None:
    files = {path.name for path in results.FOLDER.glob("cufile-*.txt")}
    assert files == {run.file for run in results.RUNS}, files


def another_figure_on_the_page_is_a_fault() -> None:
    page = results.PAGE
    try:
        with tempfile.TemporaryDirectory() as folder:
            results.PAGE = Path(folder) / "README.md"
            for name in results.TABLES:
                line = results.TABLES[name]()[-1]
                doctored = page.read_text().replace(line, line.translate(str.maketrans("0123456789", "1234567890")))
                assert doctored != page.read_text(), name
                results.PAGE.write_text(doctored)
                assert results.faults(), name
    finally:
        results.PAGE = page


def a_row_is_compared_with_its_own_run_and_round() -> None:
    with tempfile.TemporaryDirectory() as folder:
        said = "".join(ROW % (word, us) for word, us in (("ours", 1), ("theirs", 2), ("ours", 3), ("theirs", 2), ("ours", 8), ("theirs", 4),
                                                       ("blocking", 100), ("naive", 100), ("# ours", 100)))
        (Path(folder) / "rows.txt").write_text(said)
        results_folder, results.FOLDER = results.FOLDER, Path(folder)
        try:
            got = results.ratio(results.Run("x", "rows.txt"), False, ("read", 4096, 1), 0)
            assert got == results.Ratio(3 / 2, [1 / 2, 3 / 2, 2]), got
            assert results.ratio(results.Run("x", "rows.txt"), True, ("read", 4096, 1), 0) is None
        finally:
            results.FOLDER = results_folder


def who_a_line_is_of() -> None:
    for word, who in (("ours", "ours"), ("theirs", "theirs"), ("naive", "naive"), ("build/lib/libcufile.so.0", "ours"),
                      ("/usr/local/cuda-13.0/lib64/libcufile.so.0", "theirs"), ("blocking", ""), ("bare", "")):
        assert rows.library(word) == who, word


if __name__ == "__main__":
    sys.exit(tap.run([the_page_has_what_the_rows_give, each_file_of_rows_is_in_it, another_figure_on_the_page_is_a_fault,
                      a_row_is_compared_with_its_own_run_and_round, who_a_line_is_of]))
