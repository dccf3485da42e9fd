# SPDX-License-Identifier: MIT
"""A drive with a volatile cache: an image behind a server of QEMU's block protocol (NBD).

Writes stay in memory until the guest flushes or uses FUA. At a power cut, each sector written since keeps, at random,
its old contents or those of any later write. Drives may do that, and filesystems must cope with it.
"""
from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from pathlib import Path

SECTOR = 512
OPTION_MAGIC = 0x49484156454F5054   # "IHAVEOPT"
REPLY_MAGIC = 0x3E889045565A9
REQUEST_MAGIC, RESPONSE_MAGIC = 0x25609513, 0x67446698
OPT_ABORT, OPT_GO = 2, 7
REP_ACK, REP_INFO, REP_UNSUPPORTED = 1, 3, (1 << 31) + 1
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
FUA = 1
CAN = 1 | 4 | 8                     # NBD flags: has flags, flush, FUA
EINVAL = 22


class Drive:
    """One image; serves one connection at a time."""

    def __init__(self, image: Path) -> None:
        self.file = open(image, "r+b", buffering=0)
        self.size = image.stat().st_size
        self.pending: dict[int, list[bytes]] = {}  # sector -> writes that are not stored yet, oldest first
        self.lost = self.flushes = 0
        self.server: asyncio.AbstractServer | None = None

    # Operations of the drive

    def read(self, off: int, length: int) -> bytes:
        data = bytearray(self.pread(off, length))
        for at in range(0, length, SECTOR):
            if versions := self.pending.get((off + at) // SECTOR):
                data[at:at + SECTOR] = versions[-1]
        return bytes(data)

    def write(self, off: int, data: bytes, fua: bool = False) -> None:
        for at in range(0, len(data), SECTOR):
            self.pending.setdefault((off + at) // SECTOR, []).append(data[at:at + SECTOR])
        if fua:
            for at in range(0, len(data), SECTOR):
                self.store((off + at) // SECTOR)

    def flush(self) -> None:
        self.flushes += 1
        for sector in list(self.pending):
            self.store(sector)

    def cut(self, lots: random.Random) -> None:
        """Cuts the power."""
        keep = lots.choice((0.0, 0.3, 0.7, 0.95))
        for sector, versions in self.pending.items():
            if lots.random() < keep:
                self.pwrite(sector * SECTOR, lots.choice(versions))
            else:
                self.lost += 1
        self.pending.clear()

    def store(self, sector: int) -> None:
        self.pwrite(sector * SECTOR, self.pending.pop(sector)[-1])

    def pread(self, off: int, length: int) -> bytes:
        self.file.seek(off)
        return self.file.read(length)

    def pwrite(self, off: int, data: bytes) -> None:
        self.file.seek(off)
        self.file.write(data)

    # The protocol

    async def listen(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(self.serve, str(path))

    async def close(self) -> None:
        if self.server:
            self.server.close()
            await self.server.wait_closed()
        self.file.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # QEMU may be killed at any point of the protocol.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if await self.agree(reader, writer):
                while await self.request(reader, writer):
                    pass
        writer.close()

    async def agree(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """The handshake. True: requests follow."""
        writer.write(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 1 | 2))
        await reader.readexactly(4)
        while True:
            _, option, length = struct.unpack(">QII", await reader.readexactly(16))
            await reader.readexactly(length)

            def reply(kind: int, data: bytes = b"") -> None:
                writer.write(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

            if option == OPT_GO:
                reply(REP_INFO, struct.pack(">HQH", 0, self.size, CAN))
                reply(REP_ACK)
                return True
            if option == OPT_ABORT:
                reply(REP_ACK)
                return False
            reply(REP_UNSUPPORTED)

    async def request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        magic, flags, kind, cookie, off, length = struct.unpack(">IHHQQI", await reader.readexactly(28))
        if magic != REQUEST_MAGIC or kind == DISCONNECT:
            return False
        data, error = b"", 0
        if kind == READ:
            data = self.read(off, length)
        elif kind == WRITE:
            self.write(off, await reader.readexactly(length), bool(flags & FUA))
        elif kind == FLUSH:
            self.flush()
        else:
            error = EINVAL
        writer.write(struct.pack(">IIQ", RESPONSE_MAGIC, error, cookie) + data)
        await writer.drain()
        return True
