#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make check`, `check-quick` and `check-all`: host tests, must-fail runs of the lab, guest tests.

Environment: TIER=quick|check|all (default: all). K=kernel of the lab, DEBUG=1|kcsan|rt, T=topology, GROUP=host|meta|(a
guest test's group) and TEST=name, or several with commas between them, select from everything. CHANGED=1 selects what the
files that differ from the upstream branch can affect (tests/changed.py). SHORT=1 leaves out of "all" the guest tests marked
"# long:" for the kernel, which "check" leaves out too; SHORT=2, for a check that has built the kernels, has the host tests of
"check", leaves out the guest tests marked "# longer:" as well, and on older kernels has the first topology of each test only.
Both leave out the debug build's tests that name none of DEBUG_TOPOLOGIES.
LIMIT=SECONDS, for "all": tests of "check" begin before all others and are always run; the others begin within this time or are
skipped with that reason. One boot serves all tests of a kernel and topology. A kernel that is missing from the cache is built meanwhile.

  quick   host tests except those marked "# tier: check" or "all"; guest tests marked "# tier: quick", on the newest
          kernel
  check   host tests except those marked "# tier: all"; guest tests except those marked so, on the newest kernel, on the
          test's first topology and on those of its "# check:"; those marked "# tier: debug" on the newest kernel's debug
          build too, if it is in the cache
  all     everything: each kernel plain on all topologies, the newest one's debug build on DEBUG_TOPOLOGIES, and on the
          first topology of a test that names none of these
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent / "power"),
                str(Path(__file__).resolve().parent.parent / "qemu")]
import lab  # noqa: E402
import powercut  # noqa: E402
from changed import Affected  # noqa: E402

NEWEST, OLDEST = lab.NEWEST, lab.OLDEST
DEBUG_TOPOLOGIES = ("switch", "edu", "sleep")  # by default, of a test that names one: a debug guest is slow
TIERS = ("quick", "check", "all")
HOST_NICE = 10  # below the guests, some tests of which measure time, and below the build of a kernel that they wait for
HOST_TIMEOUT = 1800  # cufile_unit_threads takes 185 s alone, and more than 600 s beside two guests
FINAL_NOTES = 6  # lines of each failure that are printed once more at the end
# For the order of jobs only.
LONG_SECONDS, SHORT_SECONDS, BOOT_SECONDS = 100, 10, 60
STOP_SECONDS = 5  # for what is ended early to remove what it has made
POWER_SEED = 1  # of the single power cut; powercut.py makes any number


@dataclass
class Result:
    where: str   # host, meta, 7.2/switch
    test: str
    text: str
    status: str  # passed, failed, skipped
    reason: str = ""
    notes: list[str] = field(default_factory=list)  # of one that failed: the first lines


@dataclass
class Took:
    """The duration of a test. work: seconds of the guest's CPUs, added up. wait: what remains of the duration, or 0 if two
    CPUs worked at once. None for host tests and boots."""
    where: str
    test: str
    seconds: float
    work: float | None = None

    @property
    def wait(self) -> float | None:
        return None if self.work is None else max(0.0, self.seconds - self.work)


class OutOfTime(Exception):
    """LIMIT has passed."""


