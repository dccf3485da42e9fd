#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make demo-rdma`: reads a file from one guest's drives into another guest's GPU by RDMA, and proves it.

A storage node has FILE on an xfs volume, exported by NVMe over RDMA, and in a directory, exported by NFS over RDMA. A
GPU node reads it into its GPU's memory by each way, and writes a copy of it from there. The proof comes from outside
the guests: the file that backs the GPU's memory and the images of the storage node's drives are compared with FILE
byte by byte.
"""
from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import demo
import lab
import pair

OUT = lab.BUILD / "demo-rdma"
DEFAULT_SIZE = 32 * lab.MIB + 12345  # a partial page at the end
XFS_MIB = 320                        # the minimum of mkfs.xfs is 300
WAYS = {"nvme": ("NVMe over RDMA", "xfs on its drive", "disk0"),
        "nfs": ("NFS over RDMA, v4.2", "a directory of its other drive, ext4 there", "disk1")}

PROOFS = ("read", "beside", "write", "drive")  # of each way


def default_file() -> Path:
    path = OUT / "file"
    OUT.mkdir(parents=True, exist_ok=True)
    lab.sparse(path, 0)
    subprocess.run([str(lab.pattern_binary()), "fill", str(path), "0", str(DEFAULT_SIZE), "pattern:1"], check=True)
    return path


def put_on_xfs(path: Path, image: Path, mib: int) -> None:
    """An image with two allocation groups. mkfs.xfs stores FILE in the first one, which has room for it in one
    extent."""
    lab.sparse(image, 2 * max(mib, XFS_MIB // 2))
    layout = image.with_name("layout")
    with open(path, "rb") as f:
        layout.write_text(f"/\n0 0\nd--755 0 0\nfile ---644 0 0 /proc/self/fd/{f.fileno()}\n$\n")
        run = subprocess.run([shutil.which("mkfs.xfs") or "/sbin/mkfs.xfs", "-q", "-d", "agcount=2", "-p", str(layout),
                              str(image)], text=True, pass_fds=[f.fileno()], capture_output=True)
    if run.returncode:
        raise demo.Failed(f"preparing the xfs volume: {run.stderr.strip()}")


class Witness:
    """The host's part: verifies each step of the GPU node from outside, and prints the result."""

    def __init__(self, path: Path, size: int, near: lab.Guest, far: lab.Guest) -> None:
        self.path, self.size = path, size
        self.bar = near.path("gpu0")
        self.far = far
        self.table = demo.Table()
        self.fresh = ""            # the way for which the GPU's memory was filled with the pattern
        self.seen: list[str] = []  # proofs that succeeded
        self.places: dict[str, list[tuple[int, int, int]]] = {}
        near.answers |= {"log": self.log, "way": self.way, "took": self.took, "gave": self.gave, "placed": self.placed}

    async def log(self, rest: str) -> str:
        self.table.row("log", rest)
        return "ok"

    async def way(self, name: str) -> str:
        print(f"==> {WAYS[name][0]}: {WAYS[name][1]}", flush=True)
        # The bytes that one way has moved must not prove the next one.
        said = await lab.said_by(*demo.gpu_fill(self.bar))
        self.fresh = name if said == "ok" else ""
        return said

    async def took(self, rest: str) -> str:
        name, _, text = rest.partition(" ")
        cp = json.loads(text)
        if "error" in cp:
            raise lab.LabError(cp["error"]["message"])
        if self.fresh != name:
            raise lab.LabError("the GPU's memory was not filled before")
        at, moved = cp["bar_offset"], (cp["bytes"], cp["bytes_host"])
        leaf = f", {cp['leaf']['name']}" if cp["leaf"] else ""
        self.table.row("read", f"{cp['bytes']} bytes of {cp['filesystem']}{leaf}; mapping: {cp['map']}; route: {cp['route']}")
        self.table.row("time", f"{cp['seconds']:.3f} s, an emulator's: it says nothing about hardware")
        wrong = await asyncio.to_thread(demo.compare, self.bar, at, self.size, str(self.path), 0)
        self.proof(f"{name} read", "compare", not wrong and moved == (self.size, self.size),
                   f"all {self.size} bytes at {at:#x} of {demo.shown(self.bar)} equal FILE's", wrong or f"moved {moved}")
        # A partial page is bounced through the page after the buffer.
        near = demo.PAGE if self.size % demo.PAGE else 0
        behind, around = at + demo.round_up(self.size, demo.PAGE) + near, demo.GPU_MIB * lab.MIB
        wrong = await asyncio.to_thread(self.untouched, 0, at) or await asyncio.to_thread(self.untouched, behind, around)
        self.proof(f"{name} beside", "beside", not wrong, f"the {around - behind + at} bytes around hold what they held", wrong)
        return "ok"

    def untouched(self, begin: int, end: int) -> str:
        return demo.compare(self.bar, begin, end - begin, f"pattern:{demo.SEED}", begin)

    async def gave(self, rest: str) -> str:
        name, error, reason, done, direct, near, by_host, _ = rest.split()
        self.proof(f"{name} write", "write", (error, int(done), int(by_host)) == ("0", self.size, self.size),
                   f"{done} bytes from the GPU's memory, where the host had put FILE's", f"error {error}, {done} bytes")
        return "ok"

    async def placed(self, rest: str) -> str:
        name, *numbers = rest.split()
        places = [int(number) for number in numbers]
        self.places[name] = list(zip(places[::3], places[1::3], places[2::3]))
        return "ok"

    def proof(self, what: str, row: str, holds: bool, good: str, bad: str) -> None:
        self.table.proof(row, holds, good, bad)
        self.seen += [what] if holds else []

    def look_at_drives(self) -> None:
        """Verifies the drives after both guests have ended, when nothing can change any more."""
        for name, (_, _, disk) in WAYS.items():
            image, seen, wrong = self.far.path(disk), 0, ""
            for at, place, length in self.places.get(name, []):
                length = min(length, self.size - at)
                wrong = wrong or demo.compare(image, place, length, str(self.path), at)
                seen += length
            self.proof(f"{name} drive", name, not wrong and seen == self.size,
                       f"all {seen} bytes of the copy, at {len(self.places.get(name, []))} places of "
                       f"{demo.shown(image)}, equal FILE's", wrong or f"{seen} bytes of {self.size} have a place there")


