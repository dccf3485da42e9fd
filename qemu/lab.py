#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Boots one guest, runs tests in it and judges the run.

    lab.py [-k KERNEL] [-d] [-t TOPOLOGY] [-o OUT] [--trace] [--count] TEST.sh ...

A run is good only if every check holds: see Judge. run.py (make check) and demo.py (make demo) import this file. The
command line is for work on a single test.
"""
from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import fcntl
import functools
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Awaitable, Callable, Iterator, NoReturn, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))
import pair  # noqa: E402
import ram  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("PEERDMA_BUILD") or ROOT / "build").resolve()
CACHE = Path(os.environ.get("PEERDMA_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peerdma")
RUNS = BUILD / "lab"  # where -o of a command may be
QEMU = "qemu-system-x86_64"
MIB = 1 << 20
# The newest first, which is K's default.
KERNELS_TABLE = (ROOT / "qemu/kernels.tbl").read_text()
KERNELS = tuple(line.split()[1] for line in KERNELS_TABLE.splitlines() if line.startswith("kernel "))
NEWEST, OLDEST = KERNELS[0], KERNELS[-1]
BY_AGE = {"newest": NEWEST, "oldest": OLDEST}  # for headers of tests
SLOW = ("debug", "kcsan", "rt")  # builds with more checks, qemu/NAME.config; gcov only counts lines: make coverage

# Any match in a serial log makes the run fail.
SPLAT = re.compile(
    r"\bBUG\b|\bWARNING:|\bOops\b|KASAN:|KFENCE:|UBSAN:|Call Trace|Kernel panic|general protection fault"
    r"|possible (circular|recursive|irq lock|deadlock)|rcu.*\b(stall|detected)|hung_task:|blocked for more than"
    r"|DMAR:.*\bfault\b|DMA-API:.*(device driver|error)|unreferenced object|refcount_t:|list_(add|del) corruption"
    r"|\bsegfault at\b|traps: .* (trap|general protection)|soft lockup|hard LOCKUP")
SPLAT_END = re.compile(r"---\[ end (trace|Kernel)|</TASK>\s*$|={60}$")
SPLAT_MAX_LINES = 120

CLOSE = 0.75  # of a test's time limit: a busier machine may exceed it

# Behind the filesystem of a drive: dmacard.ko (tests/kmod) copies by way of these blocks.
SCRATCH_MIB = 4
MORE_GPU_MIB = 128
# The final checks of guest.sh; a missing one is a failure.
CHECKS = ("nvme", "p2pmem", "modules", "kcsan", "kmemleak", "dma-api", "stuck-tasks")


class LabError(Exception):
    """The lab itself cannot run. Reported to the user; not a verdict."""


@dataclass(frozen=True)
class Lack:
    """An ability that some kernels lack."""
    kernels: frozenset[str]
    why: str


def lacks_of(table: str, kernels: Sequence[str]) -> dict[str, Lack]:
    """The table's lines "lacks WORD KERNELS WHY", by word."""
    found = {}
    for line in table.splitlines():
        if not line.startswith("lacks "):
            continue
        _, word, names, why = [*line.split(None, 3), "", "", ""][:4]
        lacking = frozenset() if names == "-" else frozenset(names.split(","))
        if unknown := sorted(lacking - set(kernels)):
            raise LabError(f"qemu/kernels.tbl: lacks {word}: {unknown[0]!r}: expected -, or of {', '.join(kernels)}")
        if not why or word in found:
            raise LabError(f"qemu/kernels.tbl: lacks {word}: {'a second line' if why else 'no reason'}: expected one line, WORD KERNELS WHY")
        found[word] = Lack(lacking, why)
    return found


LACKS = lacks_of(KERNELS_TABLE, KERNELS)


# --- What to boot ---------------------------------------------------------------------------------

@dataclass(frozen=True)
class Kernel:
    k: str        # one of KERNELS
    variant: str  # plain, gcov, or one of SLOW
    home: Path    # the cached kernel's folder

    @property
    def name(self) -> str:
        return self.k + ("" if self.variant == "plain" else "-" + self.variant)

    @property
    def slow(self) -> bool:
        return self.variant in SLOW

    @property
    def lacks(self) -> str:
        """For `lacks` of lib.sh: lines "WORD WHY"."""
        return "".join(f"{word} {lack.why}\n" for word, lack in LACKS.items() if self.k in lack.kernels)

    @property
    def module(self) -> Path:
        gcov = "-gcov" if os.environ.get("PEERDMA_GCOV") else ""  # make coverage; as in scripts/module.sh
        return BUILD / "kernel" / f"{self.home.name}{gcov}" / "peerdma.ko"

    @property
    def release(self) -> str:
        return (self.home / "version").read_text().split()[-1]


@dataclass(frozen=True)
class Topology:
    name: str
    says: str
    cmdline: str
    args: tuple[str, ...]

    @property
    def more_gpus(self) -> list[str]:
        """Beside gpu0."""
        return sorted(set(re.findall(r"memdev=(gpu\d+)", " ".join(self.args))) - {"gpu0"})

    @property
    def disks(self) -> list[str]:
        return sorted(set(re.findall(r"drive=(\w+)", " ".join(self.args))))

    @property
    def nvme_disks(self) -> list[str]:
        return sorted(set(re.findall(r"drive=(\w+)", " ".join(arg for arg in self.args if arg.startswith("nvme")))))

    @classmethod
    def load(cls, name: str) -> Topology:
        path = ROOT / "qemu/topo" / f"{name}.args"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.args")))
            raise LabError(f"T={name} is not a topology: {known}")
        notes, args = {"says": "", "kernel": ""}, []
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                key, _, value = line[1:].partition(":")
                notes[key.strip()] = value.strip()
            else:
                args += line.split()
        return cls(name, notes["says"], notes["kernel"], tuple(args))


def guest_scripts() -> list[Path]:
    """The guest tests, by name. They lie in folders of what they test; what several of them source lies beside the folders."""
    return sorted((ROOT / "tests/guest").glob("*/**/*.sh"), key=lambda path: path.name)


