#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/compile_commands.py: each source of user/ and tests/ that make compiles has a command."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests/host")]
import tap  # noqa: E402


def write(*words: str, folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts/compile_commands.py", *words], cwd=folder, env=os.environ | {"PEERDMA_BUILD": f"{folder}/build"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def each_source_has_a_command() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = write("out.json", folder=folder)
        assert done.returncode == 0, done.stdout
        entries = json.loads((Path(folder) / "out.json").read_text())
        assert not (Path(folder) / "build").exists()
    outputs = [entry["output"] for entry in entries]
    assert len(set(outputs)) == len(outputs)
    sources = {os.path.normpath(os.path.join(entry["directory"], entry["file"])) for entry in entries}
    assert all(entry["file"] in entry["command"] and "-include" not in entry["command"] for entry in entries)
    missing = {str(path.relative_to(ROOT)) for part in ("user", "tests") for path in (ROOT / part).rglob("*.cpp") if str(path) not in sources}
    # Compiled by scripts, or by hand on a machine with a GPU.
    by_hand = {"tests/host/cufile/client.cpp", "tests/host/cufile/exits.cpp"}
    missing = {path for path in missing if path not in by_hand and not path.startswith("tests/gpu/")}
    assert not missing, sorted(missing)


def what_is_no_file_is_not_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for words, status in ((["--help"], 0), (["--out"], 2), ([], 2)):
            assert write(*words, folder=folder).returncode == status, words
        assert not list(Path(folder).iterdir())


if __name__ == "__main__":
    sys.exit(tap.run([each_source_has_a_command, what_is_no_file_is_not_written]))
