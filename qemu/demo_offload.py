#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make demo-offload`: tokens of a storage node, read plain and reduced into another guest's GPU by RDMA.

A storage node has two files of u32 tokens, which need 16 and 18 bits. Its kernel exports each by NVMe over RDMA twice: as it
is, and as a view with the fewest bits, which peerdma-viewd serves. A GPU node reads them into its GPU's memory, first with
nothing in the way, then with the storage node's interface limited. Elements a second and bytes on the wire of a view are
compared with those of its file.

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
AROUND = 64 * 1024               # bytes on both sides of the elements that must not change

# The limit is chosen so that the emulation is AIM times faster, and if it would then be too low, LEAST times. It must be
# FASTER times at least.
AIM, LEAST, FASTER = 5, 3, 2.5
PLAIN_SECONDS = 8                # that a plain read takes at the limit, at least
LOWEST = 1_000_000               # limit in bytes a second: below it soft-RoCE's acknowledgements come too late, and it sends again
AGAIN = 1.03                     # times the data's bytes: more on the wire is not headers, but sent twice
FILLED = .9                      # of the limit that each read must use: else something else was the limit
CLOCKS = .2                      # seconds, and a twentieth, by which the guest's clock and the host's may differ


@dataclass(frozen=True)
class View:
    name: str
    says: str
    codec: str           # of a view its bits are found by the scan
    file: int            # the bits of the file's elements
    plain: View | None = None  # the same file as it is; None: this is that
    rate: float = 0      # at least so many times plain's elements a second
    wire: float = 0      # at most so many times plain's bytes on the wire

    @property
    def bits(self) -> int:
        return self.file if self.plain else 32

    @property
    def reduced_by(self) -> str:
        return "storage" if self.plain else "nowhere"

    @property
    def widened_by(self) -> str:
        return "gpu" if self.plain else "nothing"


PLAIN = {bits: View(f"plain{bits}", f"its file, {bits} bits used", "u32:none", bits) for bits in (16, 18)}
REDUCED = (View("bits16", "view of 16 bits", "u32:u16", 16, PLAIN[16], 1.95, .51),
           View("bits18", "view of 18 bits", "u32:18", 18, PLAIN[18], 1.7, .57))
VIEWS = {view.name: view for reduced in REDUCED for view in (PLAIN[reduced.file], reduced)}
DISKS = {16: "disk0", 18: "disk1"}


def make_tokens(path: Path, count: int, bits: int) -> None:
    """u32 below 2^bits, from a seed. The last one is the highest that there is."""
    drawn = int.from_bytes(random.Random(SEED + bits).randbytes(4 * count), "little")
    mask = int.from_bytes(((1 << bits) - 1).to_bytes(4, "little") * count, "little")
    tokens = bytearray((drawn & mask).to_bytes(4 * count, "little"))
    tokens[-4:] = ((1 << bits) - 1).to_bytes(4, "little")
    path.write_bytes(tokens)


def differs(got: bytes, want: bytes) -> str:
    """"" if these are the same u32, else the first that is another."""
    if got == want:
        return ""
    at = next(at for at in range(0, len(want), 4) if got[at:at + 4] != want[at:at + 4])
    found, right = (int.from_bytes(x[at:at + 4], "little") for x in (got, want))
    return f"element {at // 4} is {found}, not {right}"


