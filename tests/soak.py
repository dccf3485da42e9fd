#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make soak`: a long run of tests/guest/io/verify.sh, compared by the host in each round.

Environment: K=kernel of the lab, DEBUG=1|kcsan|rt, OPS=total operations, SEED=another random stream.
"""
from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "qemu"))
import lab  # noqa: E402

PROCESSES = 4            # verify.sh
PER_ROUND = 1000         # operations of one process between two comparisons by the host
HOURS = 12
DEFAULT = {"plain": 200_000, **dict.fromkeys(lab.SLOW, 20_000)}


class Progress:
    """Prints a line for each round that the host has verified, and the sums."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.start = rounds, time.monotonic()
        self.sums: dict[str, int] = {}

    def say(self, line: str) -> None:
        if found := re.match(r"# ok (\d+) bytes; (.*)", line):
            self.sums["bytes"] = self.sums.get("bytes", 0) + int(found[1])
            for kind, n in re.findall(r"([A-Za-z ]+?) (\d+)", found[2]):
                kind = kind.strip()
                self.sums[kind] = self.sums.get(kind, 0) + int(n)
        elif found := re.match(r"ok \d+ - round (\d+)", line):
            gone = time.monotonic() - self.start
            done = int(found[1])
            print(f"==> [{gone:5.0f} s] round {done} of {self.rounds}, about "
                  f"{gone / done * (self.rounds - done) / 60:.0f} min left", flush=True)
        elif line.startswith(("#", "not ok", "Bail out!")):
            print(line, flush=True)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    k, variant = os.environ.get("K") or lab.NEWEST, lab.variant_of(os.environ.get("DEBUG"))
    operations = int(os.environ.get("OPS") or DEFAULT[variant])
    seed = os.environ.get("SEED") or "1"
    rounds = -(-operations // (PROCESSES * PER_ROUND))
    kernel = lab.ready_kernel(k, variant)
    test = lab.Test.named("verify")
    test = replace(test, notes=test.notes | {"timeout": str(HOURS * 3600)})
    progress = Progress(rounds)
    guest = lab.Guest(kernel, lab.Topology.load("disks"), [test], lab.BUILD / "soak" / kernel.name,
                      ram_mib=1024 if variant == "plain" else 1536, patience=180, say=progress.say,
                      env={"LAB_SEED": seed, "LAB_ROUNDS": str(rounds), "LAB_OPERATIONS": str(PER_ROUND)})
    print(f"==> kernel {kernel.name}, seed {seed}: {rounds} rounds of {PROCESSES} x {PER_ROUND} operations", flush=True)
    outcome = asyncio.run(lab.boot(guest))
    print("in all: " + ", ".join(f"{kind} {n}" for kind, n in progress.sums.items()))
    for reason in outcome.reasons:
        print(f"FAILED {reason}")
    done = sum(n for kind, n in progress.sums.items() if kind.split()[0] in ("read", "write", "append", "ring", "proxy"))
    if not outcome.ok:
        print(f"wrong on {kernel.name}: logs and images in {guest.out}")
        return 1
    for path in (*guest.out.glob("*.img"), guest.path("gpu0"), guest.out / "replay.state"):
        path.unlink()
    print(f"{done} operations on {kernel.name} with seed {seed}, no wrong byte, {outcome.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    lab.as_command(main)
