#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The witness of make demo-rdma, without guests: bytes moved on one path do not count as moved on the next."""
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Iterator
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "qemu"), str(Path(__file__).resolve().parents[1])]
import demo  # noqa: E402
import demo_rdma  # noqa: E402
import lab  # noqa: E402
import tap  # noqa: E402

demo.GPU_MIB = 1
SIZE = 12345
PAGES = 12288  # of it, whole pages
KERNEL = lab.Kernel(lab.NEWEST, "plain", Path("/nonexistent"))


def pattern(*words: object) -> None:
    asyncio.run(lab.said_by(str(lab.pattern_binary()), *map(str, words)))


class Shown:
    """A GPU node with a file as memory; it moves data only on request."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "file"
        lab.sparse(self.file, 0)
        pattern("fill", self.file, 0, SIZE, "pattern:1")
        near = lab.Guest(KERNEL, lab.Topology.load("switch"), [], folder / "gpu")
        far = lab.Guest(KERNEL, lab.Topology.load("storage"), [], folder / "storage")
        with demo.filled_gpu(near):
            pass
        self.bar = near.path("gpu0")
        self.witness = demo_rdma.Witness(self.file, SIZE, near, far, demo_rdma.WAYS | demo_rdma.CARD_WAYS)
        self.said = io.StringIO()

    def way(self, name: str) -> None:
        with contextlib.redirect_stdout(self.said):
            assert asyncio.run(self.witness.way(name)) == "ok"

    def move(self) -> None:
        pattern("fill", self.bar, 0, SIZE, self.file)

    def gave(self, name: str, dma: str, direct: int) -> None:
        with contextlib.redirect_stdout(self.said):
            assert asyncio.run(self.witness.gave(f"{name} {dma} 0 0 {SIZE} {direct} 0 {SIZE - direct} 0")) == "ok"

    def took(self, name: str, dma: str = "-") -> None:
        cp = {"bar_offset": 0, "bytes": SIZE, "bytes_host": SIZE if dma == "-" else 0, "leaf": None, "filesystem": "xfs", "map": "software",
              "route": "bounced through host memory", "seconds": 1.0}
        with contextlib.redirect_stdout(self.said):
            assert asyncio.run(self.witness.took(f"{name} {dma} {json.dumps(cp)}")) == "ok"


@contextlib.contextmanager
def shown() -> Iterator[Shown]:
    with tempfile.TemporaryDirectory(prefix="demo-rdma-test-") as folder:
        yield Shown(Path(folder))


def what_was_moved_is_proven() -> None:
    with shown() as s:
        for name in demo_rdma.WAYS:
            s.way(name)
            s.move()
            s.took(name)
        assert s.witness.seen == ["nvme read", "nvme beside", "nfs read", "nfs beside"], s.said.getvalue()


def the_first_ways_bytes_prove_nothing_of_the_second() -> None:
    with shown() as s:
        s.way("nvme")
        s.move()
        s.took("nvme")
        s.way("nfs")
        s.took("nfs")
        assert "nfs read" not in s.witness.seen and s.witness.table.bad == ["compare"], s.said.getvalue()


def bytes_that_the_card_did_not_move_are_not_its() -> None:
    # A partial page may be read whole, and one that is written passes through the host.
    whole = PAGES + 4096
    for dma, by_card in (("-", False), (f"0/{SIZE}", False), (f"{PAGES - 1}/{SIZE}", False), (f"{PAGES}/{PAGES}", False),
                         (f"{whole + 1}/{SIZE}", False), (f"{SIZE}/{PAGES - 1}", False), (f"{SIZE}/{SIZE}", True), (f"{whole}/{whole}", True)):
        with shown() as s:
            s.way("card-nvme")
            s.move()
            s.took("card-nvme", dma)
            s.gave("card-nvme", dma, PAGES)
            written = by_card or dma == f"{PAGES}/{PAGES}"
            seen = (["read"] if dma != "-" else []) + ["beside"] + ["read DMA"] * by_card + ["write"] + ["write DMA"] * written
            assert s.witness.seen == [f"card-nvme {what}" for what in seen], (dma, s.said.getvalue())
    with shown() as s:
        s.gave("card-nvme", f"{SIZE}/{SIZE}", PAGES - 1)
        assert s.witness.seen == ["card-nvme write DMA"], s.said.getvalue()


def what_came_beside_is_seen() -> None:
    with shown() as s:
        s.way("nvme")
        s.move()
        pattern("fill", s.bar, 512 << 10, 1, "byte:1")
        s.took("nvme")
        assert s.witness.seen == ["nvme read"], s.said.getvalue()


def memory_that_was_not_filled_proves_nothing() -> None:
    with shown() as s:
        s.way("nvme")
        s.move()
        s.took("nvme")
        try:
            s.took("nfs")
        except lab.LabError:
            return
        raise AssertionError(s.said.getvalue())


def a_kernel_shows_the_ways_that_it_does_not_lack() -> None:
    without_nvme = {name: way for name, way in demo_rdma.CARD_WAYS.items() if name != "card-nvme"}
    lack = lab.LACKS["nvme-rdma-p2p"]
    for k in lab.KERNELS:
        assert demo_rdma.card_ways(k) == (without_nvme if k in lack.kernels else demo_rdma.CARD_WAYS), k
    k = f"{lab.OLDEST}0"
    assert demo_rdma.card_ways(k) == demo_rdma.CARD_WAYS
    with mock.patch.object(lab, "LACKS", lab.LACKS | {"nvme-rdma-p2p": replace(lack, kernels=lack.kernels | {k})}):
        assert demo_rdma.card_ways(k) == without_nvme


if __name__ == "__main__":
    sys.exit(tap.run([what_was_moved_is_proven, the_first_ways_bytes_prove_nothing_of_the_second, bytes_that_the_card_did_not_move_are_not_its, what_came_beside_is_seen,
                      memory_that_was_not_filled_proves_nothing, a_kernel_shows_the_ways_that_it_does_not_lack]))
