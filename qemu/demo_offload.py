#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make demo-offload`: tokens of a storage node, read plain and reduced into another guest's GPU by RDMA.

A storage node has two files of u32 tokens, which need 16 and 18 bits, and peerdma-viewd serves them as views: one with
the files' bytes as they are (u32:none), and one for each file with the fewest bits. The kernel exports the views by
NVMe over RDMA. A GPU node reads them into its GPU's memory, first with nothing in the way, then with the storage node's
interface limited. Elements a second and bytes on the wire are compared with those of the plain view, which differs from
the others in its reduction only.

The proof comes from outside the guests: each element in the file that backs the GPU's memory is compared with those of
which the files were made, and the time of each read is taken by the host too.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import random
import statistics
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Iterable

import demo
import lab
import pair

OUT = lab.BUILD / "demo-offload"
GPU_MIB = 128
TOKENS = 12 * lab.MIB + 5        # not a multiple of 8, so that the last group of a view is not whole
SHORT_TOKENS = 4 * lab.MIB + 5
MAX_TOKENS = 16 * lab.MIB        # what is not reduced still fits into the GPU's memory
REPEATS = 3
SEED = 29
PATTERN = 20                     # of the GPU's memory before each read

# The limit is chosen so that the emulation is this many times faster. It must be at least FASTER times.
AIM, FASTER = 5, 2.5
PLAIN_SECONDS = 8                # that a plain read takes at the limit, at least
SLOWEST = 500_000                # bytes a second: below it requests would meet the kernel's time limit
FILLED = .9                      # of the limit that each read must use: else something else was the limit
CLOCKS = 1                       # seconds, and a twentieth, by which the guest's clock and the host's may differ: the program starts


@dataclass(frozen=True)
class View:
    name: str
    says: str
    bits: int            # of an element of the view
    file: int            # the bits of the file's elements
    rate: float = 0      # at least so many times plain's elements a second
    wire: float = 0      # at most so many times plain's bytes on the wire


PLAIN = View("plain", "u32, not reduced", 32, 18)
REDUCED = (View("bits16", "16 bits", 16, 16, 1.95, .51), View("bits18", "18 bits", 18, 18, 1.7, .57))
VIEWS = {view.name: view for view in (PLAIN, *REDUCED)}
DISKS = {16: "disk0", 18: "disk1"}


def make_tokens(path: Path, count: int, bits: int) -> None:
    """u32 below 2^bits, from a seed. The last one is the highest that there is."""
    drawn = int.from_bytes(random.Random(SEED + bits).randbytes(4 * count), "little")
    mask = int.from_bytes(((1 << bits) - 1).to_bytes(4, "little") * count, "little")
    tokens = bytearray((drawn & mask).to_bytes(4 * count, "little"))
    tokens[-4:] = ((1 << bits) - 1).to_bytes(4, "little")
    path.write_bytes(tokens)