def show(path: Path, size: int, kernel: lab.Kernel, topology: lab.Topology) -> None:
    start = time.monotonic()
    room = demo.round_up(size, demo.PAGE)
    near = lab.Guest(kernel, topology, [lab.Test.load(lab.ROOT / "qemu/demo-rdma-guest.sh")], OUT / "gpu",
                     ready_made=True, patience=180, env={"DEMO_SIZE": str(size), "DEMO_ROOM": str(room)})
    far = lab.Guest(kernel, lab.Topology.load("storage"), [lab.Test.load(lab.ROOT / "tests/peer/store.sh")], OUT / "storage",
                    ready_made=True, patience=180)
    version = (kernel.home / "version").read_text().split()
    print(f"==> preparing: {size} bytes of {path} onto two NVMe drives of a storage node, xfs and ext4; "
          f"{demo.GPU_MIB} MiB of GPU memory", flush=True)
    with demo.filled_gpu(near):
        for disk in near.topology.disks:
            lab.make_disk(near.path(disk), 64)
        far.out.mkdir(parents=True, exist_ok=True)
        lab.sparse(far.path("gpu0"), 1)
        put_on_xfs(path, far.path("disk0"), 2 * (size // lab.MIB) + 96)
        demo.put_on_ext4(path, far.path("disk1"), 2 * (size // lab.MIB) + 128)
    source = near.out / "source"
    source.unlink(missing_ok=True)
    source.symlink_to(path)
    print(f"==> booting two guests with kernel {version[1]} (package {version[0]}), joined by a cable: the storage node, "
          "and a GPU node", flush=True)
    witness = Witness(path, size, near, far)
    outcome = asyncio.run(lab.again_if_still(lambda: pair.Pair(lab.Boot(near), lab.Boot(far)).run(), demo.tell))
    if not witness.places:
        for note in outcome.notes:
            print(f"  {note}", file=sys.stderr)
        raise demo.Failed("; ".join(map(str, outcome.reasons)) + f" (logs in {demo.shown(OUT)})")
    print("==> both guests are gone: what is on the storage node's drives")
    witness.look_at_drives()
    missing = [f"{name} {what}" for name in WAYS for what in PROOFS if f"{name} {what}" not in witness.seen]
    if missing:
        raise demo.Failed(f"not proven: {', '.join(missing)} (logs in {demo.shown(OUT)})")
    if outcome.reasons:
        raise demo.Failed(f"the bytes are right, the guests' end was not: {'; '.join(map(str, outcome.reasons))}")
    for guest in (near, far):
        for disk in guest.topology.disks:
            guest.path(disk).unlink()
    print(f"==> proven, {time.monotonic() - start:.0f} s from preparing on")


def main() -> int:
    args = demo.arguments(__doc__ or "", f"one of {DEFAULT_SIZE} bytes that it makes").parse_args()

    def run() -> None:
        path = (args.file or default_file()).absolute()
        show(path, demo.check_file(path), demo.chosen_kernel(args.kernel), lab.Topology.load(args.topology))

    return demo.status_of(lambda: demo.check_file(args.check_file) if args.check_file else run())


if __name__ == "__main__":
    sys.exit(main())