class Report:
    """Prints each result at once, and the totals at the end."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.slow: list[str] = []
        self.times: list[Took] = []
        self.boots: dict[str, list[str]] = {}  # the tests of each boot, by its place
        self.start = time.monotonic()

    def step(self, text: str) -> None:
        print(f"==> [{time.monotonic() - self.start:4.0f} s] {text}", flush=True)

    def add(self, where: str, test: str, text: str, status: str, reason: str = "",
            notes: list[str] | None = None) -> None:
        notes = (notes or []) if status == "failed" else []
        self.results.append(Result(where, test, text, status, reason, notes[:FINAL_NOTES]))
        label = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[status]
        what = test if text in ("", test) else f"{test}: {text}"
        print(f"{label} {where:<16} {what}{f'  # {reason}' if reason else ''}", flush=True)
        for note in notes:
            self.note(note)

    @staticmethod
    def note(text: str) -> None:
        print(f"     {'':<16} {text}", flush=True)

    def count(self, status: str) -> int:
        return sum(result.status == status for result in self.results)

    def show_times(self) -> None:
        print(f"{'seconds':>8} {'work':>7} {'wait':>7}  where and test")
        for took in sorted(self.times, key=lambda took: -took.seconds):
            work, wait = ("" if value is None else f"{value:.1f}" for value in (took.work, took.wait))
            print(f"{took.seconds:8.1f} {work:>7} {wait:>7}  {took.where} {took.test}")

    def close(self, show_times: bool = False, may_be_empty: bool = False) -> int:
        passed, failed, skipped = (self.count(s) for s in ("passed", "failed", "skipped"))
        if show_times:
            self.show_times()
        for text in self.slow:
            print(f"slow {text}")
        repeat: dict[str, None] = {}
        for result in self.results:
            if result.status == "failed":
                print(f"FAIL {result.where} {result.test}: {result.text or result.reason}")
                for note in result.notes:
                    self.note(note)
                repeat[repeat_command(result, self.boots.get(result.where, []))] = None
        if repeat:
            print("To repeat what failed:", *(f"  {command}" for command in repeat), sep="\n")
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
        return 1 if failed or not (passed or may_be_empty) else 0


def repeat_command(result: Result, boot: list[str]) -> str:
    """The command that runs a result's test again, alone. boot: the tests of its boot."""
    words = [f"{name}={shlex.quote(os.environ[name])}" for name in ("KSRC", "ACCEL") if os.environ.get(name)]
    build = shlex.quote(str(lab.BUILD)) if lab.BUILD != lab.ROOT / "build" else ""
    if build:
        words.append(f"BUILD={build}")
    first, _, rest = result.where.partition("/")
    if first == "host" and result.test == "tests":
        return "make check-quick"
    if first == "host":
        program = next((path for path in built_host_tests() if path.stem == result.test), None)
        if program and re.fullmatch(r"[\w/]+\.[\w/]+", result.text):
            made = "make -s -C tests most" if program.stem == "kernel_logic" else "scripts/user.sh host-tests-all"
            again = f"{made} && {os.path.relpath(program, lab.ROOT)} --gtest_filter={result.text}"
            return f"export PEERDMA_BUILD={build}; {again}" if build else again
        return " ".join(["make check GROUP=host", f"TEST={result.test}", *words])
    if first == "kernel":
        return " ".join([*(word for word in words if word.startswith("KSRC=")), "qemu/kernel.sh path", result.test])
    if result.test == "splats":
        return "make check-all"
    kernel, topology = (rest, "") if first == "meta" else (first, rest.partition("/")[0])
    k, _, variant = kernel.partition("-")
    chosen = [f"K={k}", {"": "", "gcov": "", "debug": "DEBUG=1"}.get(variant, f"DEBUG={variant}")]
    chosen.append("GROUP=meta" if first == "meta" else f"T={topology}" if topology not in ("", "power") else "")
    # Each test needs the modules, and this one is of each kernel.
    names = {"boot": boot, "modules": ["uring"]}.get(result.test, [result.test])
    chosen.append(f"TEST={','.join(names)}" if names else "")
    return " ".join(["make check", *filter(None, chosen), *words])


