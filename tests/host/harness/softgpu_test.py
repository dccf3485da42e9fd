#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The stand-ins for HIP, HSA and Level Zero without SOFTGPU_STAND: each call returns its vendor's error, and none
ends the process."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

BUILD = Path(os.environ.get("PEERDMA_BUILD") or Path(__file__).resolve().parents[3] / "build")

PROGRAM = r'''
import ctypes, sys

library = ctypes.CDLL(sys.argv[1])
size = ctypes.c_size_t
out, number, bytes_ = ctypes.c_void_p(), ctypes.c_int(-1), (ctypes.c_char * 64)()
ref = ctypes.byref
print(hex(eval(sys.argv[2])))
'''


def answers(library: str, call: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "SOFTGPU_STAND"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(BUILD / "tests/softgpu" / library), call], env=environment,
                          capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), (call, done)
    return done.stdout.strip()


def all_answer(library: str, expected: dict[str, str]) -> None:
    got = {call: answers(library, call) for call in expected}
    assert got == expected, got


def hip() -> None:
    all_answer("libamdhip64.so.6", {
        "library.hipMalloc(ref(out), size(4096))": "0x2",
        "library.hipFree(bytes_)": "0x1",
        "library.hipFree(None)": "0x0",
        "library.hipMemcpy(bytes_, bytes_, size(8), 1)": "0x1",
        "library.hipMemcpy(bytes_, bytes_, size(8), 2)": "0x1",
    })


def hsa() -> None:
    all_answer("libhsa-runtime64.so.1", {
        "library.hsa_init()": "0x1008",
        # a second time, as the first left no state
        "library.hsa_init() and library.hsa_init()": "0x1008",
        **{f"{first}library.{call}": "0x100b"
           for first in ("", "library.hsa_init() and ")
           for call in ("hsa_amd_memory_pool_allocate(0, size(4096), 0, ref(out))",
                        "hsa_amd_memory_pool_free(bytes_)",
                        "hsa_amd_pointer_info(bytes_, bytes_, None, None, None)",
                        "hsa_amd_portable_export_dmabuf(bytes_, size(8), ref(number), ref(out))")},
    })


def level_zero() -> None:
    all_answer("libze_loader.so.1", {
        f"{first}library.{call}": "0x78000001"
        for first in ("", "library.zeInit(0) and ")
        for call in ("zeInit(0) & 0xffffffff",
                     "zeDriverGet(ref(number), ref(out)) & 0xffffffff",
                     "zeDeviceGet(None, ref(number), ref(out)) & 0xffffffff",
                     "zeContextCreate(None, None, ref(out)) & 0xffffffff",
                     "zeMemAllocDevice(None, None, size(4096), size(0), None, ref(out)) & 0xffffffff",
                     "zeMemFree(None, bytes_) & 0xffffffff",
                     "zeMemGetAddressRange(None, bytes_, None, None) & 0xffffffff",
                     "zeMemGetAllocProperties(None, bytes_, bytes_, None) & 0xffffffff",
                     "zeCommandListCreateImmediate(None, None, None, ref(out)) & 0xffffffff",
                     "zeCommandListAppendMemoryCopy(None, bytes_, bytes_, size(8), None, 0, None) & 0xffffffff")
    })


if __name__ == "__main__":
    sys.exit(tap.run([hip, hsa, level_zero]))
