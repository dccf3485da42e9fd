#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Files of tokens, and what a view's device must have of them, by a decoder that has nothing of ours.

image.py make PATH COUNT BITS SEED      writes COUNT u32 below 2^BITS, the last of which is the highest
image.py widen FROM TO                  writes the u32 of the one as i64 to the other
image.py publish SOCKET NAME CONF       asks peerdma-viewd, and prints the error that it answers
image.py withdraw SOCKET NAME
image.py field SOCKET NAME KEY...       prints fields of a view's status, a line each
image.py plan SOCKET NAME FIRST,COUNT...
image.py compare DEVICE FILE...         the device's header describes the files, and its elements, widened, are theirs
image.py each                           the same for each line of its input, "DEVICE FILE...". Prints how many there were
image.py halves PATH MIB                writes MIB of u32 below 2^16
image.py poke PATH ELEMENT              stores each u32 of its input to a mapping of the file; begins with the one that is there, as
                                        the first store sets the file's times. Prints a line after each
image.py survey DEVICE FILE [ERROR [CHANGING]]
                                        reads each 4 KiB past the page cache; what comes without an error must be the elements of the file
                                        (of u32, in bits; packed, they are kept beside it), and the error must be that one. Prints how
                                        many blocks came and failed, and the first element of the first that failed and the last
                                        element of the last. With CHANGING, after 100 blocks it waits until this file is written
image.py read DEVICE FILE ORDER [THREADS EACH]
                                        reads all MiB of the data of a view of `halves`, from the device, in that order (numbers with
                                        commas); or by so many threads at once, each so many MiB from another place of the order on.
                                        Of several devices, with commas, at once; of DEVICE@N from place N of the order on.
                                        Each byte must be right. Prints the seconds that the reads took