@dataclass(frozen=True)
class Test:
    """A guest test: a script and what its header says."""
    path: Path
    notes: dict[str, str]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def boot(self) -> str:
        """The kind of its boot; tests of the same kind and topology share one. A test that has a peer is booted alone."""
        return self.notes.get("boot", self.name if "peer" in self.notes else "")

    def words(self, key: str, default: str = "") -> list[str]:
        return self.notes.get(key, default).split()

    def kernels(self, key: str, default: str = "") -> set[str]:
        """The words of a key, with a kernel's name for "newest" and "oldest"."""
        return {BY_AGE.get(word, word) for word in self.words(key, default)}

    def is_on(self, k: str) -> bool:
        """Whether a kernel runs it."""
        return k in self.kernels("kernels", k) and not self.lacking(k)

    def lacking(self, k: str) -> list[str]:
        """What it wants and a kernel lacks: keys of LACKS."""
        return [word for word in self.words("wants") if k in LACKS[word].kernels]

    def why_not_on(self, k: str) -> str:
        """Why a kernel does not run it."""
        return "; ".join(LACKS[word].why for word in self.lacking(k)) or self.notes["because"]

    def is_long(self, k: str, variant: str, key: str = "long") -> bool:
        """Whether it is left out there unless it is asked for. plain: on each kernel. The key "longer": with SHORT=2 only."""
        return bool({variant, k if variant == "plain" else ""} & self.kernels(key))

    def is_for(self, variant: str) -> bool:
        """Whether a build of a kernel runs it. One that no header names, kcsan or rt, runs what plain and debug both do."""
        named = self.words("variants", variant)
        return variant in named or {"plain", "debug"} <= set(named)

    def timeout(self, kernel: Kernel) -> int:
        return int(self.notes.get("timeout", "60")) * (4 if kernel.slow else 1)

    @classmethod
    def named(cls, name: str) -> Test:
        """A guest test, in whichever folder of tests/guest it lies."""
        found = [path for path in guest_scripts() if path.stem == name]
        if len(found) != 1:
            raise LabError(f"{name}: {len(found) or 'no'} guest tests have this name")
        return cls.load(found[0])

    @classmethod
    def load(cls, path: Path) -> Test:
        if not path.is_file():
            moved = "".join(f"; did you mean {other.relative_to(ROOT)}?" for other in guest_scripts() if other.name == path.name)
            raise LabError(f"{path}: there is no such test{moved}")
        notes = {}
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                break
            if found := re.match(r"# ([a-z-]+): (.*)", line):
                notes[found[1]] = found[2].strip()
        names = (*BY_AGE, *KERNELS)
        for key, known in (("kernels", names), ("wants", tuple(LACKS)), *((key, (*names, "plain", "debug")) for key in ("long", "longer"))):
            if unknown := [word for word in notes.get(key, "").split() if word not in known]:
                raise LabError(f"{path}: # {key}: {unknown[0]}: expected {', '.join(known)}")
        return cls(path.resolve(), notes)


@dataclass
class Guest:
    kernel: Kernel
    topology: Topology
    tests: Sequence[Test]
    out: Path                # folder of this run: logs, disks, the GPU's memory
    gpu_mib: int = 512
    ram_mib: int = 1024
    disk_mib: int = 1024
    trace: bool = False      # record the drives' DMA in QEMU
    counting: bool = False   # guest clocks advance one nanosecond per instruction
    lines: bool = False      # eight CPUs; lines.txt lists cache lines that two of them wrote: lines.c
    patience: int = 60       # seconds for booting, and between tests
    grace: int = 20          # seconds beyond a test's own limit before a silent guest is killed
    env: dict[str, str] = field(default_factory=dict)  # for the tests
    ready_made: bool = False # disks and GPU memory are in out already
    drives: dict[str, str] = field(default_factory=dict)  # QEMU options of disks that are not plain images
    say: Callable[[str], None] = lambda line: None
    cable: socket.socket | None = None                    # one end of a socket pair: pair.py
    images: dict[str, Path] = field(default_factory=dict) # further images that the host may fill and compare
    answers: dict[str, Callable[[str], Awaitable[str]]] = field(default_factory=dict)  # further verbs of the host port

    @property
    def in_memory(self) -> bool:
        """Its root is in memory: a 9p mount does not survive a suspend."""
        return any(test.boot == "memory" for test in self.tests)

    def path(self, name: str) -> Path:
        return self.out / {"gpu0": "gpu-bar.mem"}.get(name, f"{name}.img")

    def image(self, name: str) -> Path | None:
        known = ("gpu0", *self.topology.more_gpus, *self.topology.disks)
        return self.path(name) if name in known else self.images.get(name)

    def peer(self) -> Guest | None:
        """The guest at the other end of the cable, if a test's header requests one."""
        wanted = {test.notes["peer"] for test in self.tests if "peer" in test.notes}
        if not wanted:
            return None
        if len(self.tests) > 1:
            raise LabError("a test that has a peer is booted alone")
        script, topology = wanted.pop().split()
        return replace(self, topology=Topology.load(topology), tests=[Test.load(ROOT / f"tests/peer/{script}.sh")],
                       out=self.out / "peer", trace=False, say=lambda line: self.say(f"peer: {line}"), env=dict(self.env),
                       drives={}, images={}, answers={})


# --- The outcome ----------------------------------------------------------------------------------

@dataclass
class Line:
    """One line of TAP, or a missing item that a test should have reported."""
    test: str
    ok: bool
    text: str
    skip: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Reason:
    """Why a boot failed, beyond its tests' own lines. kind is stable: the meta tests name it."""
    kind: str
    detail: str
    notes: list[str] = field(default_factory=list)
    test: str = ""  # to repeat; "": no single one

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass
class Time:
    """What one test of a boot took. work: seconds that the guest's CPUs were busy, all of them added up."""
    test: str
    seconds: float
    work: float


