# SPDX-License-Identifier: MIT
"""The programs that guests run most often, for their initramfs.

A guest's root is the host's, over 9p. There each open() takes three round trips, and each failed look-up another one,
whatever the guest caches. Starting a command takes about ten round trips of 1 ms. The commands of the tests and their
libraries are therefore in the guest's memory, at /run/lab. Commands that are not there work too, but start more
slowly.

A guest that suspends cannot use 9p, which does not survive it. root() builds a complete root for such a boot.
"""
from __future__ import annotations

import functools
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Iterable

COMMANDS = """addpart base64 basename bash blockdev cat chmod cmp comm cp cut date dd delpart dirname dmsetup e2fsck env find
    flock grep gzip head id insmod kill ln ls mdadm mkdir mke2fs mkfs.xfs mkswap mktemp modprobe mount mountpoint mv
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
    """(name, path) of each library of these programs; the ELF interpreter has no name."""
    # ldd fails if one of the files is not an ELF program: a script, for example.
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    return re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", said, re.M)


@functools.cache
def system() -> tuple[Files, Path]:
    """Commands and libraries of the host, and the path of the ELF interpreter."""
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
    """The same, with links to the project's own programs, which may be large."""
    ours: Files = {name: directory() for name in ("ram", "ram/bin", "ram/lib")}
    common, interpreter = system()
    ours |= common
    for folder in (build / "bin", build / "lab"):
        for path in folder.glob("[!.]*"):
            if path.is_file():
                ours[f"ram/bin/{path.name}"] = link(path)
    return ours, interpreter


def with_parents(files: Files) -> Files:
    """Adds the folders: an archive needs the entry of a folder before those in it."""
    folders = {str(parent): directory() for name in files for parent in list(Path(name).parents)[-2::-1]}
    return folders | files


def root(programs: Iterable[Path], paths: Iterable[Path], interpreter: Path) -> Files:
    """A complete root for a guest: these programs with their libraries, and these files at the host's paths."""
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
