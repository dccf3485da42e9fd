#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""hops.py: how many files of user/cufile a cuFileRead() enters, directly and bounced.

The library is built as it is written (-O0) with the compiler's counters (gcov). build/hops/program reads once, resets the
counters, reads again, and dumps them: at the first call of libpeerdma's or copy of CUDA's ("out"), or when cuFileRead()
returns ("back"). A file counts, header or source, if a function of it ran that has a body: more than one statement, or a
condition. Other functions are accessors, or pass a call on.

Prints files and functions of each read. Fails if a read enters more files than its limit.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("PEERDMA_BUILD") or ROOT / "build")
CUFILE = ROOT / "user/cufile"
LIMITS = {("direct", "out"): 6, ("direct", "back"): 7, ("bounce", "out"): 7, ("bounce", "back"): 9}


def has_a_body(text: str) -> bool:
    """Whether a function, from its name to its last brace, is more than one statement."""
    text = re.sub(r'"(\\.|[^"\\])*"|//[^\n]*', "", text)
    body = text[text.find("{") + 1:text.rfind("}")]
    return body.count(";") > 1 or bool(re.search(r"\b(if|for|while|do|switch|try)\b", body))


def short(name: str) -> str:
    """Of a function, without namespaces, arguments and templates' arguments."""
    name = re.sub(r"\(anonymous namespace\)|\{lambda.*", "lambda", name).split("(")[0].split("<")[0]
    return "::".join(part for part in name.split(" ")[-1].split("::") if part not in ("cufile", "lambda")) or "lambda"


def entered(path: str, until: str) -> dict[str, set[str]]:
    """By file of user/cufile, the functions with a body that one read by this path runs."""
    found: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        settings = Path(folder) / "cufile.json"
        settings.write_text("{}")
        environment = {**os.environ, "GCOV_PREFIX": folder, "CUFILE_ENV_PATH_JSON": str(settings)}
        subprocess.run([str(BUILD / "hops/program"), path, until, f"{folder}/file"], env=environment, check=True)
        counters = sorted(Path(folder).rglob("obj/user/hops/**/*.gcda"))
        for counter in counters:
            # The folder in which it was compiled need not be this one: ccache.
            notes = BUILD / "obj/user/hops" / counter.as_posix().rpartition("/obj/user/hops/")[2]
            counter.with_suffix(".gcno").symlink_to(notes.with_suffix(".gcno"))
        out = subprocess.run(["gcov", "--json-format", "--stdout", "--demangled-names", *map(str, counters)],
                             cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    for answer in (json.loads(line) for line in out.splitlines() if line.startswith("{")):
        for file in answer["files"]:
            path_of = CUFILE / file["file"].rpartition("cufile/")[2]
            if "cufile/" not in file["file"] or not path_of.is_file():
                continue
            text = path_of.read_text().splitlines()
            for function in file["functions"]:
                if function["execution_count"] and has_a_body(
                        "\n".join(text[function["start_line"] - 1:function["end_line"]])):
                    name = path_of.relative_to(CUFILE).as_posix()
                    found.setdefault(name, set()).add(short(function["demangled_name"]))
    return found


def main() -> int:
    status = 0
    for read, limit in LIMITS.items():
        files = entered(*read)
        print(f"{' '.join(read)}: {len(files)} files, limit {limit}")
        for name, functions in sorted(files.items()):
            print(f"  {name}: {', '.join(sorted(functions))}")
        if not files or len(files) > limit:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
