# SPDX-License-Identifier: MIT
"""What guests run most often, for their initramfs.

A guest's root is the host's, over 9p, where each open() of a file is three round trips, and each name that is not there
another one, however much the guest caches. To start a command means ten or so of them, 1 ms each. So the
commands of the tests and the libraries that they load lie in the guest's memory, at /run/lab: what is not here works as well,
and more slowly.
"""
from __future__ import annotations

import functools
import re
import shutil
import stat
import subprocess
from pathlib import Path

COMMANDS = """addpart basename bash blockdev cat chmod cmp comm cp cut date dd delpart dirname dmsetup e2fsck env find flock
    grep head id insmod kill ln ls mdadm mkdir mke2fs mkfs.xfs mktemp modprobe mount mountpoint mv nvme od readlink
    realpath rm rmmod sed seq setpriv setsid sleep sort stat sync tail tee timeout touch tr truncate umount uname wc
    wipefs""".split()
PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/sbin:/bin"
Files = dict[str, tuple[int, bytes]]


def directory() -> tuple[int, bytes]:
    return stat.S_IFDIR | 0o755, b""


def link(target: Path) -> tuple[int, bytes]:
    return stat.S_IFLNK | 0o777, str(target).encode()


def copy(path: Path) -> tuple[int, bytes]:
    return stat.S_IFREG | 0o755, path.read_bytes()


@functools.cache
def system() -> tuple[Files, Path]:
    """Commands and libraries of the host's, and where the interpreter of these programs, which is one of them, belongs."""
    files: Files = {"ram/bin/sh": link(Path("bash"))}
    interpreter = None
    found = {name: Path(path).resolve() for name in COMMANDS if (path := shutil.which(name, path=PATH))}
    files |= {f"ram/bin/{name}": copy(path) for name, path in found.items()}
    # Its status is that of the one that is no such program: a script, say.
    said = subprocess.run(["ldd", *map(str, found.values())], capture_output=True, text=True).stdout
    for name, where in re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", said, re.M):
        if name:
            files[f"ram/lib/{name}"] = copy(Path(where))
        else:
            interpreter = Path(where).resolve()
    if not interpreter or "bash" not in found:
        raise OSError("no bash, or ldd does not say what runs it")
    files["ram/interpreter"] = copy(interpreter)
    return files, interpreter


def files(build: Path) -> tuple[Files, Path]:
    """The same, and what the project itself has built: by link, since it may be large."""
    ours: Files = {name: directory() for name in ("ram", "ram/bin", "ram/lib")}
    common, interpreter = system()
    ours |= common
    for folder in (build / "bin", build / "lab"):
        for path in folder.glob("[!.]*"):
            if path.is_file():
                ours[f"ram/bin/{path.name}"] = link(path)
    return ours, interpreter
