# SPDX-License-Identifier: MIT
"""What guests run most often, for their initramfs.

A guest's root is the host's, over 9p, where each open() of a file is three round trips, and each name that is not there
another one, however much the guest caches. To start a command means ten or so of them, 1 ms each. So the
commands of the tests and the libraries that they load lie in the guest's memory, at /run/lab: what is not here works as well,
and more slowly.

A guest that sleeps has no other root: 9p does not come back. root() adds what such a boot runs besides.
"""
from __future__ import annotations

import functools
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Iterable

COMMANDS = """addpart basename bash blockdev cat chmod cmp comm cp cut date dd delpart dirname dmsetup e2fsck env find
    flock grep head id insmod kill ln ls mdadm mkdir mke2fs mkfs.xfs mkswap mktemp modprobe mount mountpoint mv
    nvme od pgrep pkill readlink realpath rm rmmod sed seq setpriv setsid sleep sort stat swapoff swapon sync
    tail tee timeout touch tr truncate umount uname wc wipefs""".split()
PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/sbin:/bin"
Files = dict[str, tuple[int, bytes]]


def directory() -> tuple[int, bytes]:
    return stat.S_IFDIR | 0o755, b""


def link(target: Path) -> tuple[int, bytes]:
    return stat.S_IFLNK | 0o777, str(target).encode()


def copy(path: Path) -> tuple[int, bytes]:
    return stat.S_IFREG | 0o755, path.read_bytes()


def loaded_by(programs: Iterable[Path]) -> list[tuple[str, str]]:
    """(name, path) of each library of these programs; the interpreter has no name."""
    # Its status is that of the one that is no such program: a script, say.
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    return re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", said, re.M)


@functools.cache
def system() -> tuple[Files, Path]:
    """Commands and libraries of the host's, and where the interpreter of these programs, which is one of them, belongs."""
    files: Files = {"ram/bin/sh": link(Path("bash"))}
    interpreter = None
    found = {name: Path(path).resolve() for name in COMMANDS if (path := shutil.which(name, path=PATH))}
    files |= {f"ram/bin/{name}": copy(path) for name, path in found.items()}
    for name, where in loaded_by(found.values()):
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


def with_parents(files: Files) -> Files:
    """With the folders: an entry of the archive needs its own before it."""
    folders = {str(parent): directory() for name in files for parent in list(Path(name).parents)[-2::-1]}
    return folders | files


def root(programs: Iterable[Path], paths: Iterable[Path], interpreter: Path) -> Files:
    """A root of its own for a guest: these programs with their libraries, and these files at the host's paths."""
    ours: Files = {"memory": (stat.S_IFREG | 0o644, b""), str(interpreter)[1:]: (stat.S_IFREG | 0o755, b"")}
    ours |= {name: directory() for name in ("proc", "sys", "tmp", "run", "mnt", "etc", "var/tmp", "var/lib/nfs")}
    ours |= {name: link(Path("/run/lab") / name) for name in ("bin/sh", "bin/bash")}
    ours["usr/bin/env"] = link(Path("/run/lab/bin/env"))
    programs = list(programs)
    ours |= {f"ram/bin/{path.name}": copy(path) for path in programs}
    for name, where in loaded_by(programs):
        ours |= {f"ram/lib/{name}": copy(Path(where))} if name else {where[1:]: link(interpreter)}
    ours |= {str(path)[1:]: copy(path) for path in paths}
    return ours
