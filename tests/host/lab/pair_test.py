#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Pairs of simulated guests: which guest answers whose questions, and when the end of one is a failure of the pair."""
from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "qemu"), str(Path(__file__).resolve().parents[1])]
import lab  # noqa: E402
import pair  # noqa: E402
import tap  # noqa: E402

KERNEL = lab.Kernel(lab.NEWEST, "plain", Path("/nonexistent"))


class Life(lab.Boot):
    """A simulated guest: asks these questions, then ends well or badly, or at a power cut."""

    def __init__(self, topology: str, questions: list[str], ok: bool = True, lasting: bool = False) -> None:
        super().__init__(lab.Guest(KERNEL, lab.Topology.load(topology), [], Path("/nonexistent") / topology))
        self.questions, self.ok, self.lasting = questions, ok, lasting
        self.answers: list[str] = []
        self.power = asyncio.Event()

    def cut(self) -> None:
        self.power.set()

    async def run(self) -> lab.Outcome:
        for question in self.questions:
            verb, _, rest = question.partition(" ")
            self.answers.append(await self.guest.answers[verb](rest))
        if self.lasting:
            await asyncio.wait_for(self.power.wait(), 5)
            self.judge.fail("qemu", "killed")
        if not self.ok:
            self.judge.fail("died", "it did")
        self.guest.cable.close()  # type: ignore[union-attr]
        return self.outcome


def both(tested: list[str], peer: list[str], **of_peer: bool) -> tuple[Life, Life, lab.Outcome]:
    async def run() -> tuple[Life, Life, lab.Outcome]:
        ends = Life("switch", tested), Life("storage", peer, **of_peer)
        return *ends, await pair.Pair(*ends).run()
    return asyncio.run(run())


def words() -> None:
    near, far, outcome = both(["hear ready 5", "hear ready 5", "say done"], ["say ready one two", "say ready", "hear done 5"])
    assert near.answers == ["ok one two", "ok ", "ok"] and far.answers == ["ok", "ok", "ok "], (near.answers, far.answers)
    assert outcome.ok


def nobody_says_it() -> None:
    near, _, _ = both(["hear ready 0.01", "cut"], [], lasting=True)
    assert near.answers[0] == "error: the other guest did not say it", near.answers


def it_has_ended() -> None:
    near, _, _ = both(["hear ready 5"], [])
    assert near.answers == ["error: the other guest has ended"], near.answers


def a_failure_is_of_both() -> None:
    async def run() -> lab.Outcome:
        near = Life("switch", [], lasting=True)
        return await pair.Pair(near, Life("storage", [], ok=False)).run()
    assert [str(reason) for reason in asyncio.run(run()).reasons] == \
        ["peer: ended because the other guest failed", "died: peer: it did"]


def a_peer_that_stood_still() -> None:
    async def run(kind: str) -> lab.Outcome:
        far = Life("storage", [], ok=False)
        far.judge.fail(kind, "the guest did not boot")
        return await pair.Pair(Life("switch", [], lasting=True), far).run()
    assert asyncio.run(run("timeout")).stood_still
    assert not asyncio.run(run("qemu")).stood_still


def power_that_was_cut_is_none() -> None:
    _, _, outcome = both(["cut"], [], lasting=True)
    assert outcome.ok, outcome.reasons


def each_sees_the_other() -> None:
    near, far, _ = both([], [])
    assert near.guest.image("peer:disk1") == far.guest.path("disk1") and far.guest.image("peer:gpu0") == near.guest.path("gpu0")
    assert near.guest.image("peer:disk2") is None and near.guest.image("/etc/passwd") is None
    assert [life.guest.env["LAB_NODE"] for life in (near, far)] == ["1", "2"]


def header() -> None:
    test = lab.Test(Path("t.sh"), {"peer": "store storage"})
    guest = lab.Guest(KERNEL, lab.Topology.load("switch"), [test], Path("/nonexistent"))
    peer = guest.peer()
    assert peer and peer.topology.name == "storage" and peer.tests[0].name == "store" and peer.out != guest.out
    assert lab.Guest(KERNEL, guest.topology, [lab.Test(Path("t.sh"), {})], guest.out).peer() is None


if __name__ == "__main__":
    sys.exit(tap.run([words, nobody_says_it, it_has_ended, a_failure_is_of_both, a_peer_that_stood_still,
                      power_that_was_cut_is_none, each_sees_the_other, header]))
