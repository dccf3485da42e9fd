#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The engine of `make mutants`: can each test that a mutant names really fail?

tests/mutants/NAME.mutant breaks the module in one place (syntax: tests/mutation.py). Its header has lines of the
form "# key: value": the damage to a user (breaks), the guest test that must notice (test), and the complaint (must: a
regex of a failing line with its diagnostics, or of a reason of the lab, as "splat: ..."). Optional: variant: debug,
environment: NAME=value, and topology: one of the test's. The module is built from a copy of the tree with the
change, and a guest runs the one test with it.

--compile runs no guest: it compiles the changed files, which takes seconds for each mutant.

Environment: K=kernel of the lab, NAME=mutant, or a pattern of names: "limit-*".
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "qemu"), str(Path(__file__).resolve().parent)]
import lab  # noqa: E402
import mutation  # noqa: E402

MUTANTS = lab.ROOT / "tests/mutants"
HOME = lab.BUILD / "mutants"
NEEDED = ("kernel", "scripts", "include/uapi")  # inputs of the module's build


@dataclass(frozen=True)
class Mutant:
    path: Path
    notes: dict[str, str]

    @classmethod
    def load(cls, path: Path) -> Mutant:
        notes = lab.Test.load(path).notes  # the same form of header
        wanted, known = {"breaks", "test", "must"}, {"variant", "environment", "topology"}
        if wanted - set(notes) or set(notes) - wanted - known:
            raise lab.LabError(f"{path}: its header must have {wanted}, and may have {known}")
        return cls(path, notes)

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def variant(self) -> str:
        return self.notes.get("variant", "plain")

    @property
    def topology(self) -> str:
        return self.notes.get("topology") or self.test.words("topologies")[0]

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.notes.get("environment", "").split())

    @property
    def must(self) -> re.Pattern[str]:
        return re.compile(self.notes["must"])

    @property
    def test(self) -> lab.Test:
        try:
            return lab.Test.named(self.notes["test"])
        except lab.LabError as error:
            raise lab.LabError(f"{self.path}: {error}") from error


def mutants(pattern: str = "*") -> list[Mutant]:
    return [Mutant.load(path) for path in sorted(MUTANTS.glob("*.mutant")) if fnmatch.fnmatch(path.stem, pattern)]


def apply(mutant: Mutant, tree: Path, dry: bool = False) -> list[Path]:
    try:
        return mutation.apply(mutant.path.read_text(), tree, dry)
    except mutation.MutationError as error:
        raise lab.LabError(f"{mutant.path} does not apply any more: {error}") from error


# --- Its module -----------------------------------------------------------------------------------

def copy_tree(tree: Path, *options: str) -> None:
    for part in NEEDED:
        (tree / part).mkdir(parents=True, exist_ok=True)
        subprocess.run(["rsync", "-rpc", "--delete", *options, f"{lab.ROOT / part}/", f"{tree / part}/"], check=True)


def build(mutant: Mutant, kernel: lab.Kernel) -> Path:
    """Builds peerdma.ko of a mutant. All mutants share a copy of the tree, so that only changed files are compiled."""
    tree, out = HOME / "tree", HOME / kernel.name / mutant.name
    copy_tree(tree)
    apply(mutant, tree)
    run = subprocess.run([str(tree / "scripts/module.sh"), str(kernel.home)], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, env=os.environ | {"PEERDMA_BUILD": str(HOME / "build")})
    if run.returncode:
        raise lab.LabError(f"{mutant.path} does not build:\n{run.stdout}")
    out.mkdir(parents=True, exist_ok=True)
    for module in Path(run.stdout.split()[-1]).parent.glob("*.ko"):
        shutil.copy(module, out / module.name)
    # Tests expect the modules of tests/kmod next to the module.
    (out / "kmod").unlink(missing_ok=True)
    (out / "kmod").symlink_to(kernel.module.parent / "kmod")
    return out / "peerdma.ko"


