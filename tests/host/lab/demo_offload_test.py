#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The witness and the verdict of make demo-offload, without guests: which bytes and which times it must not take for proven."""
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterator

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "qemu"), str(Path(__file__).resolve().parents[1])]
import demo  # noqa: E402
import demo_offload  # noqa: E402
import lab  # noqa: E402
import tap  # noqa: E402
from demo_offload import PLAIN, REDUCED, VIEWS, Run, Verdict  # noqa: E402

COUNT, AT = 10005, 128 << 10
KERNEL = lab.Kernel(lab.NEWEST, "plain", Path("/nonexistent"))


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

    def begin(self, name: str, at: int = AT) -> str:
        return asyncio.run(self.witness.begin(f"{name} {at} {4 * COUNT}"))

    def move(self, tokens: bytes, at: int = AT) -> None:
        with open(self.bar, "r+b") as file:
            file.seek(at)
            file.write(tokens)

    def took(self, name: str, seconds: float = .001, **other: object) -> str:
        assert asyncio.run(self.witness.end("")) == "ok"
        view = VIEWS[name]
        told = {"elements": COUNT, "seconds": seconds, "codec": view.codec, "reduced_by": view.reduced_by, "bar_offset": AT,
                "widened_by": view.widened_by, "route": "host"} | other
        with contextlib.redirect_stdout(self.said):
            return asyncio.run(self.witness.took(f"{name} 100 10 {json.dumps(told)}"))

    def reads(self, name: str, spoil: Callable[[bytearray], None] = lambda tokens: None, **other: object) -> str:
        """A whole read, of tokens that `spoil` may have changed."""
        tokens = bytearray(self.tokens[VIEWS[name].file].read_bytes())
        spoil(tokens)
        assert self.begin(name) == "ok"
        self.move(tokens)
        return self.took(name, **other)


@contextlib.contextmanager
def shown() -> Iterator[Shown]:
    with tempfile.TemporaryDirectory(prefix="demo-offload-test-") as folder:
        yield Shown(Path(folder))


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
    for at in (0, 3001, 4 * COUNT - 1):
        for name in VIEWS:
            with shown() as s:
                def spoil(tokens: bytearray) -> None:
                    tokens[at] ^= 1
                assert s.reads(name, spoil).startswith(f"error: element {at // 4} is"), s.said.getvalue()
                assert s.witness.verdict.bad and s.witness.table.bad


def another_view_is_seen() -> None:
    for other in ({"codec": "u32:none"}, {"reduced_by": "host"}, {"reduced_by": "nowhere"}, {"elements": COUNT - 1}, {"bar_offset": AT + 4},
                  {"widened_by": "cpu"}):
        with shown() as s:
            assert s.reads("bits18", **other).startswith("error:"), other
    with shown() as s:
        try:
            s.begin("bits18")
            s.took("bits16")
        except lab.LabError:
            return
        raise AssertionError("a read of another view is taken")


def what_came_beside_is_seen() -> None:
    for at in (AT - 1, AT + 4 * COUNT):
        with shown() as s:
            assert s.begin("plain18") == "ok"
            s.move(s.tokens[18].read_bytes())
            s.move(b"x", at)
            assert "around" in s.took("plain18")


def the_last_reads_bytes_prove_nothing_of_the_next() -> None:
    with shown() as s:
        assert s.reads("plain18") == "ok"
        assert s.begin("plain18") == "ok"
        assert s.took("plain18").startswith("error:")


def a_read_that_the_host_has_not_seen_proves_nothing() -> None:
    with shown() as s:
        assert s.reads("plain18") == "ok"
        assert asyncio.run(s.witness.end("")).startswith("error:")
        assert s.begin("plain18", AT) == "ok"
        s.witness.fresh = None
        try:
            asyncio.run(s.witness.took('plain18 1 1 {"seconds": 1}'))
        except lab.LabError:
            return
        raise AssertionError(s.said.getvalue())