# --- Selection ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Choice:
    k: str | None
    variant: str  # plain: all that are run by default
    topology: str | None
    group: str | None
    test: str | None = None  # several have commas between them
    tier: str = "all"
    short: int = 0
    limit: int = 0  # seconds; 0: none

    @classmethod
    def from_environment(cls) -> Choice:
        def get(name: str) -> str | None:
            return os.environ.get(name) or None
        choice = cls(get("K"), lab.variant_of(get("DEBUG")), get("T"), get("GROUP"), get("TEST"), get("TIER") or "all")
        short = get("SHORT") or "0"
        if short not in ("0", "1", "2"):
            raise lab.LabError(f"SHORT={short}: expected 1 or 2")
        limit = get("LIMIT") or "0"
        if not limit.isdecimal():
            raise lab.LabError(f"LIMIT={limit}: expected a number of seconds")
        choice = replace(choice, short=int(short), limit=int(limit))
        if choice.tier not in TIERS:
            raise lab.LabError(f"TIER={choice.tier}: expected {', '.join(TIERS)}")
        if choice.selected:
            choice = replace(choice, tier="all", short=0)
        if choice.k not in (None, *lab.KERNELS):
            raise lab.LabError(f"K={choice.k} is not a kernel of the lab: {' or '.join(lab.KERNELS)}")
        if choice.topology:
            lab.Topology.load(choice.topology)
        groups = {"host", "meta"} | {group for test in guest_tests() for group in test.words("group")}
        if choice.group not in (None, *groups):
            raise lab.LabError(f"GROUP={choice.group}: expected {', '.join(sorted(groups))}")
        if unknown := choice.unknown():
            raise lab.LabError(f"TEST={choice.test}: there is no test {' or '.join(unknown)}")
        if choice.limit and not choice.everything:
            raise lab.LabError("LIMIT is for make check-all without a selection")
        return choice

    @property
    def slow(self) -> bool:
        return self.variant != "plain"

    @property
    def selected(self) -> bool:
        return bool(self.k or self.slow or self.topology or self.group or self.test)

    @property
    def everything(self) -> bool:
        return self.tier == "all" and not self.selected

    @property
    def host(self) -> bool:
        return self.group == "host" or not (self.group or self.topology)

    def unknown(self) -> list[str]:
        """Names in TEST of which there is no test."""
        known = {path.stem for path in host_tests()} | host_programs() | {test.name for test in guest_tests()} | {"powercut"}
        known |= {path.stem for path in (lab.ROOT / "tests/meta").glob("*.sh")}
        return [name for name in (self.test or "").split(",") if name and name not in known]

    @property
    def nothing(self) -> str:
        """Why there may be no test."""
        chosen = {"K": self.k, "DEBUG": self.slow and self.variant, "T": self.topology, "GROUP": self.group, "TEST": self.test}
        what = " ".join(f"{key}={value}" for key, value in chosen.items() if value)
        changed = "reads what was changed" if lab.is_on("CHANGED") or not what else ""
        return "no test " + " and ".join(filter(None, (f"is of {what}" if what else "", changed)))

    @property
    def meta(self) -> bool:
        return self.group == "meta" or (self.tier == "all" and not (self.group or self.topology))

    def power(self, variant: str) -> bool:
        return (self.tier == "all" and self.names("powercut") and variant == "plain" and self.group in (None, "fail")
                and self.topology in (None, powercut.TOPOLOGY))

    def names(self, name: str) -> bool:
        return self.test is None or name in self.test.split(",")

    @property
    def kernels(self) -> list[tuple[str, str]]:
        """(K, variant), in the order in which missing kernels are built."""
        if self.tier == "quick":
            return [(NEWEST, "plain")]
        if self.tier == "check":
            return [(NEWEST, "plain"), (NEWEST, "debug")]
        if self.slow:
            return [(self.k or NEWEST, self.variant)]
        if self.k:
            return [(self.k, "plain")]
        return [*((k, "plain") for k in lab.KERNELS), (NEWEST, "debug")]

    def wants(self, test: lab.Test, k: str, variant: str, topology: str) -> bool:
        """Whether the test is selected, apart from the kernel: see why_not."""
        if self.tier != "all":
            marks = test.words("tier")
            marked = ("quick" in marks if self.tier == "quick" else
                      "debug" in marks if variant == "debug" else "all" not in marks)
            there = [test.words("topologies")[0], *(test.words("check") if self.tier == "check" and variant == "plain" else [])]
            return marked and topology in there and test.is_for(variant)
        if self.short > 1 and k != NEWEST and topology != test.words("topologies")[0]:
            return False
        by_default = variant == "plain" or self.slow or self.topology or topology in debug_topologies(test)
        return bool(self.names(test.name) and by_default and topology in test.words("topologies")
                    and self.topology in (None, topology)
                    and (self.group is None or self.group in test.words("group"))
                    and test.is_for(variant))

    def wants_host(self, path: Path) -> bool:
        return TIERS.index(first_tier(path)) <= TIERS.index(self.host_tier)

    @property
    def host_tier(self) -> str:
        return "check" if self.short > 1 else self.tier

    def is_first(self, test: lab.Test, k: str, variant: str, topology: str) -> bool:
        """Whether "check" has the test there too."""
        check = replace(self, tier="check", short=0)
        return (k, variant) in check.kernels and check.wants(test, k, variant, topology) and not check.why_not(test, k, variant)

    def why_not(self, test: lab.Test, k: str, variant: str) -> str:
        """Why a selected test is skipped, or ""."""
        if not test.is_on(k):
            return f"not for {k}: {test.why_not_on(k)}"
        command = f"make check K={k}{' DEBUG=1' if variant == 'debug' else ''} TEST={test.name}"
        if self.short and variant == "debug" and not set(DEBUG_TOPOLOGIES) & set(test.words("topologies")):
            return f"its topology: {command}"
        if (self.tier != "all" or self.short) and test.is_long(k, variant) or self.short > 1 and test.is_long(k, variant, "longer"):
            return f"long: {command}"
        return ""


def debug_topologies(test: lab.Test) -> list[str]:
    """Where check-all runs it on a debug kernel."""
    there = test.words("topologies")
    return [name for name in there if name in DEBUG_TOPOLOGIES] or there[:1]


def first_tier(path: Path) -> str:
    """The first tier that a host test is part of: its header names it, or a program's folder."""
    if path.suffix and (found := re.search(r"^# tier: (\w+)$", path.read_text(), re.M)):
        return found[1]
    return path.parent.name if path.parent.name in TIERS else "quick"


def guest_tests() -> list[lab.Test]:
    tests = [lab.Test.load(path) for path in (*lab.guest_scripts(), *sorted((lab.ROOT / "tests/perf").glob("*.sh")))]
    for test in tests:
        if test.path.parent.name == "perf" and test.words("group") not in ([], ["bench"], ["perf"]):
            raise lab.LabError(f"{test.path}: its group is neither perf nor bench")
    tests = [test for test in tests if test.path.parent.name != "perf" or test.words("group") == ["perf"]]  # the others are for make bench
    for path in (lab.ROOT / "tests/guest").glob("*.sh"):
        if lab.Test.load(path).words("group"):
            raise lab.LabError(f"{path}: expected in a folder of tests/guest, as it has a group")
    for name, nr in Counter(test.name for test in tests).items():
        if nr > 1:
            raise lab.LabError(f"{nr} guest tests have the name {name}")
    for test in tests:
        if not test.words("group") or not test.words("topologies"):
            raise lab.LabError(f"{test.path} does not say its group and topologies")
        if bool(test.words("kernels")) != ("because" in test.notes):
            raise lab.LabError(f"{test.path}: # kernels and # because: expected both or neither")
        for name in test.words("topologies"):
            lab.Topology.load(name)
        if odd := set(test.words("check")) - set(test.words("topologies")):
            raise lab.LabError(f"{test.path}: none of its topologies: {' '.join(sorted(odd))}")
    return tests