def compiles(mutant: Mutant, kernel: lab.Kernel) -> bool:
    """Compiles without a warning, as scripts/module.sh requires. Objects stay next to the sources and are rebuilt on
    changes."""
    tree = HOME / "objects"
    copy_tree(tree, "--filter=P *.o", "--filter=P .*", "--filter=P *.mod*", "--filter=P Module.symvers")
    changed = apply(mutant, tree)
    sources = [path for path in changed if path.suffix == ".c"]
    if sources != changed:  # a header: build everything that includes it
        sources = []
    goals = [str(path.relative_to(tree / "kernel").with_suffix(".o")) for path in sources] or ["modules"]
    run = subprocess.run(["make", "-C", str(kernel.home / "build"), f"M={tree / 'kernel'}", "W=1", *goals],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    complaints = [line for line in run.stdout.splitlines() if re.search(r"error:|warning:", line) and "compiler differs" not in line]
    good = not run.returncode and not complaints
    print(f"{'compiles' if good else 'FAILS   '} {mutant.name}: {' '.join(goals)}", flush=True)
    for line in [] if good else complaints or [run.stdout]:
        print(f"         {line}", flush=True)
    return good


# --- Its test -------------------------------------------------------------------------------------

class Ear:
    """Recognizes the complaint as soon as it appears; the rest of the run is not needed and may take long."""

    def __init__(self, must: re.Pattern[str], serial: Path) -> None:
        self.must, self.serial = must, serial
        self.heard = ""
        self.failed: list[str] = []  # failing lines with their diagnostics, before or after them
        self.notes = ""              # diagnostics since the last line of the plan
        self.bad = False             # the last line failed

    def say(self, line: str) -> None:
        if line.startswith("#"):
            self.notes += line[1:]
            if self.bad:
                self.failed[-1] += line[1:]
        elif found := re.match(r"(not )?ok \d+ - (.*)", line):
            self.bad = bool(found[1])
            if self.bad:
                self.failed.append(found[2] + self.notes)
            self.notes = ""
        if self.bad:
            self.hear(self.failed[-1])

    def hear(self, complaint: str) -> None:
        if not self.heard and self.must.search(complaint):
            self.heard = complaint

    async def listen(self) -> None:
        while not self.heard:
            await asyncio.sleep(1)
            for _, line in await asyncio.to_thread(lambda: list(lab.find_splats(lab.serial_lines(self.serial), []))):
                self.hear(f"splat: {line}")


async def complaint(mutant: Mutant, kernel: lab.Kernel, module: Path) -> tuple[str, list[str]]:
    """The complaint that was required, or ""; and all complaints."""
    test = mutant.test
    slow = kernel.variant != "plain"
    topology = lab.Topology.load(mutant.topology)
    guest = lab.Guest(kernel, topology, [test], module.parent / "run", ram_mib=1536 if slow else 1024,
                      patience=180 if slow else 60, env=mutant.environment | {"LAB_MODULE": str(module)})
    ear = Ear(mutant.must, guest.out / "serial.log")
    ear.serial.unlink(missing_ok=True)  # of an earlier run
    guest.say = ear.say
    running, listening = asyncio.create_task(lab.boot(guest)), asyncio.create_task(ear.listen())
    await asyncio.wait([running, listening], return_when=asyncio.FIRST_COMPLETED)
    for task in (running, listening):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        reasons = [str(reason) for reason in (await running).reasons]
        for reason in reasons:
            ear.hear(reason)
        return ear.heard, ear.failed + reasons
    return ear.heard, ear.failed


def hunt(mutant: Mutant, k: str) -> bool:
    """Whether the mutant is killed."""
    start = time.monotonic()
    kernel = lab.ready_kernel(k, mutant.variant)
    print(f"==> {mutant.name}: {mutant.notes['breaks']}", flush=True)
    module = build(mutant, kernel)
    heard, said = asyncio.run(complaint(mutant, kernel, module))
    took = f"{time.monotonic() - start:.0f} s"
    if heard:
        print(f"killed   {mutant.name} by {mutant.test.name} on {kernel.name}, {took}: {heard[:200]}", flush=True)
        shutil.rmtree(module.parent / "run")
        return True
    print(f"SURVIVED {mutant.name}: {mutant.test.name} on {kernel.name} did not say {mutant.notes['must']!r}, {took}")
    for line in said or ["all was well"]:
        print(f"         {line[:200]}", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="only compile each mutant's files, with every warning an error")
    options = parser.parse_args()
    k, pattern = os.environ.get("K") or lab.NEWEST, os.environ.get("NAME") or "*"
    chosen = mutants(pattern)
    if not chosen:
        raise lab.LabError(f"no mutant is called {pattern}: tests/mutants has {', '.join(m.name for m in mutants())}")
    if options.compile:
        kernel = lab.kernel(k, "plain")
        assert kernel
        failed = len(chosen) - sum([compiles(mutant, kernel) for mutant in chosen])
        print(f"{len(chosen) - failed} compile, {failed} do not", flush=True)
        return bool(failed)
    hunted = [mutant for mutant in chosen if mutant.test.is_on(k)]
    for mutant in chosen:
        if mutant not in hunted:
            print(f"left out {mutant.name}: {mutant.test.name} does not run on {k}", flush=True)
    killed = sum([hunt(mutant, k) for mutant in hunted])
    print(f"{killed} killed, {len(hunted) - killed} survived", flush=True)
    return 0 if hunted and killed == len(hunted) else 1


if __name__ == "__main__":
    lab.as_command(main)
