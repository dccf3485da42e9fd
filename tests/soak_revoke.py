#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make soak-revoke`: a long run of tests/guest/lifetime/revoke.sh.

Environment: K=kernel of the lab, DEBUG=1|kcsan|rt, N=rounds (a tenth for those of device_del, which take 5 s),
EVENTS=all or names of revoke.cpp: "unbind drive:sync".
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

HOURS = 12


class Progress:
    """Prints a line for each finished round, and all errors."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.done = 0

    def say(self, line: str) -> None:
        if found := re.match(r"# round (\d+) of (\d+)$", line):
            self.done, rounds = int(found[1]), int(found[2])
            gone = time.monotonic() - self.start
            print(f"==> [{gone:5.0f} s] round {self.done} of {rounds}, about "
                  f"{gone / self.done * (rounds - self.done) / 60:.0f} min left", flush=True)
        elif line.startswith(("#", "ok", "not ok", "Bail out!")):
            print(line, flush=True)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    k, variant = os.environ.get("K") or lab.NEWEST, lab.variant_of(os.environ.get("DEBUG"))
    rounds, events = os.environ.get("N") or "200", os.environ.get("EVENTS") or "all"
    kernel = lab.ready_kernel(k, variant)
    test = lab.Test.named("revoke")
    test = replace(test, notes=test.notes | {"timeout": str(HOURS * 3600)})
    progress = Progress()
    guest = lab.Guest(kernel, lab.Topology.load("switch"), [test], lab.BUILD / "soak" / f"revoke-{kernel.name}",
                      ram_mib=1024 if variant == "plain" else 1536, patience=180, say=progress.say,
                      env={"LAB_ROUNDS": rounds, "LAB_EVENTS": events})
    print(f"==> kernel {kernel.name}: {rounds} rounds of {events}", flush=True)
    outcome = asyncio.run(lab.boot(guest))
    for reason in outcome.reasons:
        print(f"FAILED {reason}")
    if not outcome.ok:
        print(f"wrong on {kernel.name} after {progress.done} whole rounds: logs in {guest.out}")
        return 1
    for path in (*guest.out.glob("*.img"), guest.path("gpu0")):
        path.unlink()
    times = [re.search(r", (\d+) times?$", line.text) for line in outcome.lines]
    print(f"{sum(int(found[1]) for found in times if found)} events in {len(outcome.lines)} pairs of event and state on "
          f"{kernel.name}, nothing wrong, {outcome.seconds:.0f} s")
    return 0


if __name__ == "__main__":
    lab.as_command(main)