def missing_needs(test: lab.Test, kernel: lab.Kernel) -> list[str]:
    """The entries of a test's "needs" that the kernel's configuration or the host's commands lack."""
    config = (kernel.home / "config").read_text()
    path = f"{lab.BUILD / 'bin'}:/usr/sbin:/sbin:{os.environ.get('PATH', '')}"
    return [need for need in test.words("needs")
            if not (re.search(rf"^{need}=[ym]$", config, re.M) if need.startswith("CONFIG_")
                    else shutil.which(need, path=path))]


# --- Host tests -----------------------------------------------------------------------------------

def host_programs(folder: str = "(?:all/)?") -> set[str]:
    """The programs that are built to be host tests. Another one in their folder was left by an earlier commit."""
    makefiles = [(lab.ROOT / part / "Makefile").read_text() for part in ("user", "tests")]
    return {name for text in makefiles for name in re.findall(rf"tests/host/{folder}(\w+)$", text, re.M)}


def built_host_tests() -> list[Path]:
    folder, names = lab.BUILD / "tests/host", host_programs()
    return sorted(p for p in (*folder.glob("*"), *folder.glob("all/*")) if p.name in names and p.is_file() and os.access(p, os.X_OK))


def host_tests() -> list[Path]:
    scripts = [p for p in (lab.ROOT / "tests/host").rglob("*")
               if p.suffix in (".py", ".sh") and os.access(p, os.X_OK)]
    return built_host_tests() + sorted(scripts, key=lambda path: path.name)


GTEST = re.compile(r"\[\s*(OK|FAILED|SKIPPED)\s*\] (\S+?)(?:,.*)? \(\d+ ms\)$")
TAP = re.compile(r"(not )?ok\b\s*\d*\s*-?\s*(.*?)(?:\s*# *skip\w*\s*(.*))?$", re.I)
PLAN = re.compile(r"(?:1\.\.(\d+)\s*(?:# *skip\w*\s*(.*))?|\[=+\] Running (\d+) tests? .*)$", re.I)


async def output_of(*words: str, timeout: float | None = None, **options: Any) -> tuple[int, bytes]:
    """The status and the output of a command. If it does not come to its end, it and all that it has started is ended; if this
    process is killed, it is asked to end."""
    out = None
    start = asyncio.ensure_future(asyncio.create_subprocess_exec(
        "setpriv", "--pdeathsig", "TERM", "--", *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True, **options))
    try:
        out, _ = await asyncio.wait_for((await asyncio.shield(start)).communicate(), timeout)
    finally:
        process = await start
        # It may have ended and what it has started may not.
        if out is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode is not None
    return process.returncode, out


async def run_host_test(path: Path, report: Report, tier: str = "all") -> None:
    start = time.monotonic()
    name = path.stem
    try:
        status, raw = await output_of(
            "nice", "-n", str(HOST_NICE), str(path), cwd=lab.ROOT, stderr=asyncio.subprocess.STDOUT,
            env=os.environ | {"PEERDMA_BUILD": str(lab.BUILD), "TIER": tier}, timeout=HOST_TIMEOUT)
    except asyncio.TimeoutError:
        report.add("host", name, "", "failed", f"not done after {HOST_TIMEOUT} s")
        return
    finally:
        report.times.append(Took("host", name, time.monotonic() - start))
    seen, plan, notes = 0, None, []
    skipped = None  # why there is nothing to run
    failed = explains = False  # explains: a test of TAP has failed, and "#" lines behind it say why
    for text in raw.decode(errors="replace").splitlines():
        if found := GTEST.search(text):
            end = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[found[1]]
            report.add("host", name, found[2], end, notes[-1].strip() if end == "skipped" and notes else "", notes)
        elif found := TAP.match(text):
            end = "failed" if found[1] else "skipped" if found[3] is not None else "passed"
            report.add("host", name, found[2], end, found[3] or "", notes)
            explains = end == "failed"
        elif explains and text.startswith("#"):
            report.note(text)
            continue
        else:
            if found := PLAN.match(text):
                plan, skipped = int(found[1] or found[3]), found[2]
            notes.append(text)
            continue
        seen, failed, notes = seen + 1, failed or end == "failed", []
    if status and not failed:
        report.add("host", name, "", "failed", f"ended with status {status}", notes[-40:])
    elif plan is None or plan != seen:
        report.add("host", name, "", "failed", f"planned {plan}, showed {seen}", notes[-40:])
    elif plan == 0:
        report.add("host", name, "", "skipped" if skipped else "failed", skipped or "it has no test", notes[-40:])