@dataclass
class Outcome:
    guest: Guest
    lines: list[Line] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # diagnostics of all tests, in order
    seconds: float = 0.0
    known_splats: set[str] = field(default_factory=set)
    slow: list[str] = field(default_factory=list)   # tests that were close to their time limit
    times: list[Time] = field(default_factory=list)
    spoke: bool = False  # the guest's script has reported something
    peer_stood_still: bool = False

    @property
    def ok(self) -> bool:
        return not self.reasons and all(line.ok for line in self.lines)

    @property
    def stood_still(self) -> bool:
        """It, or its peer, stopped before its first line, and the kernel complained only about a CPU that does not
        answer. None of our code runs that early."""
        splats = [reason.detail for reason in self.reasons if reason.kind == "splat"]
        return self.peer_stood_still or (not self.spoke and any(reason.kind == "timeout" for reason in self.reasons)
                                         and all(detail.startswith("rcu:") for detail in splats))

    def serial_tail(self, n: int = 25) -> list[str]:
        return serial_lines(self.guest.out / "serial.log")[-n:]


def serial_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_bytes().decode(errors="replace").replace("\r", "").splitlines()


class Judge:
    """Turns the lines of the port "tap" into an outcome. A missing line is always a failure.

    A test must report a plan, as many lines as planned, an end, and exit status 0. A boot must report each check, a
    verdict with the number of lines before it, and init's "exit 0" as the last line.
    """

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.count = 0
        self.current: str | None = None
        self.limit = 0
        self.begun = 0.0
        self.plan: int | None = None
        self.plan_note = ""
        self.seen = 0
        self.latest: list[str] = []  # the last line of the test, with its diagnostics
        self.done: list[str] = []
        self.aborted = ""  # the first test of this boot that did not come to its end
        self.checks: set[str] = set()
        self.verdict: int | None = None
        self.exit: str | None = None

    def fail(self, kind: str, detail: str, notes: Sequence[str] = (), test: str = "") -> None:
        """test: in which it happened, if not in the present one."""
        after = "" if test else self.after
        self.outcome.reasons.append(Reason(kind, detail + after, list(notes), test or self.current or self.aborted))

    @property
    def after(self) -> str:
        """What a failure may come of, if an earlier test aborted: it may have left anything behind."""
        return f", after {self.aborted} aborted in this boot" if self.aborted else ""

    def line(self, text: str) -> None:
        self.outcome.spoke = True
        if self.exit is not None or (self.verdict is not None and not text.startswith("exit ")):
            self.fail("no-verdict", f"something was said after the last word: {text}")
            return
        words = text.split()
        # A line with too few words is not the lab's: another program wrote to the port.
        if text.startswith("exit ") and len(words) == 2 and self.current is None:
            self.exit = words[1]
        elif text.startswith("verdict ") and len(words) == 2 and self.current is None:
            self.verdict = int(words[1]) if words[1].isdigit() else -1
            if self.verdict != self.count:
                self.fail("no-verdict", f"{self.count} lines came, the guest sent {words[1]}")
        elif self.current is None and re.fullmatch(r"begin \S+ [0-9]{1,9}", text):
            self.current, self.limit, self.begun = words[1], int(words[2]), time.monotonic()
            self.plan, self.plan_note, self.seen, self.latest = None, "", 0, []
        elif self.current is None and text.startswith("check ") and len(words) > 1:
            self.check(words[1], " ".join(words[2:]))
        elif (self.current is not None and words[:2] == ["end", self.current]
              and re.fullmatch(r"end \S+ \S+ [0-9]{1,9}", text)):
            self.end(words[2], int(words[3]) / 100)
        elif self.current is not None:
            self.tap(text)
        else:
            self.fail("no-verdict", f"a line outside every test: {text}")
        self.count += 1

    def tap(self, text: str) -> None:
        assert self.current is not None
        self.latest = [*self.latest, text] if text.startswith("#") else [text]
        if found := re.match(r"1\.\.(\d+)\s*(?:# *skip\w*\s*(.*))?$", text, re.I):
            if self.plan is not None:
                self.fail("plan", f"{self.current} planned twice")
            self.plan, self.plan_note = int(found[1]), found[2] or "no reason given"
        elif found := re.match(r"(not )?ok\b\s*(\d*)\s*-?\s*(.*?)(?:\s*# *skip\w*\s*(.*))?$", text, re.I):
            self.seen += 1
            if found[2] and int(found[2]) != self.seen:
                self.fail("plan", f"{self.current}: line {self.seen} calls itself {found[2]}")
            line = Line(self.current, not found[1], found[3], found[4])
            if not line.ok and self.aborted:
                line.notes.append(f"# failed{self.after}")
            self.outcome.lines.append(line)
        else:
            if text.startswith("Bail out!"):
                self.fail("died", f"{self.current}: {text}")
            self.outcome.notes.append(text)
            if self.seen:
                self.outcome.lines[-1].notes.append(text)

    def end(self, status: str, work: float) -> None:
        name = self.current
        assert name is not None
        if status == "hung":
            self.fail("hung", f"{name} was not done after {self.limit} s", self.latest)
        elif status != "0":
            self.fail("died", f"{name} ended with status {status}")
        if self.plan is None:
            self.fail("plan", f"{name} gave no plan")
        elif self.plan != self.seen:
            self.fail("plan", f"{name} planned {self.plan} and showed {self.seen}")
        elif self.plan == 0:
            self.outcome.lines.append(Line(name, True, name, self.plan_note))
        took = time.monotonic() - self.begun
        self.outcome.times.append(Time(name, took, work))
        if took > CLOSE * self.limit:
            self.outcome.slow.append(f"{name} took {took:.0f} of its {self.limit} s")
        self.done.append(name)
        if status != "0":
            self.aborted = self.aborted or name
        self.current = None

    def check(self, name: str, text: str) -> None:
        self.checks.add(name)
        if not re.match(r"(ok|skip)\b", text):
            kind = {"p2pmem": "leak", "kmemleak": "leak", "modules": "module-reference"}.get(name, name)
            self.fail(kind, text.removeprefix("not ok").strip())

    def close(self) -> None:
        """Adds the missing reports after QEMU has ended."""
        out = self.outcome
        if self.current is not None:
            self.fail("no-verdict", f"the guest fell silent in {self.current}")
            self.aborted = self.aborted or self.current
        elif self.exit is None or self.verdict is None:
            self.fail("no-verdict", "the guest did not get to its end")
        elif self.exit != "0":
            self.fail("no-verdict", f"the guest's script ended with status {self.exit}")
        for test in out.guest.tests:
            if test.name not in self.done and test.name != self.current:
                self.fail("plan", f"{test.name} did not run")
        if self.verdict is not None:
            for name in CHECKS:
                if name not in self.checks:
                    self.fail("no-verdict", f"the check {name} is missing")
        if out.guest.tests and all(line.skip is not None for line in out.lines):
            self.fail("all-skipped", "no test of this boot did anything")
        bad = sum(not line.ok for line in out.lines)
        if bad:
            self.fail("not-ok", f"{bad} of {len(out.lines)} lines")