@dataclass
class Run:
    """A read of all elements of a view or a file."""
    view: str
    limited: bool
    elements: int
    seconds: float       # by the guest's clock
    host_seconds: float  # by the host's
    received: int        # bytes, by the counters of the GPU node's interface
    sent: int
    route: str           # of the bytes into the GPU's memory
    widened_by: str

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
class Place:
    """Where a read that the host has seen begin puts its elements."""
    name: str
    at: int              # in the GPU's memory
    begun: float
    seconds: float = 0.0


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

    def ratios(self, view: View) -> tuple[float, float]:
        """Elements a second and bytes on the wire, as multiples of those of the same file as it is."""
        plain = view.plain or view
        return self.rate(view) / self.rate(plain), self.wire(view) / self.wire(plain)

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
            self.holds(f"{view.name}: nothing is sent twice",
                       all(run.wire <= AGAIN * run.elements * view.bits / 8 for run in self.of(view)))
        for view in REDUCED:
            rate, wire = self.ratios(view)
            self.holds(f"{view.name}: elements a second", rate >= view.rate)
            self.holds(f"{view.name}: bytes on the wire", wire <= view.wire)

    def json(self) -> dict[str, Any]:
        views = {view.name: {"says": view.says, "codec": view.codec, "file_bits": view.file,
                             "elements_per_second": spread([run.rate for run in self.of(view)]),
                             "wire_bytes": spread([run.wire for run in self.of(view)]),
                             "limit_used": self.filled(view), "times_faster_without_limit": self.faster(view),
                             "plain": view.plain.name if view.plain else None,
                             "rate_ratio": self.ratios(view)[0], "rate_ratio_needed": view.rate,
                             "wire_ratio": self.ratios(view)[1], "wire_ratio_needed": view.wire}
                 for view in VIEWS.values()}
        return {"ok": not self.bad, "bad": self.bad, "limit_bytes_per_second": self.limit, "repeats": self.repeats,
                "views": views, "runs": [asdict(run) for run in self.runs]}