image.py small DEVICE COUNT             so many reads of 4 KiB anywhere. Prints how many a second there were
"""
import errno
import json
import mmap
import os
import random
import socket
import struct
import sys
import threading
import time
from array import array


def make(path: str, count: str, bits: str, seed: str) -> None:
    size = 4 * int(count)
    mask = int.from_bytes(((1 << int(bits)) - 1).to_bytes(4, "little") * int(count), "little")
    drawn = int.from_bytes(random.Random(int(seed)).randbytes(size), "little")
    values = array("I", (drawn & mask).to_bytes(size, "little"))
    if values:
        values[-1] = (1 << int(bits)) - 1
    with open(path, "wb") as file:
        values.tofile(file)


def widen(narrow: str, wide: str) -> None:
    values = array("I")
    with open(narrow, "rb") as file:
        values.frombytes(file.read())
    with open(wide, "wb") as file:
        array("q", values).tofile(file)


def ask(path: str, **request: object) -> dict:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        one.sendall(json.dumps(request).encode())
        one.shutdown(socket.SHUT_WR)
        answer = b""
        while some := one.recv(65536):
            answer += some
    return json.loads(answer)


def publish(path: str, name: str, conf: str) -> None:
    print(ask(path, op="publish", name=name, conf=conf).get("error", ""))


def withdraw(path: str, name: str) -> None:
    print(ask(path, op="withdraw", name=name).get("error", ""))


def plan(path: str, name: str, *ranges: str) -> None:
    print(ask(path, op="plan", name=name, ranges=[[int(n) for n in one.split(",")] for one in ranges]).get("error", ""))


def field(path: str, name: str, *keys: str) -> None:
    for view in ask(path, op="status")["views"]:
        if view["name"] == name:
            for key in keys:
                print(view.get(key, ""))


def compare(device: str, *files: str) -> None:
    with open(device, "rb") as file:
        image = file.read()
    magic, version, _, header_bytes, _, reduction, bits = struct.unpack_from("<8sIIQBBB", image)
    elements, data_bytes, count, table, names = struct.unpack_from("<5Q", image, 32)
    assert (magic, version, reduction, count) == (b"PDMAVIEW", 1, 1, len(files)), (magic, version, reduction, count)
    assert data_bytes == (elements * bits + 7) // 8
    assert len(image) == (header_bytes + data_bytes + 4095) // 4096 * 4096, len(image)
    assert not any(image[header_bytes + data_bytes:]), "the padding is zeros"
    expected = array("I")
    for i, path in enumerate(files):
        size, name, name_bytes = struct.unpack_from("<QII", image, table + 16 * i)
        begin = names + name
        assert image[begin:begin + name_bytes] == path.encode(), path
        before = len(expected)
        with open(path, "rb") as file:
            expected.frombytes(file.read())
        assert len(expected) - before == size, path
    assert len(expected) == elements
    mask = (1 << bits) - 1
    got = array("I")
    for at in range(header_bytes, header_bytes + data_bytes, bits):
        group = int.from_bytes(image[at:at + bits], "little")
        got.extend((group >> shift) & mask for shift in range(0, 8 * bits, bits))
    assert got[:elements] == expected, next(i for i in range(elements) if got[i] != expected[i])


def each() -> None:
    count = 0
    for line in sys.stdin:
        try:
            compare(*line.split())
        except AssertionError as fault:
            raise AssertionError(line) from fault
        count += 1
    print(count)


def halves(path: str, mib: str) -> None:
    values = memoryview(bytearray(int(mib) << 20)).cast("H")
    values[::2] = memoryview(random.Random(1).randbytes(int(mib) << 19)).cast("H")
    with open(path, "wb") as file:
        file.write(values.cast("B"))


def poke(path: str, element: str) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        at = 4 * int(element)
        mapping[at:at + 4] = bytes(mapping[at:at + 4])
        print("ready", flush=True)
        for value in sys.stdin:
            struct.pack_into("<I", mapping, at, int(value))
            print("stored", flush=True)


class Direct:
    """Reads past the page cache."""

    def __init__(self, device: str, size: int) -> None:
        self.fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, size)  # of pages

    def read(self, offset: int) -> bytes:
        got = os.preadv(self.fd, [self.buffer], offset)
        return self.buffer[:got]


def packed(path: str, bits: int, elements: int) -> bytes:
    kept = f"{path}.{bits}"
    if os.path.exists(kept):
        with open(kept, "rb") as file:
            return file.read()
    values = array("I")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    assert len(values) == elements, (len(values), elements)
    values.extend([0] * (-elements % 8))
    out = bytearray()
    for a, b, c, d, e, f, g, h in zip(*[iter(values)] * 8):
        low, high = a | b << bits | c << 2 * bits | d << 3 * bits, e | f << bits | g << 2 * bits | h << 3 * bits
        out += (low | high << 4 * bits).to_bytes(bits, "little")
    with open(kept, "wb") as file:
        file.write(out)
    return bytes(out)


def survey(device: str, path: str, error: str = "", changing: str = "") -> None:
    block = 4096
    before = os.stat(changing).st_mtime_ns if changing else 0
    direct = Direct(device, block)
    head = direct.read(0)
    header_bytes, _, reduction, bits = struct.unpack_from("<QBBB", head, 16)
    elements, data_bytes = struct.unpack_from("<2Q", head, 32)
    assert reduction == 1, reduction
    expected = packed(path, bits, elements)
    came = failed = last = 0
    first = -1
    for at in range(0, data_bytes, block):
        here = min(block, data_bytes - at)
        while changing and at == 100 * block and os.stat(changing).st_mtime_ns == before:
            time.sleep(.001)
        try:
            got = direct.read(header_bytes + at)
        except OSError as fault:
            name = errno.errorcode.get(fault.errno or 0, "")
            assert name in ([error] if error else ["EIO", "ENODATA", "ENOMEM"]), fault
            failed += 1
            first = at * 8 // bits if first < 0 else first
            last = min((at + here) * 8 // bits, elements - 1)
            continue
        came += 1
        assert got[:here] == expected[at:at + here], f"the block at byte {at} of the data is wrong"
    print(came, failed, first, last)


def read(devices: str, path: str, order: str, threads: str = "1", each: str = "0") -> None:
    with open(path, "rb") as file:
        expected = memoryview(file.read()).cast("H")[::2].tobytes()
    mib, step = [int(n) for n in order.split(",")], 256 << 10
    wrong: list[str] = []

    def run(device: str, part: list[int]) -> None:
        header_bytes, = struct.unpack_from("<Q", Direct(device, 4096).read(0), 16)
        direct = Direct(device, step)
        for at in part:
            for offset in range(at << 20, (at + 1) << 20, step):
                try:
                    if direct.read(header_bytes + offset) != expected[offset:offset + step]:
                        wrong.append(f"the bytes at {offset} of the data")
                except OSError as error:
                    wrong.append(str(error))

    count = int(threads)
    workers = []
    for device, _, place in (name.partition("@") for name in devices.split(",")):
        for i in range(count):
            part = (2 * mib)[int(place or 0) + i * len(mib) // count:][:int(each) or len(mib)]
            workers.append(threading.Thread(target=run, args=[device, part]))
    begin = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begin
    assert not wrong, wrong[:3]
    print(f"{seconds:.2f}")


def small(device: str, count: str) -> None:
    with open(device, "rb") as file:
        blocks = file.seek(0, os.SEEK_END) // 4096
    direct, generator = Direct(device, 4096), random.Random(1)
    begin = time.monotonic()
    for _ in range(int(count)):
        assert len(direct.read(generator.randrange(blocks) * 4096)) == 4096
    print(f"{int(count) / (time.monotonic() - begin):.0f}")


if __name__ == "__main__":
    {"make": make, "widen": widen, "publish": publish, "withdraw": withdraw, "field": field, "compare": compare, "each": each, "plan": plan,
     "halves": halves, "poke": poke, "survey": survey, "read": read, "small": small}[sys.argv[1]](*sys.argv[2:])
