#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""tests/host/tap.sh: what a script that sources it prints, and with which status it ends."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOST = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOST))
import tap  # noqa: E402


def script(text: str, first: str = "temporary") -> tuple[int, str]:
    """The status and the output of a script, which must leave nothing behind."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", f". {HOST / 'tap.sh'}\n{first}\n{text}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=os.environ | {"TMPDIR": folder})
        assert not os.listdir(folder), text
        return done.returncode, done.stdout


def each_line_has_its_number_and_the_plan_is_last() -> None:
    assert script("ok a\ncheck b true\nsame c 1 1\nskip d 'no e'\nfinish") == (
        0, "ok 1 - a\nok 2 - b\nok 3 - c\nok 4 - d # SKIP no e\n1..4\n")


def a_failure_says_why_and_is_the_status() -> None:
    for call, notes in (("not_ok a 'b\nc'", "# b\n# c\n"), ("not_ok a", ""), ("same a 1 2", "# want: 1\n# got:  2\n"),
                        ("same a '' ''", "# want: \n# got:  \n"),
                        ("check a eval 'echo b; echo c >&2; exit_status=3; (exit 3)'",
                         "# status 3 from: eval echo b; echo c >&2; exit_status=3; (exit 3)\n# b\n# c\n")):
        assert script(f"{call}\nok b\nfinish") == (1, f"not ok 1 - a\n{notes}ok 2 - b\n1..2\n"), call
        assert script(f"{call}\nexit 0")[0] == 1, call


def a_script_that_ends_early_fails() -> None:
    for text in ("ok a", "ok a\nexit 0", "ok a\nexit 3", "ok a\n: $unset\nfinish", "finish", "ok a\ncheck b exit 0\nfinish"):
        assert script(text)[0] == 1, text
    assert script("check a true\nfinish", "")[0] == 1, "a check without temporary"


def a_check_is_made_in_the_shell_of_the_script() -> None:
    assert script("sets() { seen=1; }\ncheck a sets\nsame b 1 $seen\nfinish")[0] == 0


if __name__ == "__main__":
    sys.exit(tap.run([each_line_has_its_number_and_the_plan_is_last, a_failure_says_why_and_is_the_status, a_script_that_ends_early_fails,
                      a_check_is_made_in_the_shell_of_the_script]))