# --- Guests ---------------------------------------------------------------------------------------

class Slots:
    """At most nr jobs run at once. Of those that wait, the longest begins first, so that none runs alone at the end."""

    def __init__(self, nr: int) -> None:
        self.free = nr
        self.waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self.arrivals = itertools.count()

    @contextlib.asynccontextmanager
    async def take(self, seconds: float) -> AsyncIterator[None]:
        """seconds: how long the job may take."""
        if self.free:
            self.free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            heapq.heappush(self.waiting, (-seconds, next(self.arrivals), turn))
            await turn
        try:
            yield
        finally:
            self.pass_on()

    def pass_on(self) -> None:
        """Gives a slot to a job that waits, or adds it to those that are free."""
        while self.waiting:
            turn = heapq.heappop(self.waiting)[2]
            if not turn.done():  # its job was ended while it waited
                turn.set_result(None)
                return
        self.free += 1


class Check:
    def __init__(self, choice: Choice, report: Report, affected: Affected | None = None) -> None:
        self.choice, self.report, self.affected = choice, report, affected or Affected.everything()
        # A guest has two CPUs but mostly uses one, so run as many guests as the host has CPUs. One host test more uses
        # the time in which guests wait, and once there is none, one guest more; not of check-all, whose debug guests are slow
        # enough.
        cpus = os.cpu_count() or 1
        self.guests, self.jobs = Slots(cpus), Slots(cpus + 1)
        self.host_tests_left = 0
        self.make_lock = asyncio.Lock()
        self.kernels: dict[tuple[str, str], asyncio.Future[lab.Kernel | None]] = {}
        self.used_splats: dict[str, set[str]] = {}
        self.left_out: list[str] = []  # tests that the changes affect, of another tier
        self.late: set[str] = set()    # places of jobs that did not begin within the limit
        # With a limit: the jobs of "check" that have not begun yet, by place and test. The others wait for them.
        self.first: set[tuple[str, str]] = set()
        self.first_have_begun = asyncio.Event()

    def left(self) -> float | None:
        """Seconds of the limit, if there is one."""
        return self.choice.limit - (time.monotonic() - self.report.start) if self.choice.limit else None

    def begins(self, where: str, test: str) -> None:
        self.first.discard((where, test))
        if not self.first:
            self.first_have_begun.set()

    @property
    def is_late(self) -> bool:
        left = self.left()
        return left is not None and left <= 0

    @property
    def not_begun(self) -> str:
        return f"not begun within LIMIT={self.choice.limit} s"

    def in_time(self, first: bool) -> None:
        if self.is_late and not first:
            raise OutOfTime(self.not_begun)

    async def provide_kernels(self) -> None:
        """Provides cached kernels at once, then builds the missing ones, one after another."""
        missing = []
        # The debug kernel's guests take longest, so they start first.
        for key in reversed(self.kernels):
            if kernel := await asyncio.to_thread(lab.kernel, *key, False):
                await self.provide(key, kernel)
            else:
                missing.append(key)
        for key in reversed(missing):
            self.report.step(f"kernel {' '.join(key)} is not in the cache yet")
            # "check" needs this one.
            left = None if key == (NEWEST, "plain") else self.left()
            try:
                # A thread would go on if this were ended.
                status, _ = await output_of(str(lab.ROOT / "qemu/kernel.sh"), "path", *key, timeout=left if left is None else max(left, 0))
                if status:
                    raise lab.LabError(f"no kernel {' '.join(key)}")
                await self.provide(key, await asyncio.to_thread(lab.kernel, *key, False))
            except Exception as error:
                if isinstance(error, asyncio.TimeoutError) and left is not None:
                    # It may have come while another one was waited for.
                    if kernel := await asyncio.to_thread(lab.kernel, *key, False):
                        await self.provide(key, kernel)
                    else:
                        self.kernels[key].set_exception(OutOfTime(f"its kernel was not there within LIMIT={self.choice.limit} s"))
                    continue
                self.report.add("kernel", " ".join(key), "", "failed", str(error))
                self.kernels[key].set_result(None)

    async def provide(self, key: tuple[str, str], kernel: lab.Kernel | None) -> None:
        assert kernel
        self.report.step(f"kernel {kernel.name} is {(kernel.home / 'version').read_text().strip()}: building modules")
        usable = True
        async with self.make_lock:
            for make in (lab.make_test_modules, lab.make_module):
                try:
                    await asyncio.to_thread(make, kernel)
                except (lab.LabError, OSError) as error:
                    self.report.add(kernel.name, "modules", "", "failed", str(error))
                    usable = False
        self.kernels[key].set_result(kernel if usable else None)

    @contextlib.asynccontextmanager
    async def guest_slot(self, seconds: float, first: bool = False) -> AsyncIterator[None]:
        async with self.guests.take(seconds), self.jobs.take(seconds):
            self.in_time(first)
            yield

    async def boot(self, guest: lab.Guest, where: str, first: list[lab.Test] | None = None) -> lab.Outcome:
        """first: of the guest's tests those of "check", which are all that it has after the limit."""
        async with self.guest_slot(sum(test.timeout(guest.kernel) for test in guest.tests), bool(first)):
            self.begins(where, "boot")
            if first and self.is_late:
                for test in guest.tests:
                    if test not in first:
                        self.report.add(where, test.name, "", "skipped", self.not_begun)
                        self.late.add(where)
                guest.tests = first
            self.report.step(f"{where}: booting for {' '.join(test.name for test in guest.tests)}")
            return await lab.boot(guest, lambda text: self.report.step(f"{where}: {text}"))

    def guest(self, kernel: lab.Kernel, topology: str, tests: list[lab.Test], name: str, boot: str = "") -> lab.Guest:
        slow, counting = kernel.slow, boot == "counting"
        return lab.Guest(kernel, lab.Topology.load(topology), tests, lab.BUILD / "check" / name,
                         gpu_mib={"large": 4096, "fuzz": 64}.get(boot, 512), ram_mib=1536 if slow else 1024,
                         patience=180 if slow else 60, trace=not counting, counting=counting, lines=boot == "lines")

    async def guest_boot(self, key: tuple[str, str], topology: str, boot: str, tests: list[lab.Test]) -> None:
        kernel = await self.kernels[key]
        if not kernel:
            return
        where = f"{kernel.name}/{topology}{boot and '/' + boot}"
        runnable = []
        for test in tests:
            if lacking := missing_needs(test, kernel):
                self.report.add(where, test.name, "", "skipped", f"needs {' '.join(lacking)}")
            else:
                runnable.append(test)
        if not runnable:
            return
        guest = self.guest(kernel, topology, runnable, where.replace("/", "-"), boot)
        first = [test for test in runnable if self.choice.is_first(test, *key, topology)]
        outcome = await self.boot(guest, where, first)
        runnable = guest.tests
        self.report.boots[where] = [test.name for test in runnable]
        self.used_splats.setdefault(kernel.k, set()).update(outcome.known_splats)
        self.report.slow += [f"{where} {text}" for text in outcome.slow]
        self.report.times += [Took(where, took.test, took.seconds, took.work) for took in outcome.times]
        around = outcome.seconds - sum(took.seconds for took in outcome.times)
        self.report.times.append(Took(where, "boot and end", around))
        names = [test.name for test in runnable]
        for line in outcome.lines:
            status = "failed" if not line.ok else "passed" if line.skip is None else "skipped"
            # Of the second guest; the test is named by the first one.
            test, text = (line.test, line.text) if line.test in names else (names[0], f"{line.test}: {line.text}")
            self.report.add(where, test, text, status, line.skip or "", line.notes)
        tail = [f"| {text}" for text in outcome.serial_tail()]
        for reason in outcome.reasons:
            if reason.kind != "not-ok":  # these lines were already printed
                self.report.add(where, reason.test if reason.test in names else "boot", str(reason), "failed", "", reason.notes + tail)
                tail = []
        if outcome.ok:
            text = f"orderly end, nothing left behind, clean log ({outcome.seconds:.1f} s)"
            self.report.add(where, "boot", text, "passed")
        else:
            self.report.note(f"logs: {guest.out}")
        self.tidy(outcome)

    async def meta_boot(self, key: tuple[str, str], test: lab.Test) -> None:
        """A run that must fail for the reason in its header."""
        kernel = await self.kernels[key]
        if not kernel:
            return
        topology = test.words("topologies", "switch")[0]
        where = f"meta/{kernel.name}"
        if lacking := missing_needs(test, kernel):
            self.report.add(where, test.name, "", "skipped", f"needs {' '.join(lacking)}")
            return
        guest = self.guest(kernel, topology, [test], f"meta-{kernel.name}-{test.name}")
        guest.gpu_mib, guest.disk_mib = 64, 64
        guest.grace = int(test.notes.get("grace", guest.grace))
        outcome = await self.boot(guest, where)
        self.report.times.append(Took(where, test.name, outcome.seconds))
        got = [f"the lab said: {reason}" for reason in outcome.reasons] or ["the lab found nothing wrong"]
        wanted = [want.strip() for key in ("must-fail", "also") for want in test.notes.get(key, "").split(";") if want]
        unmet = [want for want in wanted
                 if not any(reason.kind == want.split()[0]
                            and re.search(want.partition(" ")[2], "\n".join([reason.detail, *reason.notes]))
                            for reason in outcome.reasons)]
        if not wanted:
            self.report.add(where, test.name, "", "failed", "its header has no must-fail")
        elif unmet:
            self.report.add(where, test.name, f"the lab must fail with {', '.join(unmet)}", "failed", "", got)
        else:
            self.report.add(where, test.name, f"fails as it must: {' and '.join(wanted)}", "passed")
            shutil.rmtree(guest.out)

    async def power_cut(self, key: tuple[str, str]) -> None:
        """Kills a guest while it writes, and checks what it finds when it boots again."""
        kernel = await self.kernels[key]
        if not kernel:
            return
        where = f"{kernel.name}/power"
        out = lab.BUILD / "check" / where.replace("/", "-")
        async with self.guest_slot(BOOT_SECONDS):
            self.report.step(f"{where}: booting to lose power, and once more")
            start = time.monotonic()
            says, wrong = await powercut.one_round(kernel, out, POWER_SEED,
                                                   tell=lambda text: self.report.step(f"{where}: {text}"))
        self.report.times.append(Took(where, "powercut", time.monotonic() - start))
        if wrong:
            self.report.add(where, "powercut", "what was synced is there", "failed", "", wrong[:60])
        else:
            self.report.add(where, "powercut", says, "passed")
            shutil.rmtree(out)

    @staticmethod
    def tidy(outcome: lab.Outcome) -> None:
        """Keeps the logs; removes disks and GPU memory of a successful run."""
        if outcome.ok:
            for path in (*outcome.guest.out.rglob("*.img"), *outcome.guest.out.rglob("gpu-bar.mem")):
                path.unlink(missing_ok=True)

    async def reported(self, where: str, test: str, job: Callable[[], Awaitable[None]], tests: list[str]) -> None:
        """A job that cannot be done is a failure; the others go on. tests: all of the job."""
        try:
            if self.choice.limit and (where, test) not in self.first:
                await self.first_have_begun.wait()
            await job()
        except OutOfTime as error:
            self.late.add(where)
            for name in tests:
                self.report.add(where, name, "", "skipped", str(error))
        except Exception as error:
            notes = [] if isinstance(error, lab.LabError) else traceback.format_exc().splitlines()
            self.report.add(where, test, "", "failed", str(error) or type(error).__name__, notes)
        finally:
            self.begins(where, test)

    def plan(self) -> list[asyncio.Task[None]]:
        """All jobs."""
        jobs: list[tuple[str, str, Callable[[], Awaitable[None]], list[str]]] = []  # place, test, what to do, all its tests
        choice = self.choice
        affects = self.affected
        tests = [test for test in guest_tests() if affects.guest(test.name, test.words("group"), test.path)]
        metas = [lab.Test.load(path) for path in sorted((lab.ROOT / "tests/meta").glob("*.sh")) if affects.meta(path)]
        # The affected tests, by kind and name; whether they are of this tier.
        chosen = {("meta", test.name): choice.meta for test in metas}
        if affects.power:
            chosen["power", "powercut"] = choice.tier == "all"
        # Not there before check-all builds them.
        chosen |= {("host", name): False for name in host_programs("all/") if choice.tier != "all" and affects.host(Path(name))}
        metas = [test for test in metas if choice.meta and choice.names(test.name)]
        for path in host_tests() if choice.host else []:
            if choice.names(path.stem) and affects.host(path):
                if chosen.setdefault(("host", path.stem), choice.wants_host(path)):
                    jobs.append(("host", path.stem, partial(self.host_test, path), [path.stem]))
                    if first_tier(path) != "all":
                        self.first.add(("host", path.stem))
        for k, variant in reversed(choice.kernels):
            key = (k, variant)
            name = k if variant == "plain" else f"{k}-{variant}"
            if choice.tier == "check" and variant == "debug" and not lab.kernel(k, variant, False):
                self.report.add(name, "all tests", "", "skipped", f"its kernel is not in the cache: qemu/kernel.sh path {k} {variant} builds it")
                continue
            wanted: dict[tuple[str, str], list[lab.Test]] = {}  # by topology and kind of boot
            for test in tests:
                chosen.setdefault(("guest", test.name), False)
                for topology in test.words("topologies"):
                    if not choice.wants(test, k, variant, topology):
                        continue
                    if why_not := choice.why_not(test, k, variant):
                        self.report.add(name, test.name, "", "skipped", why_not)
                    else:
                        chosen["guest", test.name] = True
                        wanted.setdefault((topology, test.boot), []).append(test)
            must_fail = [test for test in metas
                         if variant in test.words("variants", choice.variant)
                         and (choice.k or k == NEWEST)]
            power = choice.power(variant) and affects.power
            if wanted or must_fail or power:
                self.kernels[key] = asyncio.get_running_loop().create_future()
            # As "check" does, a debug kernel that is not in the cache is not waited for.
            is_awaited = variant == "plain" or choice.limit and lab.kernel(k, variant, False)
            for how, some in wanted.items():
                where = "/".join([name, *filter(None, how)])
                names = self.report.boots[where] = [test.name for test in some]
                jobs.append((where, "boot", partial(self.guest_boot, key, *how, some), names))
                if is_awaited and any(choice.is_first(test, k, variant, how[0]) for test in some):
                    self.first.add((where, "boot"))
            jobs += [(f"meta/{name}", test.name, partial(self.meta_boot, key, test), [test.name]) for test in must_fail]
            jobs += [(f"{name}/power", "powercut", partial(self.power_cut, key), ["powercut"])] if power else []
        if not choice.selected:
            self.left_out = sorted({name for (_, name), is_of_tier in chosen.items() if not is_of_tier})
        # Built in the order of choice.kernels, used as they become available.
        self.kernels = {key: self.kernels[key] for key in choice.kernels if key in self.kernels}
        self.host_tests_left = sum(where == "host" for where, *_ in jobs)
        self.begins("", "")
        return [asyncio.create_task(self.reported(*job)) for job in jobs]

    async def host_test(self, path: Path) -> None:
        short = path.suffix and first_tier(path) == "quick"
        try:
            async with self.jobs.take(SHORT_SECONDS if short else LONG_SECONDS):
                self.in_time(first_tier(path) != "all")
                self.begins("host", path.stem)
                await run_host_test(path, self.report, self.choice.host_tier)
        finally:
            self.host_tests_left -= 1
            if not self.host_tests_left and self.choice.tier != "all":
                self.guests.pass_on()

    def incomplete(self) -> set[str]:
        """The kernels of which something did not run to its end."""
        places = {result.where.removeprefix("meta/") if result.where != "kernel" else result.test for result in self.report.results
                  if result.status == "failed" and (result.where == "kernel" or result.test in ("boot", "modules"))} | self.late
        return {k for k in lab.KERNELS for place in places if re.match(rf"{re.escape(k)}(?![\d.])", place)}

    async def run(self) -> None:
        tasks = self.plan()
        if self.choice.host and not built_host_tests():
            self.report.add("host", "tests", "", "failed", "none was built")
        if not tasks and not self.left_out:
            self.report.step(f"nothing to run: {self.choice.nothing}")
        await asyncio.gather(self.provide_kernels(), *tasks)
        if self.left_out:
            names = f"{len(self.left_out)} tests" if self.choice.tier == "quick" and self.affected.all else " ".join(self.left_out)
            others = f", and all on {' and '.join([*lab.KERNELS[1:], 'a debug kernel'])} and each topology" if self.affected.all else ""
            self.report.step(f"left to make check-all{'' if self.affected.all else ' CHANGED=1'}: {names}{others}")
        if self.late:
            self.report.step(f"not begun within LIMIT={self.choice.limit} s, whole or in part: {' '.join(sorted(self.late))}")
        if self.choice.everything and self.choice.short > 1:
            programs = host_programs("all/") | {path.stem for path in host_tests() if first_tier(path) == "all"}
            self.report.step(f"left to make check-all SHORT=1: {' '.join(sorted(programs))}, "
                             f"most paths of cufile_ways, and on {' and '.join(lab.KERNELS[1:])} all topologies of a test but the first")
        elif self.choice.everything and self.affected.all:
            for k in {k for k, _ in self.kernels} - self.incomplete():
                for regex, reason in lab.known_splats(k):
                    if regex not in self.used_splats.get(k, set()):
                        self.report.add(k, "splats", regex, "failed", f"no longer met: remove it ({reason})")


