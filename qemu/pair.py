# SPDX-License-Identifier: MIT
"""Two guests at the two ends of a cable: the one that is tested, and its peer.

The cable is a pair of sockets of the host's, an end for each QEMU. Nothing else can speak on it, and no port of the
host's network is used. If one end loses its power, frames to it vanish, as they do behind a switch.

The two wait for each other by way of the host. Each word is heard as often as it was said:

    host say WORD [TEXT]      for the other
    host hear WORD SECONDS    ok TEXT, once the other has said it
    host cut                  the other loses its power, here and now
    host compare peer:disk0   any image of the other's, to fill and to compare

If one fails, so does the other.
"""
from __future__ import annotations

import asyncio
import dataclasses
import socket
from collections import defaultdict
from typing import TYPE_CHECKING, Mapping

if TYPE_CHECKING:
    import lab

NODE = "LAB_NODE"  # 1 is the one that is tested: the last number of its addresses


def mac(env: Mapping[str, str]) -> str:
    return f"52:54:00:09:00:0{env[NODE]}"


class End:
    """One guest, as the other sees it."""

    def __init__(self, boot: lab.Boot) -> None:
        self.boot = boot
        self.words: dict[str, asyncio.Queue[str]] = defaultdict(asyncio.Queue)
        self.cut = False  # by us
        self.life: asyncio.Task[lab.Outcome] | None = None

    async def say(self, request: str) -> str:
        word, _, text = request.partition(" ")
        self.words[word].put_nowait(text)
        return "ok"

    async def hear(self, request: str) -> str:
        """Asked by the other."""
        assert self.life
        word, seconds = request.split()
        heard = asyncio.ensure_future(self.words[word].get())
        await asyncio.wait({heard, self.life}, timeout=float(seconds), return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            return f"ok {heard.result()}"
        heard.cancel()
        return f"error: {'the other guest has ended' if self.life.done() else 'the other guest did not say it'}"

    async def lose_power(self, request: str = "") -> str:
        """Asked by the other."""
        self.cut = True
        self.boot.cut()
        return "ok"

    def follow(self, other: End) -> None:
        """If the other has failed, and was not meant to, this one has nothing to live for."""
        assert self.life and other.life
        if other.life.done() and not other.cut and not other.life.result().ok and not self.life.done():
            self.boot.judge.fail("peer", "ended because the other guest failed")
            self.cut = True
            self.boot.cut()

    def reasons(self) -> list[lab.Reason]:
        """What a guest owes that lost its power it cannot deliver."""
        return [reason for reason in self.boot.outcome.reasons if not self.cut or reason.kind in ("splat", "peer", "not-ok")]


class Pair:
    def __init__(self, tested: lab.Boot, peer: lab.Boot) -> None:
        self.ends = End(tested), End(peer)

    def connect(self) -> None:
        sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for node, (end, other) in enumerate((self.ends, self.ends[::-1]), 1):
            guest, far = end.boot.guest, other.boot.guest
            guest.cable = sockets[node - 1]
            guest.env[NODE] = str(node)
            guest.images |= {f"peer:{name}": far.path(name) for name in ("gpu0", *far.topology.disks)}
            guest.answers |= {"say": end.say, "hear": other.hear, "cut": other.lose_power}

    async def run(self) -> lab.Outcome:
        """One outcome for both: the tested guest's, with what its peer had to say."""
        self.connect()
        for end in self.ends:
            end.life = asyncio.create_task(end.boot.run())
        lives = [end.life for end in self.ends if end.life]
        try:
            await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
            for end, other in (self.ends, self.ends[::-1]):
                other.follow(end)
            outcome, other_outcome = await asyncio.gather(*lives)
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)
        outcome.peer_stood_still = other_outcome.stood_still
        outcome.reasons[:] = self.ends[0].reasons()
        outcome.reasons += [dataclasses.replace(reason, detail=f"peer: {reason.detail}") for reason in self.ends[1].reasons()]
        outcome.lines += other_outcome.lines
        outcome.notes += other_outcome.notes
        outcome.known_splats |= other_outcome.known_splats
        return outcome
