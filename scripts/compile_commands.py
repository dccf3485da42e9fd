#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes the compile commands of user/ and tests/ for clangd, from what make would run."""
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOALS = {"user": ("lib", "tools", "verbs", "host-tests", "hops", "bench-pack"), "tests": ("all",)}
# clangd cannot read g++'s precompiled headers, nor those of another clang++. The sources do not need them.
PRECOMPILED = re.compile(r" -include-pch \S+| -Winvalid-pch -include \S+")


def commands(folder: Path, output: str) -> list[dict[str, str]]:
    found = []
    for line in output.replace("\\\n", " ").splitlines():
        if match := re.search(r"\S*[gc]\+\+\S* -std=.*", line):
            command = PRECOMPILED.sub("", match[0])
            words = shlex.split(command)
            found += [{"directory": str(folder), "command": command, "file": word, "output": words[words.index("-o") + 1]}
                      for word in words if word.endswith(".cpp")]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where to write them")
    args = parser.parse_args()
    build = os.environ.get("PEERDMA_BUILD", str(ROOT / "build"))
    # By output: the make of tests/ starts that of user/ for some.
    entries: dict[str, dict[str, str]] = {}
    for part, goals in GOALS.items():
        done = subprocess.run(["make", "--no-print-directory", "-C", str(ROOT / part), "-nB", "V=1", f"BUILD={build}", *goals],
                              capture_output=True, text=True)
        found = commands(ROOT / part, done.stdout)
        if done.returncode or not found:
            sys.exit(f"compile_commands.py: make -C {part} does not show its compiler commands:\n{done.stderr}")
        for entry in found:
            entries.setdefault(entry["output"], entry)
    args.file.write_text(json.dumps(list(entries.values()), indent=1) + "\n")
    print(f"{len(entries)} commands written to {args.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
