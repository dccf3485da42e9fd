#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/setup.sh with stand-ins for the machine: what it misses where it installs nothing. scripts/Containerfile copies all that it
reads."""
from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests/host"), str(ROOT / "tests")]
import run  # noqa: E402
import tap  # noqa: E402

CONTAINERFILE = (ROOT / "scripts/Containerfile").read_text()
# /etc/os-release
DEBIAN_12, ANOTHER = "ID=debian\nVERSION_ID=12\n", "ID=another\n"
# What setup.sh and common.sh call themselves.
COMMANDS = ("awk", "bash", "cut", "dirname", "env", "mkdir", "sed", "tail", "tr", "uname")
SANITIZERS = ("clang++ -fsanitize=address,undefined", "g++ -fsanitize=address,undefined", "g++ -fsanitize=thread")


class Machine:
    """A machine with few commands, and of the tree with what the Containerfile copies."""

    def __init__(self, folder: Path, release: str) -> None:
        self.folder, self.script = folder, folder / "setup/scripts/setup.sh"
        for line in re.findall("^COPY (.*)", CONTAINERFILE, re.M):
            *names, to = line.split()
            (folder / to.lstrip("/")).mkdir(parents=True, exist_ok=True)
            for name in names:
                shutil.copy(ROOT / name, folder / to.lstrip("/"))
        (folder / "os-release").write_text(release)
        self.script.write_text(self.script.read_text().replace("/etc/os-release", f"{folder}/os-release").replace("/sbin/", f"{folder}/sbin/"))
        (folder / "bin").mkdir()
        for command in COMMANDS:
            (folder / "bin" / command).symlink_to(str(shutil.which(command)))
        self.stand_in("id", "echo 0")

    def stand_in(self, name: str, text: str = "") -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)

    def setup(self, target: str) -> subprocess.CompletedProcess[str]:
        # Without ccache, whose folder common.sh adds to PATH.
        env = {"PATH": str(self.folder / "bin"), "HOME": str(self.folder), "CCACHE_DISABLE": "1"}
        return subprocess.run([self.script, target], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def missing(self) -> set[str]:
        """What setup.sh names as missing for make check."""
        done = self.setup("check")
        found = re.search("missing here: (.*); scripts/Containerfile ", done.stdout)
        assert done.returncode and found, done.stdout
        return set(found[1].split(", "))


@contextlib.contextmanager
def machine(release: str) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        yield Machine(Path(folder), release)


def elsewhere_what_guest_tests_use_is_asked_for() -> None:
    tools = {"addpart", "bindfs", "dmsetup", "fsfreeze", "fsverity", "losetup", "mdadm", "mkfs.btrfs", "wipefs"}
    with machine(ANOTHER) as there:
        assert tools <= there.missing(), tools - there.missing()
        for tool in tools:
            there.stand_in(tool)
        assert not tools & there.missing()


def elsewhere_sanitizers_are_asked_for() -> None:
    named = {f"the libraries of {sanitizer}" for sanitizer in SANITIZERS}
    with machine(ANOTHER) as there:
        for works in (False, True):
            for compiler in ("clang++", "g++"):
                there.stand_in(compiler, "read -r program" + ("" if works else "; [[ $* != *-fsanitize* ]]"))
            assert named & there.missing() == (set() if works else named), there.missing()


def what_is_installed_on_debian_is_asked_for_elsewhere() -> None:
    """Of what make check adds to make demo, one command of each package, unless tests that use it have it in "# needs:"."""
    if not shutil.which("dpkg"):
        raise tap.Skip("no dpkg")
    with machine(ANOTHER) as there:
        known = there.missing() | {need for test in run.guest_tests() for need in test.words("needs")}
    known |= {"ccache"}  # make check is faster with it
    for package in packages("check") - packages("demo"):
        files = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True).stdout
        commands = set(re.findall(r"^(?:/usr)?/s?bin/(\S+)$", files, re.M))
        assert not commands or commands & known, f"{package}: {commands}"


def packages(target: str) -> set[str]:
    """What setup.sh has apt-get install where no package is."""
    with machine(DEBIAN_12) as debian:
        debian.stand_in("dpkg-query", "exit 1")
        debian.stand_in("apt-get", f'echo "$@" >{debian.folder}/apt')
        done = debian.setup(target)
        assert done.returncode == 0, done.stdout
        return set((debian.folder / "apt").read_text().partition(" install ")[2].split())


def the_container_has_what_its_setup_reads() -> None:
    targets = re.findall(r"setup\.sh ([\w-]+)", " ".join(re.findall("^RUN .*", CONTAINERFILE, re.M)))
    assert {"check", "demo-rdma"} <= set(targets), targets
    for target in targets:
        assert "qemu-system-x86" in packages(target)


def the_container_copies_only_what_its_setup_reads() -> None:
    with machine(DEBIAN_12) as debian:
        copied = [path for path in (debian.folder / "setup").rglob("*") if path.is_file() and path != debian.script]
        assert copied
        debian.stand_in("dpkg-query", "echo 'ii '")
        assert debian.setup("check").returncode == 0
        for path in copied:
            text = path.read_text()
            path.unlink()
            assert debian.setup("check").returncode, f"without {path.name} it does the same"
            path.write_text(text)


def what_is_built_is_not_sent_with_the_container() -> None:
    """To the service that builds the container: .git and build are gigabytes."""
    ignored = {line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")}
    copied = {name.partition("/")[0] for line in re.findall("^COPY (.*)", CONTAINERFILE, re.M) for name in line.split()[:-1]}
    assert ignored == {".git", "build"} and not ignored & copied, ignored


if __name__ == "__main__":
    sys.exit(tap.run([elsewhere_what_guest_tests_use_is_asked_for, elsewhere_sanitizers_are_asked_for,
                      what_is_installed_on_debian_is_asked_for_elsewhere, the_container_has_what_its_setup_reads,
                      the_container_copies_only_what_its_setup_reads, what_is_built_is_not_sent_with_the_container]))
