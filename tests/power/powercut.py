#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Power cuts during direct writes: powercut.py [-k KERNEL] [--rounds N] [--seed S] [--lie]

A round is two boots. In the first, powercut.cpp writes to files on ext4 and xfs from a buffer, syncs now and then, and
reports its writes and syncs. At a random moment QEMU is killed, and the drives' caches are lost (drive.py). The second
boot mounts the filesystems and reports each sector. The filesystems must be clean. Each sector must contain a write to
it, not older than the last sync.

--lie: the guest reports syncs that it did not do. Then a round must fail.
"""
from __future__ import annotations

import argparse
import asyncio
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "qemu"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import lab  # noqa: E402
from drive import Drive  # noqa: E402

MIB = 320                # of each drive; the minimum of mkfs.xfs is 300
GPU_MIB = 64
TOPOLOGY = "disks"
DISKS = ("disk0", "disk1")  # ext4, xfs


@dataclass
class Told:
    """The guest's reports before the power cut: for each file, the oldest valid version of each sector."""
    written: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)  # version -> (first sector, sectors)
    synced: dict[str, dict[int, int]] = field(default_factory=dict)               # sector -> version
    syncs: int = 0

    def line(self, text: str) -> None:
        if found := re.match(r"# w (\S+) (\d+) (\d+) (\d+)$", text):
            self.written.setdefault(found[1], {})[int(found[2])] = (int(found[3]), int(found[4]))
        elif found := re.match(r"# ([sd]) (\S+) (\d+)$", text):
            self.sync(found[2], int(found[3]), found[1] == "d")

    def sync(self, file: str, version: int, only: bool) -> None:
        """A sync of all writes up to this one, or of this one only."""
        self.syncs += 1
        sectors = self.synced.setdefault(file, {})
        for number, (first, count) in self.written.get(file, {}).items():
            if number == version or (number < version and not only):
                for sector in range(first, first + count):
                    sectors[sector] = max(sectors.get(sector, 0), number)


def judge(told: Told, found: dict[str, dict[int, int]]) -> list[str]:
    """The faults of the sectors after the power cut: file -> sector -> version, 0 for zeros, -1 for invalid
    contents."""
    wrong = []
    for file, sectors in told.synced.items():
        here = found.get(file, {})
        for sector, version in sectors.items():
            if here.get(sector, 0) < version and here.get(sector, 0) != -1:
                wrong.append(f"{file}: sector {sector} is of write {here.get(sector, 0)}, {version} was synced")
    wrong += [f"{file}: sector {sector} is nothing that was ever written there"
              for file, here in found.items() for sector, version in here.items() if version == -1]
    return wrong


def found_in(notes: list[str]) -> dict[str, dict[int, int]]:
    """Parses lines of "powercut check": ranges of sectors of one write."""
    found: dict[str, dict[int, int]] = {}
    for note in notes:
        if run := re.match(r"# r (\S+) (\d+) (\d+) (-?\d+)$", note):
            for sector in range(int(run[2]), int(run[2]) + int(run[3])):
                found.setdefault(run[1], {})[sector] = int(run[4])
    return found


def guest(kernel: lab.Kernel, out: Path, script: str, **more: object) -> lab.Guest:
    test = lab.Test.load(lab.ROOT / "tests/power" / script)
    return lab.Guest(kernel, lab.Topology.load(TOPOLOGY), [test], out, gpu_mib=GPU_MIB, ready_made=True,
                     **more)  # type: ignore[arg-type]


def make_images(first: lab.Guest) -> None:
    first.out.mkdir(parents=True, exist_ok=True)
    lab.sparse(first.path("gpu0"), GPU_MIB)
    for disk in first.topology.disks:
        lab.sparse(first.path(disk), MIB if disk in DISKS else 64)
    lab.make_disk(first.path("disk0"), MIB)
    subprocess.run([shutil.which("mkfs.xfs") or "/sbin/mkfs.xfs", "-q", "-f", str(first.path("disk1"))], check=True)


