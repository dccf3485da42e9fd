#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make demo`: reads a host's file from a guest's NVMe drive into a GPU's memory, and proves it.

The proof comes from outside the guest. The file that backs the GPU's memory is compared with FILE byte by byte, the
memory after it must be unchanged, and QEMU's record shows the target of the drive's DMA.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import lab

GPU_MIB = 512
PAGE = 4096
BLOCK = 512
METADATA = 64 * 1024  # bytes that the filesystem may read for its own metadata
SEED = 20   # of the initial pattern in the GPU's memory
OUT = lab.BUILD / "demo"


class Refused(Exception):
    """FILE cannot be used: exit status 2."""


class Failed(Exception):
    """The demo ran and did not show what it should: exit status 1."""


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def default_file() -> Path:
    archives = sorted((lab.CACHE / "source").glob("linux-source-*.tar.xz"), key=lambda p: p.stat().st_mtime)
    if not archives:
        raise Refused("no kernel source archive in the cache to read: give FILE=/some/file")
    return archives[-1]


def check_file(path: Path) -> int:
    """The size of a file that the demo can show."""
    try:
        if path.is_dir():
            raise Refused(f"FILE={path} is a directory")
        if path.exists() and not path.is_file():
            raise Refused(f"FILE={path} is not a regular file")
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
    except OSError as error:
        raise Refused(f"FILE={path} cannot be read: {error.strerror}") from error
    if not size:
        raise Refused(f"FILE={path} is empty")
    # A partial block at the end is bounced through a page after the buffer.
    room = GPU_MIB * lab.MIB - PAGE
    if size > room:
        raise Refused(f"FILE={path} has {size} bytes, the emulated GPU has room for {room}")
    return size


