#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes the compile commands for clangd: those of user/ and tests/ from what make would run, those of kernel/ and tests/kmod/ as
Kbuild has kept them of the newest build."""
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


# Where scripts/module.sh and qemu/lab.py build copies of these folders, and what makes the lab do it.
KERNEL_PARTS = {"kernel": ("src/kernel", "make module"), "tests/kmod": ("kmod", "make check-quick")}
# What the meaning of a source depends on. Code generation is left out: clang refuses some of GCC's flags.
MEANING = re.compile(r"-(nostdinc|std=.*|[IDU].*|W(?!p,|error)[^,]*|m(32|64|no-(sse|mmx|avx).*)|f(no-)?(short-wchar|unsigned-char|ms-extensions|builtin.*))")


def kernel_folder(name: str) -> Path | None:
    """The build folder of the kernel for which scripts/module.sh has built in the folder of this name."""
    cache = os.environ.get("PEERDMA_CACHE") or (os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) + "/peerdma"
    name = name.removesuffix("-gcov")
    places = (Path(cache, "kernels", name, "build"), Path("/lib/modules", name, "build"), Path("/usr/src", name))
    return next((place for place in places if place.is_dir()), None)


def kernel_command(saved: Path, folder: Path, source: Path, kernel: Path | None) -> dict[str, str] | None:
    """The command that Kbuild has kept in `saved`, for the file of `source` of which `folder` has the copy."""
    kept = re.match(r"(?:saved)?cmd_(\S+) := (.*?)(?:\s;|$)", saved.read_text().partition("\n")[0])
    words = shlex.split(kept[2]) if kept else []
    if not kept or not words or not words[-1].endswith(".c"):
        return None
    # Up to v6.12 make runs in the kernel's folder and names the module's files by their whole paths.
    directory = kernel if kept[1].startswith("/") else folder
    if not directory:
        return None

    def in_tree(path: str) -> Path:
        """The path, in the tree if the copy has it from there."""
        whole = Path(os.path.normpath(directory / path))
        for copy, original in ((folder, source), (folder.parent / "include", ROOT / "include")):
            if whole.is_relative_to(copy):
                return original / whole.relative_to(copy)
        return whole

    file = in_tree(words[-1])
    if not file.is_relative_to(source) or not file.is_file():
        return None  # Kbuild's own, or of a file that is no longer there
    flags = []
    for word, after in zip(words[1:], words[2:]):
        if word in ("-include", "-isystem"):
            flags += [word, str(in_tree(after))]
        elif MEANING.fullmatch(word):
            flags.append(f"-I{in_tree(word[2:])}" if word.startswith("-I") else word)
    output = str(Path(os.path.normpath(directory / kept[1])))
    command = [words[0], *flags, "-Wno-unknown-warning-option", "-c", "-o", output, str(file)]
    return {"directory": str(directory), "command": shlex.join(command), "file": str(file), "output": output}


def kernel_commands(build: Path, part: str) -> list[dict[str, str]]:
    inside, _ = KERNEL_PARTS[part]
    built = {}
    for folder in build.glob(f"kernel/*/{inside}"):
        if saved := list(folder.rglob(".*.o.cmd")):
            built[max(path.stat().st_mtime for path in saved)] = folder, sorted(saved)
    for _, (folder, saved) in sorted(built.items(), reverse=True):
        kernel = kernel_folder(folder.relative_to(build / "kernel").parts[0])
        made = (kernel_command(path, folder, ROOT / part, kernel) for path in saved)
        if found := [entry for entry in made if entry]:
            return found
    return []


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
    for part, (_, remedy) in KERNEL_PARTS.items():
        found = kernel_commands(Path(build).absolute(), part)
        if not found:
            print(f"{part}/: no commands, because nothing is built: run {remedy}", file=sys.stderr)
        entries |= {entry["output"]: entry for entry in found}
    args.file.write_text(json.dumps(list(entries.values()), indent=1) + "\n")
    print(f"{len(entries)} commands written to {args.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