async def write_and_cut(first: lab.Guest, lots: random.Random, told: Told) -> tuple[lab.Outcome, list[str]]:
    """The first boot, until the power cut: its outcome, and its failures before that."""
    drives = {disk: Drive(first.path(disk)) for disk in DISKS}
    # The path of a Unix socket must be short.
    sockets = {disk: Path(f"/tmp/peerdma-{first.out.name[-20:]}-{lots.getrandbits(32):x}-{disk}") for disk in DISKS}
    for disk, drive in drives.items():
        await drive.listen(sockets[disk])
        first.drives[disk] = f"format=raw,cache=writeback,file.driver=nbd,file.server.type=unix," \
                             f"file.server.path={sockets[disk]}"
    boot = lab.Boot(first)
    last = lots.randrange(20, 120)  # number of syncs before the power cut

    def say(text: str) -> None:
        before = told.syncs
        told.line(text)
        if before < last == told.syncs:
            asyncio.get_running_loop().call_later(lots.random() * 0.2, boot.cut)

    first.say = say
    try:
        outcome = await boot.run()
    finally:
        for disk, drive in drives.items():
            drive.cut(lots)
            await drive.close()
            sockets[disk].unlink(missing_ok=True)
    wrong = [str(reason) for reason in outcome.reasons if reason.kind == "splat"]
    wrong += [f"the guest: {line.text}" for line in outcome.lines if not line.ok]
    if told.syncs < last:
        wrong.append(f"the guest ended by itself after {told.syncs} syncs of {last}")
        wrong += [said for reason in outcome.reasons for said in (str(reason), *reason.notes)]
        wrong += [f"| {text}" for text in outcome.serial_tail()]
    if not all(drive.flushes for drive in drives.values()):
        wrong.append("nothing was flushed")
    return outcome, wrong


async def one_round(kernel: lab.Kernel, out: Path, seed: int, lie: bool = False,
                    tell: Callable[[str], object] = print) -> tuple[str, list[str]]:
    """Runs one round; returns its description and its faults."""
    first = guest(kernel, out, "write.sh", env={"LAB_SEED": str(seed), "LAB_LIE": "1" if lie else ""})
    told, wrong = Told(), [""]

    async def cut() -> lab.Outcome:
        nonlocal told, wrong
        told = Told()
        make_images(first)
        outcome, wrong = await write_and_cut(first, random.Random(seed), told)
        return outcome

    await lab.again_if_still(cut, tell)
    if wrong:
        return "", wrong
    for log in ("serial", "tap"):
        (out / f"{log}.log").rename(out / f"{log}-1.log")
    outcome = await lab.boot(guest(kernel, out, "check.sh"), tell)
    found = found_in(outcome.notes)
    wrong = judge(told, found) + [str(reason) for reason in outcome.reasons]
    wrong += [f"afterwards: {line.text} {line.notes}" for line in outcome.lines if not line.ok]
    writes = sum(len(of) for of in told.written.values())
    sectors = sum(len(of) for of in told.synced.values())
    return (f"power cut after {writes} writes and {told.syncs} syncs of {len(told.synced)} files: filesystems clean, "
            f"{sectors} sectors that were synced are there"), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default=lab.NEWEST, help=f"kernel: {' or '.join(lab.KERNELS)}")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--lie", action="store_true", help="the guest says that it has synced, and has not")
    parser.add_argument("-o", type=Path, default=lab.RUNS / "power", help="folder for logs and images, below lab/ of the build folder")
    args = parser.parse_args()
    out = lab.folder_of_a_run(args.o)
    kernel = lab.ready_kernel(args.k, "plain")
    failed = 0
    for seed in range(args.seed, args.seed + args.rounds):
        says, wrong = asyncio.run(one_round(kernel, out / kernel.name, seed, args.lie))
        print(f"{kernel.name}, seed {seed}: {f'WRONG: {len(wrong)} things' if wrong else says}", flush=True)
        for text in wrong[:60]:
            print(f"  {text}", flush=True)
        failed += bool(wrong)
    print(f"{args.rounds} power cuts, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    lab.as_command(main)