def keep_the_run_before(folder: Path) -> None:
    """A failure that is repeated leaves what the first one has left."""
    before = folder.with_name(f"{folder.name}-before")
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)
        folder.rename(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--times", action="store_true", help="also print how long each test took, the longest first")
    parser.add_argument("--validate", action="store_true", help="only refuse a selection that is not valid")
    args = parser.parse_args()
    choice = Choice.from_environment()
    if args.validate:
        return 0
    report = Report()
    affected = Affected.of_changes(lab.ROOT) if lab.is_on("CHANGED") else Affected.everything()
    report.step(affected.text)
    if lab.is_on("SHORT") and not choice.short:
        report.step(f"SHORT={os.environ['SHORT']} changes nothing here: it is for make check-all without a selection")
    lab.init_binary()
    lab.pattern_binary()
    keep_the_run_before(lab.BUILD / "check")
    check = Check(choice, report, affected)
    last = "ended early: what had not come to its end is not counted"
    try:
        asyncio.run(check.run())
        last = "done"
    finally:
        report.step(last)
        status = report.close(args.times, may_be_empty=not (affected.all or choice.selected))
    if args.json:
        args.json.write_text(json.dumps({"results": [asdict(result) for result in report.results],
                                         "times": [asdict(took) for took in report.times]}, indent=1) + "\n")
    return status


if __name__ == "__main__":
    lab.as_command(main)