def other_sizes_are_refused() -> None:
    with shown() as s:
        for rest in (f"plain18 {AT} {4 * COUNT - 4}", f"other {AT} {4 * COUNT}"):
            assert asyncio.run(s.witness.begin(rest)).startswith("error:")


def what_the_guest_could_not_read_ends_it() -> None:
    with shown() as s:
        try:
            asyncio.run(s.witness.took('plain18 1 1 {"error": {"message": "no view"}}'))
        except lab.LabError as error:
            assert "no view" in str(error)
            return
        raise AssertionError("no error")


def a_clock_that_runs_wrong_is_seen() -> None:
    with shown() as s:
        assert "clock" in s.reads("plain18", seconds=60.0)
        assert s.begin("plain18") == "ok"
        s.move(s.tokens[18].read_bytes())
        assert s.witness.fresh
        s.witness.fresh.begun -= 60
        assert "clock" in s.took("plain18")


def runs(rates: dict[str, float], wires: dict[str, float], unlimited: float = 4) -> Verdict:
    """Reads at a limit of 1000000 bytes a second. Rates and wires: as multiples of plain's."""
    verdict, elements, limit = Verdict([], 1000000), 1000000, 1000000
    for name in VIEWS:
        wire = int(4e6 * wires.get(name, 1))
        seconds = 4.1 / rates.get(name, 1)
        verdict.runs.append(Run(name, False, elements, wire / limit / unlimited, 0, wire, 0, "host", "gpu"))
        verdict.runs += [Run(name, True, elements, seconds, 0, wire, 0, "host", "gpu")] * demo_offload.REPEATS
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
    again = runs(*GOOD)
    again.runs[-1] = replace(again.runs[-1], received=int(1.04 * again.runs[-1].received))
    again.judge()
    assert again.bad == ["bits18: nothing is sent twice"], again.bad
    # A wire that is not full: something else was slow, plain's reads above all.
    idle = runs({"plain18": .8, "bits16": 1.96, "bits18": 1.72}, wires)
    assert idle.bad == ["plain18: the limit is filled"], idle.bad
    # Each view beside its own file.
    assert runs({"plain16": 1.05} | rates, wires | {"plain16": 1.02}).bad == ["bits16: elements a second"]
    assert runs(rates, wires | {"plain16": .98}).bad == ["bits16: bytes on the wire"]


def a_read_that_is_missing_is_no_success() -> None:
    for at in range(len(VIEWS) * (1 + demo_offload.REPEATS)):
        verdict = runs(*GOOD)
        del verdict.runs[at]
        verdict.judge()
        assert verdict.bad, at


def the_issues_numbers_are_asked_for() -> None:
    assert [(view.rate, view.wire) for view in REDUCED] == [(1.95, .51), (1.7, .57)] and not any(view.rate for view in PLAIN.values())


def the_limit_is_below_the_slowest() -> None:
    assert demo_offload.chosen_limit(1e7, 10**9) == 2000000
    assert demo_offload.chosen_limit(1e10, 48000000) == 6000000
    assert demo_offload.chosen_limit(3.1e6, 10**9) == demo_offload.LOWEST
    try:
        demo_offload.chosen_limit(2.9e6, 10**9)
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
    sys.exit(tap.run([the_tokens_need_their_bits, each_view_is_proven, one_wrong_bit_is_seen, another_view_is_seen,
                      what_came_beside_is_seen, the_last_reads_bytes_prove_nothing_of_the_next,
                      a_read_that_the_host_has_not_seen_proves_nothing, other_sizes_are_refused,
                      what_the_guest_could_not_read_ends_it, a_clock_that_runs_wrong_is_seen, good_numbers_are_shown,
                      each_number_can_fail, a_read_that_is_missing_is_no_success, the_issues_numbers_are_asked_for,
                      the_limit_is_below_the_slowest, wrong_numbers_of_tokens_are_refused]))