def either(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") | int.from_bytes(b, "little")).to_bytes(len(a), "little")


def unpack(packed: bytes, bits: int, count: int) -> bytes:
    """`count` integers of `bits` bits each, the lowest bits first, as u32. By planes: in each `bits` bytes, eight
    elements, byte m of element j consists of the same bits."""
    groups = -(-count // 8)
    packed = packed.ljust(groups * bits, b"\0")
    planes = [packed[i:groups * bits:bits] for i in range(bits)]
    tokens = bytearray(32 * groups)
    for element in range(8):
        for byte in range(-(-bits // 8)):
            plane, shift = divmod(bits * element + 8 * byte, 8)
            mask = (1 << min(8, bits - 8 * byte)) - 1
            part = planes[plane].translate(bytes((x >> shift) & mask for x in range(256)))
            if shift and plane + 1 < bits:
                upper = bytes((x << (8 - shift)) & 0xff & mask for x in range(256))
                part = either(part, planes[plane + 1].translate(upper))
            tokens[4 * element + byte::32] = part
    return bytes(tokens[:4 * count])


def image_fault(image: bytes, view: View, tokens: bytes) -> str:
    """"" if these are the bytes of the view's device with all of the tokens, else what is not."""
    count = len(tokens) // 4
    magic, version, _, header, element, reduction, bits = struct.unpack_from("<8sIIQBBB", image)
    elements, data_bytes = struct.unpack_from("<2Q", image, 32)
    seen = (magic, version, element, bits, elements, data_bytes)
    want = (b"PDMAVIEW", 1, 1, view.bits, count, (count * view.bits + 7) // 8)
    if seen != want or reduction != (view.bits != 32):
        return f"the header says {seen}, reduction {reduction}, not {want}"
    if len(image) != demo.round_up(header + data_bytes, demo.PAGE):
        return f"the view has {len(image)} bytes, not those of its header and data"
    got = unpack(image[header:header + data_bytes], view.bits, count)
    if got == tokens:
        return ""
    at = next(i for i in range(count) if got[4 * i:4 * i + 4] != tokens[4 * i:4 * i + 4])
    return (f"element {at} is {int.from_bytes(got[4 * at:4 * at + 4], 'little')}, not "
            f"{int.from_bytes(tokens[4 * at:4 * at + 4], 'little')}")


@dataclass
class Run:
    """A read of a whole view."""
    view: str
    limited: bool
    elements: int
    seconds: float       # by the guest's clock
    host_seconds: float  # by the host's, with the start of the program
    received: int        # bytes, by the counters of the GPU node's interface
    sent: int

    @property
    def rate(self) -> float:
        return self.elements / self.seconds

    @property
    def wire(self) -> int:
        return self.received + self.sent

    @property
    def wire_rate(self) -> float:
        """Bytes a second that the storage node has sent."""
        return self.received / self.seconds


@dataclass
class Verdict:
    """What the runs have shown. bad: names of what they have not."""
    runs: list[Run]
    limit: int                       # bytes a second
    repeats: int = REPEATS
    bad: list[str] = field(default_factory=list)

    def of(self, view: View, limited: bool = True) -> list[Run]:
        return [run for run in self.runs if run.view == view.name and run.limited == limited]

    def rate(self, view: View) -> float:
        return statistics.median(run.rate for run in self.of(view))

    def wire(self, view: View) -> float:
        return statistics.median(run.wire for run in self.of(view))

    def filled(self, view: View) -> float:
        """The part of the limit that its reads have used, at least."""
        return min(run.wire_rate for run in self.of(view)) / self.limit

    def faster(self, view: View) -> float:
        """How many times faster than the limit the emulation is."""
        return min(run.wire_rate for run in self.of(view, False)) / self.limit

    def holds(self, what: str, fact: bool) -> bool:
        if not fact:
            self.bad.append(what)
        return fact

    def judge(self) -> None:
        self.bad.clear()
        for view in VIEWS.values():
            if not self.holds(f"{view.name}: runs", len(self.of(view)) == self.repeats and bool(self.of(view, False))):
                return
        for view in VIEWS.values():
            self.holds(f"{view.name}: {FASTER} x faster without the limit", self.faster(view) >= FASTER)
            self.holds(f"{view.name}: the limit is filled", self.filled(view) >= FILLED)
        for view in REDUCED:
            self.holds(f"{view.name}: elements a second", self.rate(view) >= view.rate * self.rate(PLAIN))
            self.holds(f"{view.name}: bytes on the wire", self.wire(view) <= view.wire * self.wire(PLAIN))

    def json(self) -> dict[str, Any]:
        views = {view.name: {"says": view.says, "bits": view.bits, "file_bits": view.file,
                             "elements_per_second": spread([run.rate for run in self.of(view)]),
                             "wire_bytes": spread([run.wire for run in self.of(view)]),
                             "limit_used": self.filled(view), "times_faster_without_limit": self.faster(view),
                             "rate_ratio": self.rate(view) / self.rate(PLAIN), "rate_ratio_needed": view.rate,
                             "wire_ratio": self.wire(view) / self.wire(PLAIN), "wire_ratio_needed": view.wire}
                 for view in VIEWS.values()}
        return {"ok": not self.bad, "bad": self.bad, "limit_bytes_per_second": self.limit, "repeats": self.repeats,
                "views": views, "runs": [asdict(run) for run in self.runs]}


def spread(values: Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def chosen_limit(slowest: float, plain_bytes: int) -> int:
    """Bytes a second. `slowest`: of the reads without a limit."""
    limit = min(slowest / AIM, plain_bytes / PLAIN_SECONDS)
    if limit < SLOWEST:
        raise lab.LabError(f"the emulation moves {slowest / 1e6:.2f} MB/s here, which is too slow: expected "
                           f"{AIM * SLOWEST / 1e6:.2f} or more")
    return int(limit) // 10000 * 10000


class Witness:
    """The host's part: compares each read of the GPU node from outside, and takes its time."""

    def __init__(self, tokens: dict[int, Path], count: int, near: lab.Guest, repeats: int = REPEATS) -> None:
        self.tokens, self.count = tokens, count
        self.bar = near.path("gpu0")
        self.table = demo.Table()
        self.verdict = Verdict([], 0, repeats)
        self.fresh = ""     # the view for which the GPU's memory was filled with the pattern
        self.begun = 0.0
        self.total = len(VIEWS) * (1 + repeats)
        near.answers |= {"log": self.log, "fresh": self.refill, "took": self.took, "limit": self.limit}

    async def log(self, rest: str) -> str:
        self.table.row("log", rest)
        return "ok"

    async def refill(self, name: str) -> str:
        """The bytes of one read must not prove the next one."""
        self.fresh = ""
        if name not in VIEWS:
            return f"error: there is no view {name}"
        fill = [str(lab.pattern_binary()), "fill", str(self.bar), "0", str(self.bar.stat().st_size), f"pattern:{PATTERN}"]
        said = await lab.said_by(*fill)
        self.fresh = name if said == "ok" else ""
        self.begun = time.monotonic()
        return said

    async def took(self, rest: str) -> str:
        host_seconds = time.monotonic() - self.begun
        name, received, sent, text = rest.split(" ", 3)
        view, cp = VIEWS[name], json.loads(text)
        if "error" in cp:
            raise lab.LabError(cp["error"]["message"])
        if self.fresh != name:
            raise lab.LabError("the GPU's memory was not filled before")
        self.fresh = ""
        at, size, limited = cp["bar_offset"], cp["bytes"], bool(self.verdict.limit)
        run = Run(name, limited, self.count, cp["seconds"], host_seconds, int(received), int(sent))
        wrong = await asyncio.to_thread(self.fault, view, at, size)
        late = host_seconds - run.seconds
        if not wrong and not -.05 * (1 + host_seconds) <= late <= CLOCKS + .05 * host_seconds:
            wrong = f"the guest's clock says {run.seconds:.2f} s, the host's {host_seconds:.2f} s"
        self.verdict.runs.append(run)
        number = len(self.verdict.runs)
        self.table.proof(f"{number}/{self.total}", not wrong,
                         f"{view.says:<16} {run.seconds:6.2f} s {run.rate / 1e6:6.2f} M elements/s {run.wire_rate / 1e6:6.2f} MB/s; "
                         f"all {self.count} elements equal", f"{view.says}: {wrong}")
        if wrong:
            self.verdict.holds(f"{name}: every element equal", False)
            return "error: " + wrong
        return "ok"

    def fault(self, view: View, at: int, size: int) -> str:
        """"" if all elements are right and the memory around is as it was."""
        with open(self.bar, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            image = memory[at:at + size]
        end = self.bar.stat().st_size
        return (image_fault(image, view, self.tokens[view.file].read_bytes()) or self.untouched(0, at)
                or self.untouched(at + size, end))

    def untouched(self, begin: int, end: int) -> str:
        wrong = demo.compare(self.bar, begin, end - begin, f"pattern:{PATTERN}", begin) if end > begin else ""
        return f"the memory around the elements has changed: {wrong}" if wrong else ""

    async def limit(self, _: str) -> str:
        """The limit in bits a second, from the reads without one."""
        slowest = min(run.wire_rate for run in self.verdict.runs)
        self.verdict.limit = chosen_limit(slowest, 4 * self.count)
        self.table.row("limit", f"{self.verdict.limit * 8 / 1e6:.2f} Mbit/s: without it the slowest read was "
                                f"{slowest / self.verdict.limit:.1f} x faster")
        return f"ok {8 * self.verdict.limit}"


def show(verdict: Verdict) -> None:
    print(f"The wire limited to {verdict.limit * 8 / 1e6:.2f} Mbit/s, {verdict.repeats} reads of each view, median (least to most):")
    print(f"  {'view':<18}{'M elements/s':<24}{'x plain':<20}{'bytes on the wire':<34}{'x plain':<22}{'limit used':<12}unlimited")
    for view in VIEWS.values():
        rates = spread([run.rate / 1e6 for run in verdict.of(view)])
        wires = spread([run.wire for run in verdict.of(view)])
        rate, wire = verdict.rate(view) / verdict.rate(PLAIN), verdict.wire(view) / verdict.wire(PLAIN)
        print(f"  {view.says:<18}" + f"{rates['median']:.3f} ({rates['min']:.3f} to {rates['max']:.3f})".ljust(24)
              + (f"{rate:.3f}, needs {view.rate}" if view.rate else "1").ljust(20)
              + f"{wires['median']:.0f} ({wires['min']:.0f} to {wires['max']:.0f})".ljust(34)
              + (f"{wire:.4f}, at most {view.wire}" if view.wire else "1").ljust(22)
              + f"{100 * verdict.filled(view):.0f} %".ljust(12) + f"{verdict.faster(view):.1f} x faster")


def run(count: int, kernel: lab.Kernel, topology: lab.Topology, out: Path | None) -> None:
    start = time.monotonic()
    near = lab.Guest(kernel, topology, [lab.Test.load(lab.ROOT / "qemu/demo-offload-guest.sh")], OUT / "gpu",
                     ready_made=True, patience=180, env={"OFFLOAD_REPEATS": str(REPEATS)})
    far = lab.Guest(kernel, lab.Topology.load("storage"), [lab.Test.load(lab.ROOT / "qemu/demo-offload-storage.sh")],
                    OUT / "storage", ready_made=True, patience=180)
    version = (kernel.home / "version").read_text().split()
    print(f"==> preparing: two files of {count} u32 tokens, of 16 and of 18 bits, on two NVMe drives of a storage node; "
          f"{GPU_MIB} MiB of GPU memory", flush=True)
    tokens = {}
    for guest in (near, far):
        guest.out.mkdir(parents=True, exist_ok=True)
    lab.sparse(near.path("gpu0"), GPU_MIB)
    lab.sparse(far.path("gpu0"), 1)
    for disk in near.topology.disks:
        lab.make_disk(near.path(disk), 64)
    for bits, disk in DISKS.items():
        tokens[bits] = OUT / f"tokens{bits}"
        make_tokens(tokens[bits], count, bits)
        demo.put_on_ext4(tokens[bits], far.path(disk), 4 * count // lab.MIB + 64)
    print(f"==> booting two guests with kernel {version[1]} (package {version[0]}), joined by a cable: the storage node, "
          "and a GPU node", flush=True)
    witness = Witness(tokens, count, near)
    outcome = asyncio.run(lab.again_if_still(lambda: pair.Pair(lab.Boot(near), lab.Boot(far)).run(), demo.tell))
    verdict = witness.verdict
    if witness.table.bad or len(verdict.runs) != witness.total:
        for note in outcome.notes:
            print(f"  {note}", file=sys.stderr)
        wrong = ", ".join(verdict.bad) or "; ".join(map(str, outcome.reasons))
        raise demo.Failed(f"{wrong} (logs in {demo.shown(OUT)})")
    verdict.judge()
    show(verdict)
    if out:
        facts = {"kernel": version[1], "elements": count, **verdict.json()}
        out.write_text(json.dumps(facts, indent=1) + "\n")
        print(f"  each read is in {demo.shown(out)}")
    if verdict.bad:
        raise demo.Failed(f"not shown: {', '.join(verdict.bad)} (logs in {demo.shown(OUT)})")
    if outcome.reasons:
        raise demo.Failed(f"the elements are right, the guests' end was not: {'; '.join(map(str, outcome.reasons))}")
    for guest in (near, far):
        for disk in guest.topology.disks:
            guest.path(disk).unlink()
    for path in tokens.values():
        path.unlink()
    print(f"==> shown, {time.monotonic() - start:.0f} s from preparing on")


def chosen_count(text: str) -> int:
    if not text:
        return SHORT_TOKENS if os.environ.get("SHORT") else TOKENS
    if not text.isdecimal() or not lab.MIB <= int(text) <= MAX_TOKENS:
        raise demo.Refused(f"TOKENS={text}: expected {lab.MIB} to {MAX_TOKENS}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", default=os.environ.get("TOKENS", ""), metavar="N",
                        help=f"of each file; default: {TOKENS}, with SHORT=1 in the environment {SHORT_TOKENS}")
    parser.add_argument("--kernel", type=Path, help="a folder of the lab's kernel cache")
    parser.add_argument("--topology", default="switch", help="of the GPU node")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write each read and the verdict to FILE")
    parser.add_argument("--check", action="store_true", help="only say whether --tokens and --json can be used")
    args = parser.parse_args()

    def go() -> None:
        count = chosen_count(args.tokens)
        if args.json and not args.json.absolute().parent.is_dir():
            raise demo.Refused(f"JSON={args.json}: there is no such folder")
        if not args.check:
            run(count, demo.chosen_kernel(args.kernel), lab.Topology.load(args.topology), args.json)

    return demo.status_of(go)


if __name__ == "__main__":
    sys.exit(main())