def is_on(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "") not in ("", "0")


def variant_of(debug: str | None) -> str:
    """The variant that the environment's DEBUG selects: 1 is the debug build."""
    variant = {None: "plain", "": "plain", "0": "plain", "1": "debug"}.get(debug, debug)
    if variant != "plain" and variant not in SLOW:
        raise LabError(f"DEBUG={debug}: expected 0, 1, {', '.join(SLOW[:-1])} or {SLOW[-1]}")
    return str(variant)


def known_splats(name: str) -> list[tuple[str, str]]:
    """The entries (regex, reason) of qemu/splats/NAME: a kernel, or a kernel with its variant."""
    path = ROOT / "qemu/splats" / name
    entries = []
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            fields = [part.strip() for part in line.split(" | ")]
            if len(fields) != 3:
                raise LabError(f"{path}: not 'regex | reason | reference': {line}")
            entries.append((fields[0], fields[1]))
    return entries


def find_splats(lines: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """(the known entry that matches or None, first line) of each splat."""
    i = 0
    while i < len(lines):
        if not SPLAT.search(lines[i]):
            i += 1
            continue
        end = i + 1
        while end < min(len(lines), i + SPLAT_MAX_LINES) and not SPLAT_END.search(lines[end - 1]):
            end += 1
        block = "\n".join(lines[i:end])
        entry = next((regex for regex in known if re.search(regex, block)), None)
        yield entry, lines[i]
        # The end of a known splat is known. After the first line of another one, anything may follow.
        i = end if entry else i + 1


def test_at(lines: Sequence[str], line: str) -> str:
    """The test that ran when the guest's log first had the line, or ""."""
    marks = [found for text in lines[:lines.index(line)] if (found := re.search(r"lab: (begin|end) (\S+)", text))]
    return marks[-1][2] if marks and marks[-1][1] == "begin" else ""


def brief(splats: Sequence[str]) -> list[str]:
    """The splats that are new: neither a trace that belongs to the one before, nor a repetition."""
    seen: dict[str, str] = {}
    for line in splats:
        if "Call Trace" not in line:
            seen.setdefault(re.sub(r"0x[0-9a-f]+|\d+", "N", line), line)
    return list(seen.values())[:5] or list(splats[:1])


# --- Tools and images -----------------------------------------------------------------------------

def build_tool(target: Path, source: Path, command: Sequence[str]) -> Path:
    """Compiles a helper program of the lab if its source is newer."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            fresh = target.with_name(target.name + ".new")
            subprocess.run([*command, str(source), "-o", str(fresh)], check=True)
            fresh.replace(target)
    return target


C_COMPILER = ("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


def init_binary() -> Path:
    return build_tool(BUILD / "lab/init", ROOT / "qemu/init.c", [*C_COMPILER, "-static", "-s"])


@functools.cache
def tsc_khz() -> int:
    """The frequency in kHz of this machine's time stamp counter, which an emulated guest sees too; 0 if there is
    none."""
    tool = build_tool(BUILD / "lab/tsc", ROOT / "qemu/tsc.c", C_COMPILER)
    return int(subprocess.run([str(tool)], stdout=subprocess.PIPE, text=True).stdout or 0)


def pattern_binary() -> Path:
    return build_tool(BUILD / "lab/pattern", ROOT / "tests/tools/pattern.cpp",
                      ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror"])


def cpio(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A "newc" archive, the only format that the kernel unpacks: name -> (mode, content)."""
    out = bytearray()

    def entry(name: str, mode: int, data: bytes, ino: int, rdev: tuple[int, int] = (0, 0)) -> None:
        out.extend(b"070701")
        for value in (ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name) + 1, 0):
            out.extend(b"%08x" % value)
        for part in (name.encode() + b"\0", data):
            out.extend(part)
            out.extend(b"\0" * (-len(out) % 4))

    entry("dev", 0o040755, b"", 1)
    entry("dev/console", 0o020600, b"", 2, (5, 1))
    for ino, (name, (mode, data)) in enumerate(files.items(), 3):
        entry(name, mode, data, ino)
    entry("TRAILER!!!", 0, b"", 0)
    return bytes(out)


def make_disk(path: Path, mib: int, behind_mib: int = 0) -> None:
    """An ext4 filesystem in a sparse file, fully initialized, so that the kernel initializes nothing later. Behind it lie
    `behind_mib` MiB that are not part of it."""
    path.unlink(missing_ok=True)
    subprocess.run([shutil.which("mke2fs") or "/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-m", "0",
                    "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", str(path), f"{mib}M"],
                   check=True, stdout=subprocess.DEVNULL)
    os.truncate(path, (mib + behind_mib) * MIB)


def sparse(path: Path, mib: int) -> None:
    path.unlink(missing_ok=True)
    with open(path, "wb") as f:
        f.truncate(mib * MIB)


