# SPDX-License-Identifier: MIT
"""Runs functions as tests with TAP output: a test is named by its function and fails if it raises, but for Skip."""
from __future__ import annotations

import traceback
from typing import Callable, Sequence


# For a git that reads no settings of the machine or of its user.
WITHOUT_GITCONFIG = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


class Skip(Exception):
    """The test cannot be run here; the text says why."""


def run(tests: Sequence[Callable[[], None]]) -> int:
    """Returns the exit status."""
    print(f"1..{len(tests)}")
    failed = 0
    for number, test in enumerate(tests, 1):
        name = test.__name__.replace("_", " ")
        try:
            test()
            print(f"ok {number} - {name}")
        except Skip as why:
            print(f"ok {number} - {name} # SKIP {why}")
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}")
            print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="")
    return 1 if failed else 0