def sha256(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while size and (chunk := f.read(min(size, lab.MIB))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def put_on_ext4(path: Path, image: Path, mib: int) -> None:
    """An ext4 image that contains FILE, made without root and without a guest."""
    lab.make_disk(image, mib)
    with open(path, "rb") as f:
        # By descriptor: debugfs would end the name at a blank.
        wrote = subprocess.run([shutil.which("debugfs") or "/sbin/debugfs", "-w", "-f", "-", str(image)],
                               input=f"write /proc/self/fd/{f.fileno()} file\n", text=True,
                               pass_fds=[f.fileno()], capture_output=True)
    if wrote.returncode or "Allocated inode" not in wrote.stdout:
        raise Failed(f"preparing the drive: {wrote.stderr.strip()}")


def gpu_fill(bar: Path) -> list[str]:
    """The command that fills the GPU's memory with another pattern."""
    return [str(lab.pattern_binary()), "fill", str(bar), "0", str(GPU_MIB * lab.MIB), f"pattern:{SEED}"]


@contextlib.contextmanager
def filled_gpu(guest: lab.Guest) -> Iterator[None]:
    """Fills the GPU's memory with another pattern while the body of the with statement runs."""
    guest.out.mkdir(parents=True, exist_ok=True)
    bar = guest.path("gpu0")
    lab.sparse(bar, GPU_MIB)
    with subprocess.Popen(gpu_fill(bar)) as fill:
        yield
    if fill.returncode:
        raise Failed("preparing the GPU's memory")


def prepare(path: Path, size: int, guest: lab.Guest) -> None:
    with filled_gpu(guest):
        for disk in guest.topology.disks:
            lab.make_disk(guest.path(disk), 64)
        put_on_ext4(path, guest.path("disk0"), size // lab.MIB + 128)


@dataclass
class Told:
    """The guest's results: peerdma cp's JSON, and the host's count of DMA."""
    cp: dict[str, Any]
    dma: tuple[int, int] | None

    @classmethod
    def of(cls, outcome: lab.Outcome) -> Told:
        notes = "\n".join(outcome.notes)
        found = re.search(r"^# cp (\{.*\})$", notes, re.M)
        dma = re.search(r"^# dma ok gpu0 (\d+) elsewhere (\d+)$", notes, re.M)
        return cls(json.loads(found[1]) if found else {}, (int(dma[1]), int(dma[2])) if dma else None)


def compare(bar: Path, offset: int, size: int, source: str, source_offset: int) -> str:
    """"" if every byte is as expected, else the position of the first difference."""
    run = subprocess.run([str(lab.pattern_binary()), "compare", str(bar), str(offset), str(size), source,
                          str(source_offset)], capture_output=True, text=True)
    return "" if run.returncode == 0 else (run.stdout + run.stderr).strip() or f"status {run.returncode}"


class Table:
    def __init__(self) -> None:
        self.bad: list[str] = []

    def row(self, name: str, value: object) -> None:
        print(f"  {name:<10} {value}", flush=True)

    def proof(self, name: str, holds: bool, good: str, bad: str) -> None:
        self.row(name, good if holds else f"FAILED: {bad}")
        if not holds:
            self.bad.append(name)


def show(path: Path, size: int, guest: lab.Guest, told: Told) -> Table:
    cp, table, bar = told.cp, Table(), guest.path("gpu0")
    leaf, provider = cp["leaf"], cp["provider"]
    print("What the guest says:")
    table.row("file", f"{path}, on the guest's {cp['filesystem']}")
    table.row("route", cp["route"])
    table.row("bytes", cp["bytes"])
    table.proof("via host", cp["bytes_host"] == 0, "0 bytes passed through host memory",
                f"{cp['bytes_host']} bytes passed through host memory")
    table.row("backing", f"{leaf['pci']} {leaf['name']}")
    table.row("provider", f"{provider['pci']} BAR {provider['bar']} at offset {cp['bar_offset']:#x}")
    table.row("distance", cp["distance"])
    table.row("mapping", cp["map"])
    table.row("time", f"{cp['seconds']:.3f} s, an emulator's: it says nothing about hardware")

    print("What the host sees, outside the guest:")
    near = PAGE if size % BLOCK else 0
    end, total = round_up(size, PAGE), GPU_MIB * lab.MIB
    if "iommu=on" in guest.topology.cmdline:
        table.row("DMA", "the drive used addresses that an IOMMU translates: not recorded")
    elif told.dma:
        inside, elsewhere = told.dma
        wanted = round_up(size, BLOCK)
        table.proof("DMA", inside == wanted and elsewhere <= METADATA,
                    f"{inside} bytes by the drive into the GPU's BAR, {elsewhere} elsewhere (QEMU's own record)",
                    f"QEMU recorded {inside} bytes into the BAR, not {wanted}, and {elsewhere} elsewhere")
    else:
        table.proof("DMA", False, "", "QEMU's record is missing")
    wrong = compare(bar, 0, size, str(path), 0)
    table.proof("compare", not wrong, f"all {size} bytes of {shown(bar)} equal FILE's", wrong)
    wrong = compare(bar, size, end - size, "byte:0", 0) or \
        compare(bar, end + near, total - end - near, f"pattern:{SEED}", end + near)
    passed = ", but for the one page where the last partial block passed through" if near else ""
    zeros = f"the {end - size} bytes to the end of its last page are the buffer's zeros, " if end > size else ""
    table.proof("behind", not wrong, f"{zeros}the {total - end - near} bytes behind hold what they held{passed}", wrong)
    sums = [sha256(path, size), sha256(bar, size)]
    table.row("FILE", f"sha256 {sums[0]}")
    table.row("GPU", f"sha256 {sums[1]}")
    if sums[0] != sums[1]:
        table.bad.append("sha256")
    return table


def shown(path: Path) -> str:
    return str(path.relative_to(lab.ROOT)) if path.is_relative_to(lab.ROOT) else str(path)


def tell(text: str) -> None:
    print(f"==> {text}", flush=True)


def demo(path: Path, size: int, kernel: lab.Kernel, topology: lab.Topology) -> None:
    start = time.monotonic()
    guest = lab.Guest(kernel, topology, [lab.Test.load(lab.ROOT / "qemu/demo-guest.sh")], OUT,
                      trace=True, ready_made=True, patience=180)
    version = (kernel.home / "version").read_text().split()
    print(f"==> preparing: {size} bytes of {path} onto an ext4 NVMe drive, {GPU_MIB} MiB of GPU memory", flush=True)
    prepare(path, size, guest)
    print(f"==> booting kernel {version[1]} (package {version[0]}) on {topology.name}: {topology.says}", flush=True)
    outcome = asyncio.run(lab.boot(guest, tell))
    told = Told.of(outcome)
    if error := told.cp.get("error"):
        raise Failed(f"refused: {error['message']}")
    if not told.cp:
        for note in outcome.notes:
            print(f"  {note}", file=sys.stderr)
        raise Failed("; ".join(map(str, outcome.reasons)) + f" (logs in {shown(OUT)})")
    table = show(path, size, guest, told)
    if table.bad:
        raise Failed(f"not proven: {', '.join(table.bad)}")
    if outcome.reasons:
        raise Failed(f"the bytes are right, the guest's end was not: {'; '.join(map(str, outcome.reasons))}")
    for disk in topology.disks:
        guest.path(disk).unlink()
    print(f"==> proven, {time.monotonic() - start:.0f} s from preparing on; the GPU's memory is in {shown(guest.path('gpu0'))}")


def arguments(doc: str, file: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--check-file", type=Path, metavar="FILE", help="only say whether FILE can be used")
    parser.add_argument("--file", type=Path, help=f"default: {file}")
    parser.add_argument("--kernel", type=Path, help="a folder of the lab's kernel cache")
    parser.add_argument("--topology", default="switch")
    return parser


def chosen_kernel(folder: Path | None) -> lab.Kernel:
    k, variant = os.environ.get("K") or lab.NEWEST, lab.variant_of(os.environ.get("DEBUG"))
    kernel = lab.Kernel(k, variant, folder.resolve()) if folder else lab.kernel(k, variant)
    assert kernel
    return kernel


def status_of(run: Callable[[], object]) -> int:
    """The exit status of a demo; a failure is reported in one line."""
    try:
        run()
        return 0
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (Failed, lab.LabError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def main() -> int:
    args = arguments(__doc__ or "", "the newest kernel source archive of the cache").parse_args()

    def run() -> None:
        path = (args.file or default_file()).absolute()
        size = check_file(path)
        topology = lab.Topology.load(args.topology)
        if "disk0" not in topology.disks:
            raise Refused(f"T={args.topology} has no drive to read from")
        demo(path, size, chosen_kernel(args.kernel), topology)

    return status_of(lambda: check_file(args.check_file) if args.check_file else run())


if __name__ == "__main__":
    sys.exit(main())
