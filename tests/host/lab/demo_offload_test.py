#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The witness and the verdict of make demo-offload, without guests: which bytes and which times it must not take for proven."""
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import struct
import sys
import tempfile
from pathlib import Path
from typing import Callable, Iterator

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "qemu"), str(Path(__file__).resolve().parents[1])]
import demo  # noqa: E402
import demo_offload  # noqa: E402
import lab  # noqa: E402
import tap  # noqa: E402
from demo_offload import PLAIN, REDUCED, VIEWS, Run, Verdict  # noqa: E402

COUNT = 10005
KERNEL = lab.Kernel(lab.NEWEST, "plain", Path("/nonexistent"))


def packed(values: list[int], bits: int) -> bytes:
    whole = 0
    for i, value in enumerate(values):
        whole |= value << (bits * i)
    return whole.to_bytes((bits * len(values) + 7) // 8, "little")


def image_of(tokens: bytes, bits: int) -> bytes:
    """What the device of a view has: a header without names and sums, which the witness does not look at."""
    values = list(struct.unpack(f"<{len(tokens) // 4}I", tokens))
    data = packed(values, bits)
    header = struct.pack("<8sIIQBBBBIQQ", b"PDMAVIEW", 1, 0, 4096, 1, int(bits != 32), bits, 0, 0, len(values), len(data))
    image = header.ljust(4096, b"\0") + data
    return image.ljust(demo.round_up(len(image), 4096), b"\0")


class Shown:
    """A GPU node with a file as memory; it moves data only on request."""

    def __init__(self, folder: Path) -> None:
        self.tokens = {}
        for bits in demo_offload.DISKS:
            self.tokens[bits] = folder / f"tokens{bits}"
            demo_offload.make_tokens(self.tokens[bits], COUNT, bits)
        near = lab.Guest(KERNEL, lab.Topology.load("switch"), [], folder)
        self.bar = near.path("gpu0")
        lab.sparse(self.bar, 1)
        self.witness = demo_offload.Witness(self.tokens, COUNT, near)
        self.said = io.StringIO()

    def image(self, name: str) -> bytearray:
        view = VIEWS[name]
        return bytearray(image_of(self.tokens[view.file].read_bytes(), view.bits))

    def fill(self, name: str) -> None:
        assert asyncio.run(self.witness.refill(name)) == "ok"

    def move(self, image: bytes, at: int = 4096) -> None:
        with open(self.bar, "r+b") as file:
            file.seek(at)
            file.write(image)

    def took(self, name: str, size: int, seconds: float = 0.01) -> str:
        cp = {"bar_offset": 4096, "bytes": size, "seconds": seconds}
        with contextlib.redirect_stdout(self.said):
            return asyncio.run(self.witness.took(f"{name} 100 10 {json.dumps(cp)}"))

    def reads(self, name: str, spoil: Callable[[bytearray], None] = lambda image: None) -> str:
        """A whole read, of an image that `spoil` may have changed."""
        image = self.image(name)
        spoil(image)
        self.fill(name)
        self.move(image)
        return self.took(name, len(image))


@contextlib.contextmanager
def shown() -> Iterator[Shown]:
    with tempfile.TemporaryDirectory(prefix="demo-offload-test-") as folder:
        yield Shown(Path(folder))


def integers_of_all_widths_are_unpacked() -> None:
    for bits in range(1, 33):
        for count in (1, 7, 8, 9, 203):
            values = [random.Random(count).getrandbits(bits) for _ in range(count)]
            got = demo_offload.unpack(packed(values, bits), bits, count)
            assert list(struct.unpack(f"<{count}I", got)) == values, (bits, count)


def the_tokens_need_their_bits() -> None:
    with shown() as s:
        for bits, path in s.tokens.items():
            tokens = struct.unpack(f"<{COUNT}I", path.read_bytes())
            assert max(tokens) == tokens[-1] == (1 << bits) - 1 and len(set(tokens)) > COUNT // 2


def each_view_is_proven() -> None:
    with shown() as s:
        for name in VIEWS:
            assert s.reads(name) == "ok", s.said.getvalue()
        assert len(s.witness.verdict.runs) == len(VIEWS) and not s.witness.table.bad


def one_wrong_bit_is_seen() -> None:
    for at in (4096, 4096 + 3001, 4096 + 2 * COUNT - 1):
        for name in VIEWS:
            with shown() as s:
                def spoil(image: bytearray) -> None:
                    image[at] ^= 1
                assert s.reads(name, spoil).startswith("error: element"), s.said.getvalue()
                assert s.witness.verdict.bad and s.witness.table.bad


def a_header_of_something_else_is_seen() -> None:
    for at in (0, 8, 16, 24, 25, 26, 32, 40):
        with shown() as s:
            def spoil(image: bytearray) -> None:
                image[at] ^= 1
            assert s.reads("bits18", spoil).startswith("error:"), (at, s.said.getvalue())


def a_view_cut_short_is_seen() -> None:
    with shown() as s:
        image = s.image("bits16")
        s.fill("bits16")
        s.move(image)
        assert s.took("bits16", len(image) - 4096).startswith("error:")


def what_came_beside_is_seen() -> None:
    for at in (100, 512 << 10):
        with shown() as s:
            image = s.image("plain")
            s.fill("plain")
            s.move(image)
            s.move(b"x", at)
            assert "around" in s.took("plain", len(image))


def the_last_reads_bytes_prove_nothing_of_the_next() -> None:
    with shown() as s:
        size = len(s.image("plain"))
        assert s.reads("plain") == "ok"
        s.fill("plain")
        assert s.took("plain", size).startswith("error:")


def memory_that_was_not_filled_proves_nothing() -> None:
    with shown() as s:
        size = len(s.image("plain"))
        assert s.reads("plain") == "ok"
        try:
            s.took("plain", size)
        except lab.LabError:
            return
        raise AssertionError(s.said.getvalue())


def a_clock_that_runs_wrong_is_seen() -> None:
    with shown() as s:
        image = s.image("plain")
        s.fill("plain")
        s.move(image)
        assert "clock" in s.took("plain", len(image), 60.0)
        s.fill("plain")
        s.move(image)
        s.witness.begun -= 60
        assert "clock" in s.took("plain", len(image))


def runs(rates: dict[str, float], wires: dict[str, float], unlimited: float = 4) -> Verdict:
    """Reads at a limit of 1000000 bytes a second. Rates and wires: as multiples of plain's."""
    verdict, elements, limit = Verdict([], 1000000), 1000000, 1000000
    for name in VIEWS:
        wire = int(4e6 * wires.get(name, 1))
        seconds = 4.1 / rates.get(name, 1)
        verdict.runs.append(Run(name, False, elements, wire / limit / unlimited, 0, wire, 0))
        verdict.runs += [Run(name, True, elements, seconds, 0, wire, 0)] * demo_offload.REPEATS
    verdict.judge()
    return verdict


GOOD = {"bits16": 1.96, "bits18": 1.72}, {"bits16": .505, "bits18": .567}


def good_numbers_are_shown() -> None:
    verdict = runs(*GOOD)
    assert not verdict.bad, verdict.bad
    facts = json.loads(json.dumps(verdict.json()))
    assert facts["ok"] and len(facts["runs"]) == len(VIEWS) * (1 + demo_offload.REPEATS)
    assert abs(facts["views"]["bits16"]["rate_ratio"] - 1.96) < 1e-6
    with contextlib.redirect_stdout(io.StringIO()) as said:
        demo_offload.show(verdict)
    assert "1.960, needs 1.95" in said.getvalue(), said.getvalue()


def each_number_can_fail() -> None:
    rates, wires = GOOD
    for bad, verdict in {
        "bits16: elements a second": runs(rates | {"bits16": 1.94}, wires),
        "bits18: elements a second": runs(rates | {"bits18": 1.69}, wires),
        "bits16: bytes on the wire": runs(rates, wires | {"bits16": .511}),
        "bits18: bytes on the wire": runs(rates, wires | {"bits18": .571}),
    }.items():
        assert verdict.bad == [bad] and not verdict.json()["ok"], (bad, verdict.bad)
    slow = runs(*GOOD, unlimited=2.4)
    assert slow.bad == [f"{name}: 2.5 x faster without the limit" for name in VIEWS], slow.bad
    # A wire that is not full: something else was slow, plain's reads above all.
    idle = runs({"plain": .8, "bits16": 1.96, "bits18": 1.72}, wires)
    assert "plain: the limit is filled" in idle.bad, idle.bad


def a_read_that_is_missing_is_no_success() -> None:
    for at in range(len(VIEWS) * (1 + demo_offload.REPEATS)):
        verdict = runs(*GOOD)
        del verdict.runs[at]
        verdict.judge()
        assert verdict.bad, at


def the_issues_numbers_are_asked_for() -> None:
    assert [(view.rate, view.wire) for view in REDUCED] == [(1.95, .51), (1.7, .57)] and not PLAIN.rate


def the_limit_is_below_the_slowest() -> None:
    assert demo_offload.chosen_limit(1e7, 10**9) == 2000000
    assert demo_offload.chosen_limit(1e10, 48000000) == 6000000
    try:
        demo_offload.chosen_limit(1e6, 10**9)
    except lab.LabError:
        return
    raise AssertionError("a machine that is too slow is taken")


def wrong_numbers_of_tokens_are_refused() -> None:
    assert demo_offload.chosen_count("2000000") == 2000000
    for text in ("0", "-5", "x", "1000", "99999999999"):
        try:
            demo_offload.chosen_count(text)
        except demo.Refused:
            continue
        raise AssertionError(text)


if __name__ == "__main__":
    sys.exit(tap.run([integers_of_all_widths_are_unpacked, the_tokens_need_their_bits, each_view_is_proven, one_wrong_bit_is_seen,
                      a_header_of_something_else_is_seen, a_view_cut_short_is_seen, what_came_beside_is_seen,
                      the_last_reads_bytes_prove_nothing_of_the_next, memory_that_was_not_filled_proves_nothing,
                      a_clock_that_runs_wrong_is_seen, good_numbers_are_shown, each_number_can_fail,
                      a_read_that_is_missing_is_no_success, the_issues_numbers_are_asked_for, the_limit_is_below_the_slowest,
                      wrong_numbers_of_tokens_are_refused]))
