#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make demo-rdma`: reads a file from one guest's drives into another guest's GPU by RDMA, and proves it.

A storage node has FILE on an xfs volume, exported by NVMe over RDMA, and in a directory, exported by NFS over RDMA. A
GPU node reads it into its GPU's memory by each way, and writes a file of that size from there. Between the two the CPU copies,
since their network cards are software. Then one guest does the same with itself by a card of the lab whose own DMA engine
moves the bytes, of which QEMU has a record. The proof comes from outside the guests: the file that backs the GPU's memory
is compared with FILE byte by byte, and the images of the drives with the pattern that was written, which was nowhere on them.
"""
from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import demo
import lab
import pair

OUT = lab.BUILD / "demo-rdma"
DEFAULT_SIZE = 32 * lab.MIB + 12345  # a partial page at the end
XFS_MIB = 320                        # the minimum of mkfs.xfs is 300


@dataclass(frozen=True)
class Way:
    title: str
    where: str
    disk: str
    by_card: bool = False


WAYS = {"nvme": Way("NVMe over RDMA", "xfs on its drive", "disk0"),
        "nfs": Way("NFS over RDMA, v4.2", "a directory of its other drive, ext4 there", "disk1")}
CARD_WAYS = {"card-nvme": Way("NVMe over RDMA", "xfs on a drive", "disk1", True),
             "card-nfs": Way("NFS over RDMA, v4.2", "a directory of another drive, ext4 there", "disk2", True)}

COPY = "pattern:21"                  # written from the GPU's memory into a new file
PROOFS = ("read", "beside", "write", "drive")  # of each way
DMA_PROOFS = ("read DMA", "write DMA")         # of each way by the card


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

    def __init__(self, path: Path, size: int, near: lab.Guest, far: lab.Guest, ways: dict[str, Way]) -> None:
        self.path, self.size, self.ways = path, size, ways
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
        print(f"==> {self.ways[name].title}: {self.ways[name].where}", flush=True)
        # The bytes that one way has moved must not prove the next one.
        said = await lab.said_by(*demo.gpu_fill(self.bar))
        self.fresh = name if said == "ok" else ""
        return said

    async def took(self, rest: str) -> str:
        name, dma, text = rest.split(" ", 2)
        cp = json.loads(text)
        if "error" in cp:
            raise lab.LabError(cp["error"]["message"])
        if self.fresh != name:
            raise lab.LabError("the GPU's memory was not filled before")
        at, moved = cp["bar_offset"], (cp["bytes"], cp["bytes_host"])
        wanted = (self.size, 0 if self.ways[name].by_card else self.size)
        leaf = f", {cp['leaf']['name']}" if cp["leaf"] else ""
        self.table.row("read", f"{cp['bytes']} bytes of {cp['filesystem']}{leaf}; mapping: {cp['map']}; route: {cp['route']}")
        self.table.row("time", f"{cp['seconds']:.3f} s, an emulator's: it says nothing about hardware")
        wrong = await asyncio.to_thread(demo.compare, self.bar, at, self.size, str(self.path), 0)
        self.proof(f"{name} read", "compare", not wrong and moved == wanted,
                   f"all {self.size} bytes at {at:#x} of {demo.shown(self.bar)} equal FILE's", wrong or f"moved {moved}")
        # A partial page is bounced through the page after the buffer.
        near = demo.PAGE if self.size % demo.PAGE else 0
        behind, around = at + demo.round_up(self.size, demo.PAGE) + near, demo.GPU_MIB * lab.MIB
        wrong = await asyncio.to_thread(self.untouched, 0, at) or await asyncio.to_thread(self.untouched, behind, around)
        self.proof(f"{name} beside", "beside", not wrong, f"the {around - behind + at} bytes around hold what they held", wrong)
        self.look_at_dma(name, "read", dma, self.size)
        return "ok"

    def look_at_dma(self, name: str, what: str, dma: str, least: int) -> None:
        if self.ways[name].by_card:
            there, _, elsewhere = dma.partition("/")
            # The card copies from or to the memory of the target, which is this guest's. The target's own drive would not.
            holds = there.isdigit() and least <= int(there) <= demo.round_up(self.size, demo.PAGE) and int(elsewhere) >= least
            self.proof(f"{name} {what} DMA", "DMA", holds,
                       f"{there} bytes at the GPU's BAR by DMA of a PCI function, {elsewhere} in the guest's memory (QEMU's own record)",
                       f"QEMU recorded {there} bytes at the BAR and {elsewhere} elsewhere")

    def untouched(self, begin: int, end: int) -> str:
        return demo.compare(self.bar, begin, end - begin, f"pattern:{demo.SEED}", begin)

    async def gave(self, rest: str) -> str:
        name, dma, error, reason, done, direct, near, by_host, _ = rest.split()
        # A partial page that is written passes through the host.
        part = self.size % demo.PAGE
        wanted = (self.size, part if self.ways[name].by_card else self.size)
        self.proof(f"{name} write", "write", (error, int(done), int(by_host)) == ("0", *wanted),
                   f"{done} bytes from the GPU's memory, where the host had put a pattern; {by_host} passed through host memory",
                   f"error {error}, {done} bytes, {by_host} of them through the host")
        self.look_at_dma(name, "write", dma, self.size - part)
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
        for name, way in self.ways.items():
            image, seen, wrong = self.far.path(way.disk), 0, ""
            for at, place, length in self.places.get(name, []):
                length = min(length, self.size - at)
                wrong = wrong or demo.compare(image, place, length, COPY, at)
                seen += length
            self.proof(f"{name} drive", way.title.split()[0], not wrong and seen == self.size,
                       f"all {seen} bytes of the new file, in {len(self.places.get(name, []))} extents of "
                       f"{demo.shown(image)}, are the pattern's", wrong or f"{seen} bytes of {self.size} have a place there")


def judge(witness: Witness, outcome: lab.Outcome) -> None:
    if not witness.places:
        for note in outcome.notes:
            print(f"  {note}", file=sys.stderr)
        raise demo.Failed("; ".join(map(str, outcome.reasons)) + f" (logs in {demo.shown(OUT)})")
    print("==> no guest is left: what is on the drives")
    witness.look_at_drives()
    proofs = [f"{name} {what}" for name, way in witness.ways.items() for what in PROOFS + (DMA_PROOFS if way.by_card else ())]
    missing = [proof for proof in proofs if proof not in witness.seen]
    if missing:
        raise demo.Failed(f"not proven: {', '.join(missing)} (logs in {demo.shown(OUT)})")
    if outcome.reasons:
        raise demo.Failed(f"the bytes are right, the guests' end was not: {'; '.join(map(str, outcome.reasons))}")


def env_of(size: int) -> dict[str, str]:
    return {"DEMO_SIZE": str(size), "DEMO_ROOM": str(demo.round_up(size, demo.PAGE)), "DEMO_COPY": COPY}


def show_pair(path: Path, size: int, kernel: lab.Kernel, topology: lab.Topology) -> None:
    near = lab.Guest(kernel, topology, [lab.Test.load(lab.ROOT / "qemu/demo-rdma-guest.sh")], OUT / "gpu",
                     ready_made=True, patience=180, env=env_of(size))
    far = lab.Guest(kernel, lab.Topology.load("storage"), [lab.Test.load(lab.ROOT / "tests/peer/store.sh")], OUT / "storage",
                    ready_made=True, patience=180)
    print(f"==> preparing: {size} bytes of {path} onto two NVMe drives of a storage node, xfs and ext4; "
          f"{demo.GPU_MIB} MiB of GPU memory", flush=True)
    with demo.filled_gpu(near):
        for disk in near.topology.disks:
            lab.make_disk(near.path(disk), 64)
        far.out.mkdir(parents=True, exist_ok=True)
        lab.sparse(far.path("gpu0"), 1)
        put_on_xfs(path, far.path("disk0"), 2 * (size // lab.MIB) + 96)
        demo.put_on_ext4(path, far.path("disk1"), 2 * (size // lab.MIB) + 128)
    print("==> booting two guests, joined by a cable: the storage node, and a GPU node. Their network cards are software: the CPU copies",
          flush=True)
    witness = Witness(path, size, near, far, WAYS)
    judge(witness, asyncio.run(lab.again_if_still(lambda: pair.Pair(lab.Boot(near), lab.Boot(far)).run(), demo.tell)))
    for guest in (near, far):
        for disk in guest.topology.disks:
            guest.path(disk).unlink()


def card_ways(k: str) -> dict[str, Way]:
    lacking = k in lab.LACKS["nvme-rdma-p2p"].kernels
    return {name: way for name, way in CARD_WAYS.items() if name != "card-nvme" or not lacking}


def show_card(path: Path, size: int, kernel: lab.Kernel) -> None:
    ways = card_ways(kernel.k)
    guest = lab.Guest(kernel, lab.Topology.load("disks"), [lab.Test.load(lab.ROOT / "qemu/demo-card-guest.sh")], OUT / "card",
                      trace=True, ready_made=True, patience=180,
                      env=env_of(size) | {"DEMO_WAYS": " ".join(name.removeprefix("card-") for name in ways)})
    lab.make_test_modules(kernel)
    with demo.filled_gpu(guest):
        for disk in guest.topology.disks:
            lab.make_disk(guest.path(disk), 64, lab.SCRATCH_MIB)
        put_on_xfs(path, guest.path("disk1"), 2 * (size // lab.MIB) + 96)
        demo.put_on_ext4(path, guest.path("disk2"), 2 * (size // lab.MIB) + 128)
    print("==> booting one guest with the drives, the GPU and a card of the lab, whose own DMA engine moves the bytes", flush=True)
    if len(ways) < len(CARD_WAYS):
        print(f"==> not by NVMe on {kernel.k}: {lab.LACKS['nvme-rdma-p2p'].why}", flush=True)
    witness = Witness(path, size, guest, guest, ways)
    judge(witness, asyncio.run(lab.boot(guest, demo.tell)))
    for disk in guest.topology.disks:
        guest.path(disk).unlink()


def show(path: Path, size: int, kernel: lab.Kernel, topology: lab.Topology) -> None:
    start = time.monotonic()
    version = (kernel.home / "version").read_text().split()
    print(f"==> kernel {version[1]} (package {version[0]})")
    show_pair(path, size, kernel, topology)
    show_card(path, size, kernel)
    print(f"==> proven, {time.monotonic() - start:.0f} s from preparing on")


def main() -> int:
    args = demo.arguments(__doc__ or "", f"one of {DEFAULT_SIZE} bytes that it makes").parse_args()

    def run() -> None:
        path = (args.file or default_file()).absolute()
        show(path, demo.check_file(path), demo.chosen_kernel(args.kernel), lab.Topology.load(args.topology))

    return demo.status_of(lambda: demo.check_file(args.check_file) if args.check_file else run())


if __name__ == "__main__":
    sys.exit(main())