def spread(values: Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def chosen_limit(slowest: float, plain_bytes: int) -> int:
    """Bytes a second. `slowest`: of the reads without a limit."""
    if slowest < LEAST * LOWEST:
        raise lab.LabError(f"the emulation moves {slowest / 1e6:.2f} MB/s here, which is too slow: expected "
                           f"{LEAST * LOWEST / 1e6:.2f} or more; is the machine busy?")
    return int(max(min(slowest / AIM, plain_bytes / PLAIN_SECONDS), LOWEST)) // 10000 * 10000


class Witness:
    """The host's part: compares each read of the GPU node from outside, and takes its time."""

    def __init__(self, tokens: dict[int, Path], count: int, near: lab.Guest, repeats: int = REPEATS) -> None:
        self.tokens, self.count = tokens, count
        self.bar = near.path("gpu0")
        self.table = demo.Table()
        self.verdict = Verdict([], 0, repeats)
        self.fresh: Place | None = None  # of the read that is under way
        self.total = len(VIEWS) * (1 + repeats)
        near.answers |= {"log": self.log, "begin": self.begin, "end": self.end, "took": self.took, "limit": self.limit}

    async def log(self, rest: str) -> str:
        self.table.row("log", rest)
        return "ok"

    async def begin(self, rest: str) -> str:
        """A read of a view into this part of the GPU's memory begins. What is there must not prove anything."""
        name, at, size = rest.split()
        self.fresh = None
        if name not in VIEWS or int(size) != 4 * self.count:
            return f"error: {name} has not {int(size) // 4} elements"
        begin, length = int(at) - AROUND, int(size) + 2 * AROUND
        fill = [str(lab.pattern_binary()), "fill", str(self.bar), str(begin), str(length), f"pattern:{PATTERN}", str(begin)]
        said = await lab.said_by(*fill)
        self.fresh = Place(name, int(at), time.monotonic()) if said == "ok" else None
        return said

    async def end(self, _: str) -> str:
        if not self.fresh:
            return "error: no read has begun"
        self.fresh.seconds = time.monotonic() - self.fresh.begun
        return "ok"

    async def took(self, rest: str) -> str:
        name, received, sent, text = rest.split(" ", 3)
        view, told, place = VIEWS[name], json.loads(text), self.fresh
        if "error" in told:
            raise lab.LabError(told["error"]["message"])
        if not place or place.name != name or not place.seconds or told["seconds"] <= 0:
            raise lab.LabError("the host has not seen this read begin and end")
        self.fresh = None
        run = Run(name, bool(self.verdict.limit), self.count, told["seconds"], place.seconds, int(received), int(sent),
                  told["route"], told["widened_by"])
        wrong = await asyncio.to_thread(self.fault, view, place.at, told)
        if not wrong and abs(place.seconds - run.seconds) > CLOCKS + .05 * place.seconds:
            wrong = f"the guest's clock says {run.seconds:.2f} s, the host's {place.seconds:.2f} s"
        self.verdict.runs.append(run)
        number = len(self.verdict.runs)
        self.table.proof(f"{number}/{self.total}", not wrong,
                         f"{view.says:<22} {run.seconds:6.2f} s {run.rate / 1e6:6.2f} M elements/s {run.wire_rate / 1e6:6.2f} MB/s; "
                         f"all {self.count} elements equal", f"{view.says}: {wrong}")
        if wrong:
            self.verdict.holds(f"{name}: every element equal", False)
            return "error: " + wrong
        return "ok"

    def fault(self, view: View, at: int, told: dict[str, Any]) -> str:
        """"" if all elements are right, the memory around is as it was, and the view is what it should be."""
        seen = [told[key] for key in ("codec", "reduced_by", "elements", "bar_offset")]
        want = [view.codec, view.reduced_by, self.count, at]
        if seen != want:
            return f"the GPU node has read {seen}, not {want}"
        if told["widened_by"] != view.widened_by:
            return f"widened by {told['widened_by']}, not by {view.widened_by}"
        size = 4 * self.count
        with open(self.bar, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            got = memory[at:at + size]
        return (differs(got, self.tokens[view.file].read_bytes()) or self.untouched(at - AROUND)
                or self.untouched(at + size))

    def untouched(self, begin: int) -> str:
        wrong = demo.compare(self.bar, begin, AROUND, f"pattern:{PATTERN}", begin)
        return f"the memory around the elements has changed: {wrong}" if wrong else ""

    async def limit(self, _: str) -> str:
        """The limit in bits a second, from the reads without one."""
        slowest = min(run.wire_rate for run in self.verdict.runs)
        self.verdict.limit = chosen_limit(slowest, 4 * self.count)
        self.table.row("limit", f"{self.verdict.limit * 8 / 1e6:.2f} Mbit/s: without it the slowest read was "
                                f"{slowest / self.verdict.limit:.1f} x faster")
        return f"ok {8 * self.verdict.limit}"


def show(verdict: Verdict) -> None:
    print(f"The wire limited to {verdict.limit * 8 / 1e6:.2f} Mbit/s, {verdict.repeats} reads of each, median (least to most):")
    print(f"  {'':<24}{'M elements/s':<24}{'x plain':<20}{'bytes on the wire':<34}{'x plain':<22}{'limit used':<12}unlimited")
    for view in VIEWS.values():
        rates = spread([run.rate / 1e6 for run in verdict.of(view)])
        wires = spread([run.wire for run in verdict.of(view)])
        rate, wire = verdict.ratios(view)
        print(f"  {view.says:<24}" + f"{rates['median']:.3f} ({rates['min']:.3f} to {rates['max']:.3f})".ljust(24)
              + (f"{rate:.3f}, needs {view.rate}" if view.rate else "1").ljust(20)
              + f"{wires['median']:.0f} ({wires['min']:.0f} to {wires['max']:.0f})".ljust(34)
              + (f"{wire:.4f}, at most {view.wire}" if view.wire else "1").ljust(22)
              + f"{100 * verdict.filled(view):.0f} %".ljust(12) + f"{verdict.faster(view):.1f} x faster")


def run(count: int, kernel: lab.Kernel, topology: lab.Topology, out: Path | None) -> None:
    start = time.monotonic()
    near = lab.Guest(kernel, topology, [lab.Test.load(lab.ROOT / "qemu/demo-offload-guest.sh")], OUT / "gpu",
                     ready_made=True, patience=180, env={"OFFLOAD_REPEATS": str(REPEATS), "OFFLOAD_ELEMENTS": str(count)})
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
        demo.put_on_ext4(tokens[bits], far.path(disk), 8 * count // lab.MIB + 64)
    print(f"==> booting two guests with kernel {version[1]} (package {version[0]}), joined by a cable: the storage node, "
          "and a GPU node", flush=True)
    witness = Witness(tokens, count, near)
    outcome = asyncio.run(lab.again_if_still(lambda: pair.Pair(lab.Boot(near), lab.Boot(far)).run(), demo.tell))
    verdict = witness.verdict
    if witness.table.bad or len(verdict.runs) != witness.total or not verdict.limit:
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
        return SHORT_TOKENS if lab.is_on("SHORT") else TOKENS
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
