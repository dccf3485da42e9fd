#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""compile_commands.py FILE: writes what clangd wants to know of user/ and its tests, from what make would run."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOALS = ("lib", "tools", "verbs", "host-tests")
# clangd cannot read g++'s precompiled headers, nor those of another clang++. The sources do not need them.
PRECOMPILED = re.compile(r" -include-pch \S+| -Winvalid-pch -include \S+")


def commands(lines: list[str]) -> list[dict[str, str]]:
    found = []
    for line in lines:
        if match := re.search(r"(\S*(?:g\+\+|clang\+\+|c\+\+)\S* -std=.* -c (\S+) -o (\S+))$", line):
            found.append({"directory": str(ROOT / "user"), "command": PRECOMPILED.sub("", match[1]), "file": match[2], "output": match[3]})
    return found


def main() -> int:
    build = os.environ.get("PEERDMA_BUILD", str(ROOT / "build"))
    done = subprocess.run(["make", "--no-print-directory", "-C", str(ROOT / "user"), "-nB", "V=1", f"BUILD={build}", *GOALS],
                          capture_output=True, text=True)
    entries = commands(done.stdout.splitlines())
    if not entries:
        sys.exit(f"compile_commands.py: make showed no compiler command:\n{done.stderr}")
    Path(sys.argv[1]).write_text(json.dumps(entries, indent=1) + "\n")
    print(f"{len(entries)} commands written to {sys.argv[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
