#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Loads libcufile.so.0 by ctypes in Python processes, with local and global symbols, with and without the stand-in
CUDA driver. It works, and after closing it leaves no thread, descriptor or mapping behind."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("PEERDMA_BUILD", ROOT / "build"))

PROGRAM = r'''
import ctypes, _ctypes, os, sys, time

path, file, mode = sys.argv[1], sys.argv[2], getattr(ctypes, sys.argv[3])
SIZE = 5 << 20
data = (bytes(range(251)) * (SIZE // 251 + 1))[:SIZE]
with open(file, "wb") as out:
    out.write(data)


class Error(ctypes.Structure):
    _fields_ = [("err", ctypes.c_int), ("cu_err", ctypes.c_int)]


class Handle(ctypes.Union):
    _fields_ = [("fd", ctypes.c_int), ("handle", ctypes.c_void_p)]


class Descr(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle", Handle), ("fs_ops", ctypes.c_void_p)]


def fds():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink("/proc/self/fd/" + name)
        except FileNotFoundError:
            pass  # that of the listing
    return found


def threads():
    return sorted(open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))


def mapped():
    return "libcufile.so" in open("/proc/self/maps").read()


before = fds(), threads()
assert not mapped()
lib = ctypes.CDLL(path, mode=mode, use_errno=True)
for name in ("cuFileDriverOpen", "cuFileDriverClose_v2", "cuFileDriverClose", "cuFileHandleRegister", "cuFileBufRegister",
             "cuFileBufDeregister", "cuFileGetVersion"):
    getattr(lib, name).restype = Error
lib.cuFileUseCount.restype = ctypes.c_long
lib.cuFileHandleDeregister.restype = None
for name in ("cuFileRead", "cuFileWrite"):
    call = getattr(lib, name)
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64]

everywhere = ctypes.CDLL(None)
assert hasattr(everywhere, "cuFileRead") == (mode == ctypes.RTLD_GLOBAL), "who else finds it"
assert (fds(), threads()) == before, "loading it opens and begins nothing"

version = ctypes.c_int(0)
assert lib.cuFileGetVersion(ctypes.byref(version)).err == 0 and version.value == 1150, version.value
memory = ctypes.create_string_buffer(SIZE)
for flags in (os.O_RDWR, os.O_RDWR | os.O_DIRECT):
    try:
        fd = os.open(file, flags)
    except OSError:
        continue  # no O_DIRECT here
    there = set(fds())
    assert lib.cuFileDriverOpen().err == 0 and lib.cuFileUseCount() == 1
    fh = ctypes.c_void_p(None)
    descr = Descr(1, Handle(fd=fd), None)
    assert lib.cuFileHandleRegister(ctypes.byref(fh), ctypes.byref(descr)).err == 0 and fh.value
    assert lib.cuFileBufRegister(memory, ctypes.c_size_t(SIZE), 0).err == 0
    for size, at, to in ((100, 7, 3), (SIZE, 0, 0), (SIZE - 4096, 4096, 4096)):
        ctypes.memset(memory, 0x77, SIZE)
        assert lib.cuFileRead(fh, memory, size, at, to) == size
        assert memory.raw == b"\x77" * to + data[at:at + size] + b"\x77" * (SIZE - to - size), (size, at, to)
    assert lib.cuFileWrite(fh, memory, 5000, SIZE, 4096) == 5000
    with open(file, "rb") as written:
        assert written.read() == data + memory.raw[4096:9096]
    os.truncate(file, SIZE)
    assert lib.cuFileRead(fh, memory, 10, -1, 0) == -1 and ctypes.get_errno() == 5022
    assert lib.cuFileBufDeregister(memory).err == 0
    lib.cuFileHandleDeregister(fh)
    assert (lib.cuFileDriverClose if flags == os.O_RDWR else lib.cuFileDriverClose_v2)().err == 0
    assert lib.cuFileUseCount() == 0 and lib.cuFileDriverClose().err == 5001
    assert set(fds()) == there, "a descriptor is left"
    os.close(fd)

handle = lib._handle
still = ctypes.CFUNCTYPE(ctypes.c_long)(("cuFileUseCount", lib))
_ctypes.dlclose(handle)
assert mapped() and still() == 0, "who has an address of it yet may call"
for _ in range(100):
    if threads() == before[1]:
        break
    time.sleep(0.1)
assert threads() == before[1], threads()
assert fds() == before[0], fds()
print("well")
'''


def runs(mode: str, cuda: bool) -> None:
    if not cuda and "libcuda.so.1" in subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout:
        return  # this machine has a CUDA driver
    folder = str(BUILD / "tests/softgpu") if cuda else ""
    with tempfile.TemporaryDirectory(dir=BUILD) as tmp:
        environment = {**os.environ, "LD_LIBRARY_PATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("CUFILE_ENV_PATH_JSON", None)
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(BUILD / "lib/libcufile.so.0"), f"{tmp}/file", mode], cwd=tmp,
                              env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", ""), done
        assert os.listdir(tmp) == ["file"], os.listdir(tmp)


def for_itself_without_a_cuda_driver() -> None:
    runs("RTLD_LOCAL", False)


def for_all_without_a_cuda_driver() -> None:
    runs("RTLD_GLOBAL", False)


def for_itself_with_one() -> None:
    runs("RTLD_LOCAL", True)


def for_all_with_one() -> None:
    runs("RTLD_GLOBAL", True)


if __name__ == "__main__":
    sys.exit(tap.run([for_itself_without_a_cuda_driver, for_all_without_a_cuda_driver, for_itself_with_one, for_all_with_one]))
