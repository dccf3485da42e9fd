#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Files of tokens, and what a view's device must have of them, by a decoder that has nothing of ours.

image.py make PATH COUNT BITS SEED      writes COUNT u32 below 2^BITS, the last of which is the highest
image.py publish SOCKET NAME CONF       asks peerdma-viewd, and prints the error that it answers
image.py withdraw SOCKET NAME
image.py field SOCKET NAME KEY          prints a field of a view's status
image.py compare DEVICE FILE...         the device's header describes the files, and its elements, widened, are theirs
"""
import json
import random
import socket
import struct
import sys
from array import array


def make(path: str, count: str, bits: str, seed: str) -> None:
    generator = random.Random(int(seed))
    values = array("I", (generator.getrandbits(int(bits)) for _ in range(int(count))))
    if values:
        values[-1] = (1 << int(bits)) - 1
    with open(path, "wb") as file:
        values.tofile(file)


def ask(path: str, **request: str) -> dict:
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


def field(path: str, name: str, key: str) -> None:
    for view in ask(path, op="status")["views"]:
        if view["name"] == name:
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


if __name__ == "__main__":
    {"make": make, "publish": publish, "withdraw": withdraw, "field": field, "compare": compare}[sys.argv[1]](*sys.argv[2:])
