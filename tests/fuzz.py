#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make fuzz`: one long run of tests/guest/face/fuzz.sh, or repeated runs of a program from a file.

Environment: K=kernel of the lab, DEBUG=0 for the plain kernel (without KCOV, so without coverage, but faster),
FUZZ_SECONDS, SEED, FAST=1 for the debug kernel without kmemleak and object debugging, PROGRAM=file and REPEAT.
Programs worth keeping are added to build/fuzz/corpus, with which the next run begins.
"""
from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "qemu"))
import lab  # noqa: E402

HOME = lab.BUILD / "fuzz"
CORPUS = HOME / "corpus"
SETTLING = 300  # seconds for boot and shutdown, in addition to FUZZ_SECONDS


class Listener:
    """Prints progress, and keeps the programs that the guest sends."""

    def __init__(self) -> None:
        self.last = ""
        self.kept = 0
        self.parts: dict[str, list[str]] = {}  # by worker

    def say(self, line: str) -> None:
        if line.startswith("#+ "):
            worker, _, text = line[3:].partition(" ")
            if text == ".":
                self.keep("\n".join(self.parts.pop(worker, [])) + "\n")
            else:
                self.parts.setdefault(worker, []).append(text)
        elif " executions, " in line:
            self.last = line[2:]
            print(f"==> {self.last}", flush=True)
        elif not re.match(r"(begin|end|check|verdict|exit|1\.\.)", line):
            print(line, flush=True)

    def keep(self, program: str) -> None:
        CORPUS.mkdir(parents=True, exist_ok=True)
        (CORPUS / f"{hashlib.sha256(program.encode()).hexdigest()[:12]}.txt").write_text(program)
        self.kept += 1


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    variant = "plain" if os.environ.get("DEBUG") == "0" else "debug"
    kernel = lab.ready_kernel(os.environ.get("K") or lab.NEWEST, variant)
    seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
    seed = os.environ.get("SEED") or "1"
    how = f"run seconds={seconds} seed={seed} show=1 costs=1"
    if program := os.environ.get("PROGRAM"):
        how = f"replay repeat={os.environ.get('REPEAT') or 1} {Path(program).resolve()}"
    test = lab.Test.named("fuzz")
    test = replace(test, notes=test.notes | {"timeout": str(seconds + SETTLING)})
    topology = lab.Topology.load("switch")
    # These two take three fifths of a call's time on the debug kernel; its sanitizers and lockdep stay.
    if os.environ.get("FAST") == "1":
        topology = replace(topology, cmdline=f"{topology.cmdline} kmemleak=off no_debug_objects")
    listener = Listener()
    more = str(CORPUS) if CORPUS.is_dir() and not program else ""
    guest = lab.Guest(kernel, topology, [test], HOME / kernel.name, gpu_mib=64,
                      ram_mib=1536 if variant == "debug" else 1024, patience=180, say=listener.say,
                      env={"LAB_FUZZ": how, "LAB_FUZZ_CORPUS": more})
    print(f"==> kernel {kernel.name}: {how}", flush=True)
    outcome = asyncio.run(lab.boot(guest))
    for reason in outcome.reasons:
        print(f"FAILED {reason}")
    print(f"{listener.last}; {listener.kept} programs added to {CORPUS}")
    if outcome.ok:
        for path in (*guest.out.glob("*.img"), guest.path("gpu0")):
            path.unlink()
        return 0
    last = guest.out / "programs.txt"
    last.write_text(subprocess.run([str(lab.BUILD / "bin/fuzz"), "decode", str(guest.path("gpu0"))],
                                   capture_output=True, text=True).stdout)
    print(f"the last programs are in {last}; those of one world in a file of their own: make fuzz PROGRAM=that-file REPEAT=100")
    return 1


if __name__ == "__main__":
    lab.as_command(main)
