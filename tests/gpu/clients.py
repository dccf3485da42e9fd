#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs without knowledge of PeerDMA on a real GPU: PyTorch's GdsFile and NVIDIA's Python bindings of cuFile.

    LD_PRELOAD=build/lib/libcufile.so.0 tests/gpu/clients.py FILE

FILE is overwritten. Prints the loaded library, from this process's own map, and the library's I/O counts by reason.
"""
import ctypes
import os
import sys

import torch


def libraries() -> list[str]:
    return sorted({line.split()[-1] for line in open("/proc/self/maps") if "libcufile" in line})


def counts() -> str:
    """I/Os by reason; the first number is that of direct I/Os."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "peerdma_cufile_count"):
        return "not our library"
    words = (ctypes.c_uint64 * 64)()
    ctypes.cast(words, ctypes.POINTER(ctypes.c_uint32))[0] = ctypes.sizeof(words)
    error = library.peerdma_cufile_count(ctypes.byref(words))
    return f"{error} {[n for n in words[1:] if n]}"


def pytorch(path: str) -> None:
    for shape in ((1,), (1000,), (333, 777), (4096, 4096), (8, 1024, 1024)):
        source = torch.randn(shape, device="cuda")
        target = torch.zeros_like(source)
        torch.cuda.gds.gds_register_buffer(source.untyped_storage())
        torch.cuda.gds.gds_register_buffer(target.untyped_storage())
        file = torch.cuda.gds.GdsFile(path, os.O_CREAT | os.O_RDWR)
        file.save_storage(source.untyped_storage(), offset=4096)
        file.load_storage(target.untyped_storage(), offset=4096)
        assert torch.equal(source, target), shape
        del file
        torch.cuda.gds.gds_deregister_buffer(source.untyped_storage())
        torch.cuda.gds.gds_deregister_buffer(target.untyped_storage())
        with open(path, "rb") as plain:
            plain.seek(4096)
            assert plain.read(source.untyped_storage().nbytes()) == bytes(source.cpu().numpy().tobytes()), shape
    print("PyTorch GdsFile: 5 shapes, every byte the same, from the file too")


def bindings(path: str) -> None:
    from cuda.bindings import cufile

    size = 3 << 20
    data = os.urandom(size)
    with open(path, "wb") as file:
        file.write(data)
    target = torch.zeros(size, dtype=torch.uint8, device="cuda")
    cufile.driver_open()
    fd = os.open(path, os.O_RDWR)
    descr = cufile.Descr()
    descr.type = cufile.FileHandleType.OPAQUE_FD
    descr.handle.fd = fd
    descr.fs_ops = 0
    handle = cufile.handle_register(descr.ptr)
    cufile.buf_register(target.data_ptr(), size, 0)
    assert cufile.read(handle, target.data_ptr(), size, 0, 0) == size
    assert bytes(target.cpu().numpy().tobytes()) == data
    target.fill_(7)
    torch.cuda.synchronize()
    assert cufile.write(handle, target.data_ptr(), size, 0, 0) == size
    cufile.buf_deregister(target.data_ptr())
    cufile.handle_deregister(handle)
    os.close(fd)
    cufile.driver_close()
    with open(path, "rb") as file:
        assert file.read() == b"\7" * size
    print("cuda.bindings.cufile: read and written, every byte the same")


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    status = 0
    for client in (pytorch, bindings):
        try:
            client(sys.argv[1])
        except Exception as error:  # continue with the next client
            print(f"{client.__name__}: {type(error).__name__}: {error}")
            status = 1
    print("library:", ", ".join(libraries()))
    print("counts:", counts())
    sys.exit(status)