def kernel(k: str, variant: str, build: bool = True) -> Kernel | None:
    """The cached kernel. Builds it, with progress on stderr, if it is missing and `build` is set."""
    # "path" waits for a running build of another kernel even if this kernel exists: try "have" first.
    for verb in ("have", "path") if build else ("have",):
        run = subprocess.run([str(ROOT / "qemu/kernel.sh"), verb, k, variant], stdout=subprocess.PIPE, text=True)
        if run.returncode == 0:
            return Kernel(k, variant, Path(run.stdout.strip()))
    if build:
        raise LabError(f"no kernel {k} {variant}")
    return None


def make_module(kernel: Kernel) -> None:
    """peerdma.ko for this kernel; make rebuilds it if necessary."""
    run = subprocess.run(["make", "-s", "-C", str(ROOT), "module", f"KDIR={kernel.home}"], stdout=subprocess.DEVNULL)
    if run.returncode or not kernel.module.exists():
        raise LabError(f"peerdma.ko does not build against {kernel.name}")


def make_test_modules(kernel: Kernel) -> None:
    """tests/kmod for this kernel, in kmod/ beside peerdma.ko. A kernel puts objects beside sources: it gets a copy.

    Some modules need an option that a kernel lacks, so a stamp says that all were built that can be.
    """
    source, work = ROOT / "tests/kmod", kernel.module.parent / "kmod"
    newest, stamp = max(f.stat().st_mtime for f in source.iterdir()), work / "built"
    work.parent.mkdir(parents=True, exist_ok=True)
    with open(work.with_name(".kmod.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.stat().st_mtime >= newest:
            return
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        run = subprocess.run(["make", "-s", f"-j{os.cpu_count() or 1}", "-C", str(kernel.home / "build"), f"M={work}", "W=1", "modules"],
                             capture_output=True, text=True)
        if run.returncode or "warning:" in run.stderr:
            raise LabError(f"tests/kmod does not build against {kernel.name}:\n{run.stderr}")
        stamp.touch()


# --- QEMU -----------------------------------------------------------------------------------------

def escaped(path: Path) -> str:
    """A path as a value of a QEMU option."""
    return str(path).replace(",", ",,")


def machine(accel: str, cpus: int = 2) -> list[str]:
    # No guest outlives this process, however it ends.
    return ["setpriv", "--pdeathsig", "KILL", "--", QEMU, "-M", "q35", "-accel", accel, "-smp", str(cpus),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"]


def counting_machine() -> list[str]:
    """One CPU whose clock is the number of instructions it has executed.

    With sleep=off an idle guest's clock would jump to the next timer, ahead of the drive that the guest waits for.
    """
    return [*machine("tcg,thread=single", 1), "-icount", "shift=0,sleep=on", "-rtc", "clock=vm"]


def lines_machine(out: Path) -> list[str]:
    plugin = build_tool(BUILD / "lab/lines.so", ROOT / "qemu/lines.c", [*C_COMPILER, "-shared", "-fPIC", "-fvisibility=hidden"])
    return [*machine("tcg,thread=multi,tb-size=256", 8), "-plugin", f"{escaped(plugin)},out={escaped(out / 'lines.txt')}"]


def accelerator(bz_image: Path) -> str:
    """KVM if it boots a stock kernel on this machine (the answer is cached), else TCG."""
    if chosen := os.environ.get("ACCEL"):
        return chosen
    tcg = "tcg,thread=multi,tb-size=256"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return tcg
    version = subprocess.run([QEMU, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    key = f"{os.uname().release} {version}"
    answer = CACHE / "kvm-probe"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "kvm-probe.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = answer.read_text().split("\n") if answer.exists() else []
        if old[:1] != [key]:
            old = [key, "yes" if probe_kvm(bz_image) else "no"]
            answer.write_text("\n".join(old))
    return "kvm" if old[1] == "yes" else tcg


def probe_kvm(bz_image: Path) -> bool:
    """Init without a job powers off: an orderly shutdown proves that the kernel booted."""
    initrd = BUILD / "lab/probe.cpio"
    initrd.write_bytes(cpio({"init": (0o100755, init_binary().read_bytes())}))
    ask = '{"execute":"qmp_capabilities"}\n'
    process = subprocess.Popen(
        [*machine("kvm"), "-m", "256", "-cpu", "max", "-kernel", str(bz_image), "-initrd", str(initrd),
         "-append", "console=ttyS0 panic=-1", "-serial", "null", "-qmp", "stdio"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdin
        process.stdin.write(ask)
        process.stdin.flush()
        assert process.stdout
        return '"guest-shutdown"' in read_until_exit(process, 15)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        return False
    finally:
        process.kill()
        process.wait()


def read_until_exit(process: subprocess.Popen[str], seconds: float) -> str:
    assert process.stdout
    process.wait(timeout=seconds)
    return process.stdout.read()


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """b"" at the end, also if QEMU died instead of closing the socket."""
    with contextlib.suppress(ConnectionError):
        return await reader.readline()
    return b""


async def said_by(*command: str) -> str:
    """The output of a program, in one line; empty on success."""
    run = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE,
                                               stderr=asyncio.subprocess.STDOUT)
    said = (await run.communicate())[0].decode().strip().replace("\n", " ")
    return said or ("ok" if run.returncode == 0 else f"error: status {run.returncode}")


class Boot:
    """One guest from its command line to its outcome. Each resume from hibernation starts another QEMU."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.outcome = Outcome(guest)
        self.judge = Judge(self.outcome)
        self.shutdown = ""                 # the reason that QEMU gave for its end
        self.deadline = 0.0
        self.mark = 0                      # position in the trace at the last dma-mark
        self.again = False                 # the next orderly shutdown is a hibernation: start QEMU again
        self.replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.process: asyncio.subprocess.Process | None = None
        self.qmp_writer: asyncio.StreamWriter | None = None
        self.qmp_lock = asyncio.Lock()

    # Files

    def prepare(self) -> None:
        guest = self.guest
        guest.out.mkdir(parents=True, exist_ok=True)
        for name in ("serial.log", "tap.log", "trace.log", "qemu.log"):
            (guest.out / name).unlink(missing_ok=True)
        shutil.rmtree(guest.out / "gcov", ignore_errors=True)
        if not guest.ready_made:
            sparse(guest.path("gpu0"), guest.gpu_mib)
            for disk in guest.topology.disks:
                make_disk(guest.path(disk), guest.disk_mib, SCRATCH_MIB)
        for gpu in guest.topology.more_gpus:
            sparse(guest.path(gpu), MORE_GPU_MIB)
        job = guest.out / "job.env"
        values = {
            "LAB_K": guest.kernel.k, "LAB_VARIANT": guest.kernel.variant, "LAB_TOPOLOGY": guest.topology.name,
            "LAB_LACKS": guest.kernel.lacks,
            "LAB_KERNEL": guest.kernel.home, "LAB_MODULE": guest.kernel.module, "LAB_ROOT": ROOT,
            "LAB_BUILD": BUILD, "LAB_OUT": guest.out, "LAB_DISKS": len(guest.topology.nvme_disks),
            "LAB_GCOV": os.environ.get("PEERDMA_GCOV", ""), **guest.env,
        }
        tests = " ".join(shlex.quote(f"{t.timeout(guest.kernel)}:{t.path}") for t in guest.tests)
        job.write_text("".join(f"export {k}={shlex.quote(str(v))}\n" for k, v in values.items())
                       + f"LAB_TESTS=({tests})\n")
        visible = [ROOT / "qemu/guest.sh", job, ROOT, BUILD, guest.kernel.home]
        if any("\n" in str(path) for path in visible):
            raise LabError("a folder's name has a line break in it")
        in_memory, interpreter = ram.files(BUILD)
        if guest.in_memory:
            in_memory |= self.root(job, interpreter)
        (guest.out / "initrd").write_bytes(cpio({
            "init": (0o100755, init_binary().read_bytes()),
            "job": (0o100644, "".join(f"{path}\n" for path in (interpreter, *visible)).encode()),
            **ram.with_parents(in_memory),
        }))

    def root(self, job: Path, interpreter: Path) -> ram.Files:
        """The host's files that a guest without 9p needs in its memory."""
        guest, modules = self.guest, self.guest.kernel.home / "lib/modules" / self.guest.kernel.release
        programs = [BUILD / "bin" / name for test in guest.tests for name in test.words("programs")]
        module = Path(guest.env.get("LAB_MODULE", guest.kernel.module))
        paths = [ROOT / "qemu/guest.sh", job, *(test.path for test in guest.tests), *(ROOT / "tests/guest").glob("*.sh"),
                 *modules.glob("modules.*"), *modules.glob("kernel/drivers/nvme/**/*.ko*"), module,
                 *module.parent.glob("kmod/*.ko")]
        return ram.root([pattern_binary(), *programs], paths, interpreter)

    def command(self, fds: dict[str, int]) -> list[str]:
        guest, topology = self.guest, self.guest.topology
        accel = accelerator(guest.kernel.home / "bzImage")
        args = (counting_machine() if guest.counting else lines_machine(guest.out) if guest.lines else machine(accel))
        # Without it KASAN reports only the first fault, which may be a known one.
        words = ["kasan_multi_shot"] if guest.kernel.variant == "debug" else []
        # A guest that measures the counter while this machine is busy may get a clock that runs many times too fast.
        if accel.startswith("tcg") and not guest.counting and tsc_khz():
            words.append(f"tsc_early_khz={tsc_khz()}")
        # With five-level pages a timer tick during identify_cpu() crashes a KASAN kernel: Documentation/upstream.
        args += ["-global", "max-x86_64-cpu.la57=off"] if guest.kernel.variant == "debug" else []
        args += ["-m", str(guest.ram_mib), "-kernel", str(guest.kernel.home / "bzImage"),
                 "-initrd", str(guest.out / "initrd"),
                 "-append", " ".join(["console=ttyS0 loglevel=5 panic=-1", *words, topology.cmdline]).strip(),
                 "-chardev", f"file,id=serial,append=on,path={escaped(guest.out / 'serial.log')}",
                 "-serial", "chardev:serial"]
        if not guest.in_memory:
            args += ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                     "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"]
        args += ["-device", "virtio-serial-pci"]
        for port in ("tap", "host"):
            args += ["-chardev", f"socket,id={port},fd={fds[port]}",
                     "-device", f"virtserialport,chardev={port},name={port}"]
        args += ["-chardev", f"socket,id=qmp,fd={fds['qmp']}", "-mon", "chardev=qmp,mode=control",
                 *(word for gpu in ("gpu0", *guest.topology.more_gpus)
                   for word in ("-object", f"memory-backend-file,id={gpu},share=on,mem-path={escaped(guest.path(gpu))},"
                                           f"size={guest.path(gpu).stat().st_size}"))]
        if guest.cable:
            args += ["-netdev", f"dgram,id=cable,local.type=fd,local.str={fds['cable']}",
                     "-device", f"virtio-net-pci,netdev=cable,romfile=,mac={pair.mac(guest.env)}"]
        for disk in topology.disks:
            # The image is deleted, or read after QEMU's orderly end: a flush need not reach the host's disk.
            image = f"format=raw,cache=unsafe,file={escaped(guest.path(disk))}"
            args += ["-drive", f"if=none,id={disk},{guest.drives.get(disk, image)}"]
        if guest.trace:
            args += ["-trace", "pci_nvme_map_addr", "-D", str(guest.out / "trace.log")]
        return args + list(topology.args)

    # The three sockets

    async def read_tap(self, reader: asyncio.StreamReader) -> None:
        with open(self.guest.out / "tap.log", "w", buffering=1) as log:
            while raw := await read_line(reader):
                text = raw.decode(errors="replace").rstrip("\n")
                log.write(text + "\n")
                self.judge.line(text)
                self.guest.say(text)
                self.extend()

    def extend(self) -> None:
        guest, judge = self.guest, self.judge
        self.deadline = time.monotonic() + (judge.limit + guest.grace if judge.current else guest.patience)

    async def read_qmp(self, reader: asyncio.StreamReader) -> None:
        while raw := await read_line(reader):
            message = json.loads(raw)
            if message.get("event") == "SHUTDOWN":
                self.shutdown = message["data"]["reason"]
            elif "return" in message or "error" in message:
                self.replies.put_nowait(message)

    async def qmp(self, command: dict[str, Any], seconds: float = 30) -> dict[str, Any]:
        assert self.qmp_writer
        async with self.qmp_lock:
            self.qmp_writer.write(json.dumps(command).encode() + b"\n")
            return await asyncio.wait_for(self.replies.get(), seconds)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers requests of tests to the host; lib.sh lists them."""
        while raw := await read_line(reader):
            ticket, _, request = raw.decode(errors="replace").strip().partition(" ")
            try:
                answer = await self.answer(request)
            except Exception as error:  # any error: the guest waits for an answer
                answer = f"error: {error!r}"
            writer.write(f"{ticket} {answer}\n".encode())
            with contextlib.suppress(ConnectionError):
                await writer.drain()

    async def answer(self, request: str) -> str:
        verb, _, rest = request.partition(" ")
        if verb == "qmp":
            return "ok " + json.dumps(await self.qmp(json.loads(rest)))
        if verb == "dma-mark":
            self.mark = (self.guest.out / "trace.log").stat().st_size
            return "ok"
        if verb == "dma":
            inside, elsewhere = await self.dma()
            return f"ok gpu0 {inside} elsewhere {elsewhere}"
        if verb == "dma-at":
            ranges = [(int(first, 0), int(end, 0)) for first, _, end in (word.partition(":") for word in rest.split())]
            return f"ok {self.dma_at(ranges)}"
        if verb == "gcov":
            name, counts = rest.split()
            (self.guest.out / "gcov").mkdir(exist_ok=True)
            (self.guest.out / "gcov" / Path(name).name).write_bytes(gzip.decompress(base64.b64decode(counts)))
            return "ok"
        if verb == "again":
            self.again = True
            return "ok"
        if verb == "kill-qemu":
            self.cut()
            return "ok"
        if verb == "replay":
            images = [str(self.guest.path(name)) for name in ("gpu0", "disk0", "disk1", "disk2")]
            return await said_by(str(BUILD / "bin/replay"), *rest.split(), str(self.guest.out / "replay.state"), *images)
        if verb in self.guest.answers:
            return await self.guest.answers[verb](rest)
        if verb not in ("fill", "compare"):
            return f"error: the host does not know {verb!r}"
        target, offset, length, source, *more = shlex.split(rest)
        if verb == "fill" and not self.guest.image(target):
            return "error: the host fills GPUs and disks"
        return await said_by(str(pattern_binary()), verb, self.file(target), offset, length, self.file(source), *more)

    def file(self, name: str) -> str:
        return str(self.guest.image(name) or name)

    # QEMU's record of DMA

    async def bar_window(self) -> tuple[int, int]:
        """First and last address of the GPU's memory BAR."""
        reply = await self.qmp({"execute": "query-pci"})

        def walk(devices: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            for device in devices:
                yield device
                yield from walk(device.get("pci_bridge", {}).get("devices", []))

        for bus in reply["return"]:
            for device in walk(bus["devices"]):
                if device["qdev_id"] == "gpu0":
                    region = next(r for r in device["regions"] if r["bar"] == 2)
                    return region["address"], region["address"] + region["size"] - 1
        raise LabError("QEMU shows no gpu0")

    async def dma(self) -> tuple[int, int]:
        """Bytes that the drives mapped for DMA since the mark: in the GPU's BAR, and elsewhere.

        These are the addresses that the drive used on the bus. If an IOMMU translates, they are not BAR addresses, and
        the counts are not valid.
        """
        first, last = await self.bar_window()
        inside = elsewhere = 0
        for addr, length in self.mapped():
            if first <= addr <= last:
                inside += length
            else:
                elsewhere += length
        return inside, elsewhere

    def dma_at(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Bytes of those that the drives mapped whole within one of these ranges, of first address and end. The addresses
        are those on the bus: with an IOMMU, IOVAs. The record names neither the drive nor the direction."""
        return sum(length for addr, length in self.mapped()
                   if any(first <= addr and addr + length <= end for first, end in ranges))

    def mapped(self) -> Iterator[tuple[int, int]]:
        """Address and length of each piece that the drives mapped for DMA since the mark."""
        with open(self.guest.out / "trace.log") as trace:
            trace.seek(self.mark)
            for line in trace:
                if found := re.search(r"pci_nvme_map_addr addr 0x([0-9a-f]+) len (\d+)", line):
                    yield int(found[1], 16), int(found[2])

    # Running

    async def run(self) -> Outcome:
        start = time.monotonic()
        self.prepare()
        await self.live()
        while self.again and self.shutdown == "guest-shutdown":
            self.again, self.shutdown = False, ""
            await self.live()
        self.judge_end()
        self.outcome.seconds = time.monotonic() - start
        return self.outcome

    async def live(self) -> None:
        """Runs one QEMU from start to end."""
        ours, theirs = {}, {}
        for name in ("tap", "host", "qmp"):
            ours[name], theirs[name] = socket.socketpair()
        if self.guest.cable:
            theirs["cable"] = self.guest.cable
        with open(self.guest.out / "qemu.log", "ab") as log:
            command = self.command({name: s.fileno() for name, s in theirs.items()})
            log.write((shlex.join(command) + "\n").encode())
            log.flush()
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[s.fileno() for s in theirs.values()])
        for s in theirs.values():
            s.close()
        streams = {name: await asyncio.open_connection(sock=s) for name, s in ours.items()}
        self.qmp_writer = streams["qmp"][1]
        self.extend()
        readers = [asyncio.create_task(self.read_tap(streams["tap"][0])),
                   asyncio.create_task(self.read_qmp(streams["qmp"][0])),
                   asyncio.create_task(self.serve(*streams["host"]))]
        # Must come before every other command; the lock is fair.
        hello = asyncio.create_task(self.qmp({"execute": "qmp_capabilities"}))
        try:
            await self.wait()
            # Lines sent before the end are still in the sockets.
            await asyncio.wait(readers, timeout=5)
        finally:
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            for task in (*readers, hello):
                task.cancel()
            for _, writer in streams.values():
                writer.close()
        for task in readers:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    async def wait(self) -> None:
        assert self.process
        ended = asyncio.create_task(self.process.wait())
        while not ended.done():
            left = self.deadline - time.monotonic()
            if left <= 0:
                where = f"in {self.judge.current}" if self.judge.current else "between tests"
                self.judge.fail("timeout", f"the guest was silent {where} for too long", await self.cpus())
                self.process.kill()
            await asyncio.wait([ended], timeout=min(max(left, 0.1), 1))  # a line may bring the deadline nearer

    async def cpus(self) -> list[str]:
        """Where the CPUs are, for the report of a silent guest."""
        asked = {"execute": "human-monitor-command", "arguments": {"command-line": "info registers -a"}}
        try:
            answer = (await self.qmp(asked, 5)).get("return", "")
        except (asyncio.TimeoutError, ConnectionError):
            return ["QEMU's monitor does not answer"]
        return re.findall(r"^CPU#\d+|^RIP=.*(?<!\s)", answer, re.M)

    def cut(self) -> None:
        """Cuts the power."""
        if self.process and self.process.returncode is None:
            self.process.kill()

    def judge_end(self) -> None:
        assert self.process
        status = self.process.returncode
        if status:
            self.judge.fail("qemu", f"QEMU ended with status {status}, see {self.guest.out / 'qemu.log'}")
        elif self.shutdown != "guest-shutdown":
            self.judge.fail("qemu", f"QEMU ended by {self.shutdown or 'itself'}, not by the guest's shutdown")
        self.judge.close()
        kernel = self.guest.kernel
        known = [regex for name in {kernel.k, kernel.name} for regex, _ in known_splats(name)]
        lines = serial_lines(self.guest.out / "serial.log")
        found = list(find_splats(lines, known))
        self.outcome.known_splats.update(entry for entry, _ in found if entry)
        for line in brief([line for entry, line in found if not entry]):
            self.judge.fail("splat", line, test=test_at(lines, line))


def ready_kernel(k: str, variant: str) -> Kernel:
    """A kernel with all that lab.py needs to boot it: modules and the host's tool."""
    found = kernel(k, variant)
    assert found
    make_module(found)
    make_test_modules(found)
    pattern_binary()
    return found


async def boot(guest: Guest, tell: Callable[[str], object] = print) -> Outcome:
    """Boots a guest, with its peer if it has one, until both have ended."""
    def once() -> Awaitable[Outcome]:
        peer = guest.peer()
        return pair.Pair(Boot(guest), Boot(peer)).run() if peer else Boot(guest).run()

    return await again_if_still(once, tell)


async def again_if_still(boot: Callable[[], Awaitable[Outcome]], tell: Callable[[str], object]) -> Outcome:
    """Boots again if the boot stood still: on a busy machine QEMU's emulation sometimes loses a CPU while a kernel
    boots."""
    outcome = await boot()
    if not outcome.stood_still:
        return outcome
    tell("stood still before it said a word: booting once more")
    return await boot()


def folder_of_a_run(path: Path) -> Path:
    """A guest writes to the build folder only, tests that read the run's folder do not find it elsewhere, and the build and
    make check have the other folders there."""
    folder = path.resolve()
    if RUNS not in folder.parents:
        raise LabError(f"-o {path}: expected a folder below {RUNS}")
    return folder


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Refuses a folder in which another guest runs: they would share disks and logs."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LabError(f"a guest runs in {folder}: choose another folder with -o") from None
    finally:
        os.close(lock)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default=os.environ.get("K") or NEWEST, help=f"kernel: {' or '.join(KERNELS)}")
    parser.add_argument("-d", nargs="?", const="1", help="the debug kernel, or the variant named: kcsan, rt")
    parser.add_argument("-t", default=os.environ.get("T") or "switch", help="topology")
    parser.add_argument("-o", type=Path, default=RUNS / "run", help="folder for logs and images, below lab/ of the build folder")
    parser.add_argument("--trace", action="store_true", help="record the drives' DMA")
    parser.add_argument("--gpu", type=int, default=512, help="the GPU's memory in MiB, a power of 2")
    parser.add_argument("--count", action="store_true", help="a clock that counts instructions")
    parser.add_argument("--lines", action="store_true", help="eight CPUs, watched for cache lines that two of them write")
    parser.add_argument("tests", type=Path, nargs="*")
    args = parser.parse_args()
    out = folder_of_a_run(args.o)
    found = ready_kernel(args.k, variant_of(args.d))
    guest = Guest(found, Topology.load(args.t), [Test.load(t) for t in args.tests], out, args.gpu, trace=args.trace,
                  counting=args.count, lines=args.lines, patience=180 if args.d else 60, say=print)
    with alone_in(out):
        outcome = asyncio.run(boot(guest))
    for reason in outcome.reasons:
        print("\n  ".join([f"FAILED {reason}", *reason.notes]))
    print(f"{'good' if outcome.ok else 'bad'} run of {outcome.seconds:.1f} s, logs in {outcome.guest.out}")
    return 0 if outcome.ok else 1


def as_command(main: Callable[[], int]) -> NoReturn:
    """Runs a command's main function; an error of the lab is reported in one line. SIGTERM ends it as an interrupt does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    as_command(main)
