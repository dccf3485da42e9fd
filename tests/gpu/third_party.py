#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Unmodified third-party code that uses cuFile with PyTorch: DeepSpeed's gds_handle and fastsafetensors' loader.

    third_party.py deepspeed|fastsafetensors CHECKOUT [FILE]

Called by third_party.sh. FILE is overwritten. Without FILE it only builds the checkout's extension, with PyTorch's
own tools.
"""
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile

import torch
from torch.utils.cpp_extension import load

from clients import counts, libraries

failed = 0


def check(right: bool, what: str) -> None:
    global failed
    print(f"{'ok' if right else 'not ok'} - {what}", flush=True)
    failed += not right


def contents(path: str, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def flags(name: str) -> list[str]:
    return os.environ.get(name, "").split()


def build(name: str, sources: list[str], include: list[str], libraries: list[str], defines: list[str]) -> str:
    directory = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), f"third_party_{name}")
    os.makedirs(directory, exist_ok=True)
    load(name=name, sources=sources, extra_include_paths=include, extra_cflags=["-O1", "-w"] + defines + flags("CLIENT_CFLAGS"),
         extra_ldflags=flags("CLIENT_LDFLAGS") + libraries, with_cuda=True, is_python_module=False, build_directory=directory)
    return os.path.join(directory, name + ".so")


def module(name: str, path: str):
    spec = importlib.util.spec_from_loader(name, importlib.machinery.ExtensionFileLoader(name, path))
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()


def deepspeed(checkout: str, path: str) -> None:
    root = os.path.join(checkout, "csrc")
    gds, aio, common = (os.path.join(root, part) for part in ("gds/py_lib", "aio/py_lib", "aio/common"))
    sources = [os.path.join(gds, n) for n in ("deepspeed_gds_op.cpp", "deepspeed_py_gds_handle.cpp", "py_ds_gds.cpp")]
    sources += [os.path.join(aio, f"deepspeed_{n}.cpp") for n in ("aio_op_desc", "aio_thread", "cpu_op", "pin_tensor", "py_io_handle")]
    sources += [os.path.join(common, f"deepspeed_aio_{n}.cpp") for n in ("common", "types", "utils")]
    built = build("gds", sources, [gds, aio, common], ["-laio", "-l:libcufile.so.0", "-lcuda"], [])
    if not path:
        return
    ds = module("gds", built)
    example = torch.empty(0, dtype=torch.uint8, device="cuda")
    for parallelism in (1, 4):
        handle = ds.gds_handle(1 << 20, 128, False, False, parallelism)
        for size in (4096, 1 << 20, (16 << 20) + 4096, 1000003):
            for offset in (0, 8192):
                name = f"{parallelism} threads, {size} bytes at {offset}"
                tensor = handle.new_pinned_device_tensor(size, example)
                tensor.random_(256)
                torch.cuda.synchronize()
                wanted = bytes_of(tensor)
                if os.path.exists(path):
                    os.unlink(path)
                check(handle.sync_pwrite(tensor, path, offset) == 1, f"{name}: sync_pwrite")
                check(contents(path, offset, size + 1) == wanted, f"{name}: the file")
                tensor.zero_()
                torch.cuda.synchronize()
                check(handle.sync_pread(tensor, path, offset) == 1, f"{name}: sync_pread")
                check(bytes_of(tensor) == wanted, f"{name}: the tensor")
                tensor.random_(256)
                torch.cuda.synchronize()
                wanted = bytes_of(tensor)
                check(handle.async_pwrite(tensor, path, offset) == 0 and handle.wait() == 1, f"{name}: async_pwrite, wait")
                check(contents(path, offset, size + 1) == wanted, f"{name}: the file")
                tensor.zero_()
                torch.cuda.synchronize()
                check(handle.async_pread(tensor, path, offset) == 0 and handle.wait() == 1, f"{name}: async_pread, wait")
                check(bytes_of(tensor) == wanted, f"{name}: the tensor")
                handle.free_pinned_device_tensor(tensor)
        # several at once, with parts of one registered tensor, and with a descriptor opened here
        whole = torch.empty(8 << 20, dtype=torch.uint8, device="cuda").random_(256)
        torch.cuda.synchronize()
        handle.pin_device_tensor(whole)
        parts = [whole[n << 20:(n + 1) << 20] for n in range(8)]
        for n, part in enumerate(parts[:7]):
            check(handle.async_pwrite(part, path, n << 20) == 0, f"part {n} is to be written")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        check(handle.async_pwrite(parts[7], fd, 7 << 20) == 0, "part 7 is to be written, by descriptor")
        check(handle.wait() == 8, "all of them are")
        os.close(fd)
        check(contents(path, 0, 8 << 20) == bytes_of(whole), "8 parts: the file")
        wanted = bytes_of(whole)
        whole.zero_()
        torch.cuda.synchronize()
        for n in (3, 0, 7, 1, 6, 2, 5, 4):
            check(handle.async_pread(parts[n], path, n << 20) == 0, f"part {n} is to be read")
        check(handle.wait() == 8, "all of them are")
        check(bytes_of(whole) == wanted, "8 parts: the tensor")
        handle.unpin_device_tensor(whole)
        del handle
    # last, because with NVIDIA's library the process dies when it prints a line on the way
    handle = ds.gds_handle(1 << 20, 128, False, False, 1)
    handle.pin_device_tensor(whole)
    check(handle.pwrite(whole, path, True, False) == 1, "pwrite that DeepSpeed validates")
    check(handle.pread(whole, path, True, False) == 1, "pread that DeepSpeed validates")
    handle.unpin_device_tensor(whole)


def safetensors_file(path: str, tensors: dict[str, torch.Tensor], odd: int) -> None:
    """Pads the header to 8 bytes, plus `odd` bytes."""
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8"}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + odd)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes()))


def fastsafetensors(checkout: str, path: str) -> None:
    source = os.path.join(checkout, "fastsafetensors/cpp/ext.cpp")
    built = build("cpp", [source], [], ["-l:libcufile.so.0", "-lc10_cuda", "-lnuma"], ["-D__MOD_NAME__=cpp", "-fvisibility=hidden"])
    if not path:
        return
    sys.modules["fastsafetensors.cpp"] = module("fastsafetensors.cpp", built)
    sys.path.insert(0, checkout)
    import fastsafetensors.loader
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup, get_device_numa_node

    device = torch.device("cuda:0")
    try:
        get_device_numa_node(device.index)
    except OSError as error:  # the loader wants the NUMA node, which some machines do not report
        print(f"the GPU's node is not known: {error}")
        fastsafetensors.loader.initialized = True
    tensors = {
        "embedding": torch.randn(4096, 1024),
        "half": torch.randn(777, 333).half(),
        "brain": torch.randn(2048, 2048).bfloat16(),
        "ids": torch.randint(1 << 40, (12345,)),
        "odd": torch.randint(256, (1001,), dtype=torch.uint8),
    }
    ways = [(nogds, block, False) for nogds in (True, False) for block in (16 << 30, 1 << 20)]
    # Registered only once: fastsafetensors deregisters another address than it registered (gds.py's wait_io). The next
    # time PyTorch returns the same memory, which is still registered, and registering fails. NVIDIA's library fails in
    # the same way.
    for odd, (nogds, block, register) in [(odd, way) for odd in (0, 3) for way in ways] + [(0, (False, 16 << 30, True))]:
        safetensors_file(path, tensors, odd)
        way = "its own copy" if nogds else "GDS, registered" if register else "GDS"
        name = f"header {'not ' if odd else ''}aligned, {way}, blocks of {block}"
        loader = SafeTensorsFileLoader(SingleGroup(), device, nogds=nogds)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device(use_buf_register=register, max_copy_block_size=block)
        torch.cuda.synchronize()
        for key, tensor in tensors.items():
            got = buffers.get_tensor(key)
            check(got.is_cuda and torch.equal(got.cpu().view(torch.uint8), tensor.view(torch.uint8)), f"{name}: {key}")
        del got
        buffers.close()
        loader.close()


if __name__ == "__main__":
    print(f"torch {torch.__version__}")
    {"deepspeed": deepspeed, "fastsafetensors": fastsafetensors}[sys.argv[1]](os.path.abspath(sys.argv[2]), "".join(sys.argv[3:4]))
    if len(sys.argv) == 3:
        sys.exit(0)
    print("library:", ", ".join(libraries()))
    print("counts:", counts())
    print(failed, "failed", flush=True)
    sys.exit(failed != 0)
