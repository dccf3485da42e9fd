#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/compile_commands.py: each source of user/ and tests/ that make compiles has a command, and each of the module that Kbuild
has compiled."""
from __future__ import annotations

import json
import os
import shlex
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
    env = os.environ | {"PEERDMA_BUILD": f"{folder}/build", "PEERDMA_CACHE": f"{folder}/cache"}
    return subprocess.run([ROOT / "scripts/compile_commands.py", *words], cwd=folder, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def each_source_has_a_command() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = write("out.json", folder=folder)
        assert done.returncode == 0, done.stdout
        entries = json.loads((Path(folder) / "out.json").read_text())
        assert not (Path(folder) / "build").exists()
        for line in ("kernel/: no commands, because nothing is built: run make module",
                     "tests/kmod/: no commands, because nothing is built: run make check-quick"):
            assert line in done.stdout.splitlines(), done.stdout
    outputs = [entry["output"] for entry in entries]
    assert len(set(outputs)) == len(outputs)
    sources = {os.path.normpath(os.path.join(entry["directory"], entry["file"])) for entry in entries}
    assert all(entry["file"] in entry["command"] and "-include" not in entry["command"] for entry in entries)
    missing = {str(path.relative_to(ROOT)) for part in ("user", "tests") for path in (ROOT / part).rglob("*.cpp") if str(path) not in sources}
    # Compiled by scripts, or by hand on a machine with a GPU.
    by_hand = {"tests/host/cufile/client.cpp", "tests/host/cufile/exits.cpp"}
    missing = {path for path in missing if path not in by_hand and not path.startswith("tests/gpu/")}
    assert not missing, sorted(missing)


def kept(path: Path, command: str, age: int) -> None:
    """As Kbuild keeps a command."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{command}\n\nsource_{path.stem} := x\n")
    os.utime(path, (2e9 - age, 2e9 - age))


def what_kbuild_has_compiled_has_a_command() -> None:
    """Of the newest kernel for which it was built, with the tree's files instead of their copies, and without what clang refuses."""
    gcc = "gcc -Wp,-MMD,x.d -nostdinc -include /k/include/linux/kconfig.h -I/k/include -std=gnu11 -fshort-wchar -fconserve-stack " \
          "-mpreferred-stack-boundary=3 -mno-sse -Wall -Werror=date-time -DKBUILD_BASENAME='\"io\"'"
    with tempfile.TemporaryDirectory() as folder:
        new, old = (Path(folder).resolve() / "build/kernel" / name for name in ("7-plain-gcov", "6-plain"))
        module = new / "src/kernel"
        kept(module / "io/.io.o.cmd", f"savedcmd_io/io.o := {gcc} -I././../include -I./. -c -o io/io.o io/io.c   ; /k/objtool io/io.o", 1)
        kept(module / ".peerdma.mod.o.cmd", f"savedcmd_peerdma.mod.o := {gcc} -c -o peerdma.mod.o peerdma.mod.c", 1)
        kept(module / ".peerdma.o.cmd", "savedcmd_peerdma.o := ld -r -o peerdma.o @peerdma.mod", 1)
        kept(module / ".gone.o.cmd", f"savedcmd_gone.o := {gcc} -c -o gone.o gone.c", 1)
        kept(new / "kmod/.pin.o.cmd", f"savedcmd_pin.o := {gcc} -c -o pin.o pin.c", 3)
        # As up to v6.12. With no folder of that kernel there is no command.
        for name in ("6-plain", "5-plain"):
            stand = old.with_name(name) / "kmod"
            kept(stand / ".edu.o.cmd", f"cmd_{stand}/edu.o := {gcc} -I./include -c -o {stand}/edu.o {stand}/edu.c", 2 if name == "6-plain" else 0)
        kernel = Path(folder).resolve() / "cache/kernels/6-plain/build"
        kernel.mkdir(parents=True)
        done = write("out.json", folder=folder)
        assert done.returncode == 0 and "no commands" not in done.stdout, done.stdout
        entries = json.loads((Path(folder) / "out.json").read_text())
    made = {Path(entry["file"]): entry for entry in entries if entry["file"].endswith(".c")}
    assert set(made) == {ROOT / "kernel/io/io.c", ROOT / "tests/kmod/edu.c"}, list(made)
    io, edu = made[ROOT / "kernel/io/io.c"], made[ROOT / "tests/kmod/edu.c"]
    assert io["directory"] == str(module) and io["output"] == str(module / "io/io.o"), io
    words = ["gcc", "-nostdinc", "-include", "/k/include/linux/kconfig.h", "-I/k/include", "-std=gnu11", "-fshort-wchar", "-mno-sse", "-Wall",
             '-DKBUILD_BASENAME="io"', f"-I{ROOT}/include", f"-I{ROOT}/kernel", "-Wno-unknown-warning-option", "-c", "-o", io["output"],
             io["file"]]
    assert shlex.split(io["command"]) == words, io["command"]
    assert edu["directory"] == str(kernel) and edu["output"] == str(old / "kmod/edu.o"), edu
    assert f"-I{kernel}/include" in edu["command"], edu["command"]


def what_is_no_file_is_not_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for words, status in ((["--help"], 0), (["--out"], 2), ([], 2)):
            assert write(*words, folder=folder).returncode == status, words
        assert not list(Path(folder).iterdir())


if __name__ == "__main__":
    sys.exit(tap.run([each_source_has_a_command, what_kbuild_has_compiled_has_a_command, what_is_no_file_is_not_written]))
