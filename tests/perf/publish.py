#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The cost of publishing 1 to 200 GiB of a BAR in an emulated guest: seconds, and guest memory.

    publish.py [-k KERNEL] [-n ROUNDS] [GIB ...]

The BAR is a sparse file. The guest has 5 GiB of memory: 200 GiB need 3.1 GiB of struct pages.
"""
from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "qemu"))
import lab  # noqa: E402

GIB = 1 << 30
HEADS = ("BAR, GiB", "publish, s", "memory, MiB", "of it struct pages, MiB", "memory, %", "unbind, s")


def spread(fields: list[str], scale: float, form: str) -> str:
    median, lowest, highest = (format(float(field) / scale, form) for field in fields)
    return f"{median} ({lowest} to {highest})"


def cells(row: str) -> tuple[str, ...]:
    """A line of publishing.cpp as a row of the table."""
    fields = row.split()
    size, taken = int(fields[0]), int(fields[4])
    return (f"{size // GIB}", spread(fields[1:4], 1, ".2f"), spread(fields[4:7], 1024, ".0f"), f"{int(fields[7]) / 1024:.0f}",
            f"{100 * taken * 1024 / size:.2f}", spread(fields[8:11], 1, ".2f"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default=lab.NEWEST, help=f"kernel: {' or '.join(lab.KERNELS)}")
    parser.add_argument("-n", type=int, default=3, help="rounds of each size")
    parser.add_argument("gib", type=int, nargs="*", default=[1, 8, 64, 200], help="what to publish")
    args = parser.parse_args()
    bar = 1 << (max(args.gib) - 1).bit_length()  # BARs are powers of two
    sizes = " ".join(str(gib * GIB) for gib in args.gib)
    guest = lab.Guest(lab.ready_kernel(args.k, "plain"), lab.Topology.load("switch"), [lab.Test.load(HERE / "publish.sh")],
                      lab.BUILD / "publish", gpu_mib=bar * 1024, ram_mib=5120, patience=180,
                      env={"PUBLISH_ROUNDS": str(args.n), "PUBLISH_SIZES": sizes})
    outcome = asyncio.run(lab.boot(guest))
    rows = [note.removeprefix("# row ") for note in outcome.notes if note.startswith("# row ")]
    if not outcome.ok:
        raise lab.LabError(f"{'; '.join(map(str, outcome.reasons))}, logs in {guest.out}")
    guest.path("gpu0").unlink()
    print(f"# {guest.kernel.release}, {args.n} rounds: median (lowest to highest)\n")
    for line in (HEADS, ("---",) * len(HEADS), *map(cells, rows)):
        print(f"| {' | '.join(line)} |")
    return 0


if __name__ == "__main__":
    lab.as_command(main)
