# SPDX-License-Identifier: MIT
"""Two guests connected by a cable: the tested guest and its peer.

The cable is a socket pair of the host, with one end for each QEMU. Nothing else can send on it, and no port of the
host's network is used. If one guest loses its power, frames to it are dropped, as behind a switch.

The guests synchronize through the host. Each word can be received as often as it was sent:

    host say WORD [TEXT]      send WORD to the other guest
    host hear WORD SECONDS    wait until the other guest has sent WORD; answers: ok TEXT
    host cut                  cut the power of the other guest at once
    host compare peer:disk0   fill and compare any image of the other guest

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

NODE = "LAB_NODE"  # 1 is the tested guest; also the last number of its addresses


def mac(env: Mapping[str, str]) -> str:
    return f"52:54:00:09:00:0{env[NODE]}"


class End:
    """One guest, with the operations that the other may request."""

    def __init__(self, boot: lab.Boot) -> None:
        self.boot = boot
        self.words: dict[str, asyncio.Queue[str]] = defaultdict(asyncio.Queue)
        self.cut = False  # by the other guest's request
        self.life: asyncio.Task[lab.Outcome] | None = None

    async def say(self, request: str) -> str:
        word, _, text = request.partition(" ")
        self.words[word].put_nowait(text)
        return "ok"

    async def hear(self, request: str) -> str:
        """A request of the other guest."""
        assert self.life
        word, seconds = request.split()
        heard = asyncio.ensure_future(self.words[word].get())
        await asyncio.wait({heard, self.life}, timeout=float(seconds), return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            return f"ok {heard.result()}"
        heard.cancel()
        return f"error: {'the other guest has ended' if self.life.done() else 'the other guest did not say it'}"

    async def lose_power(self, request: str = "") -> str:
        """A request of the other guest."""
        self.cut = True
        self.boot.cut()
        return "ok"

    def follow(self, other: End) -> None:
        """Ends this guest if the other one has failed unexpectedly."""
        assert self.life and other.life
        if other.life.done() and not other.cut and not other.life.result().ok and not self.life.done():
            self.boot.judge.fail("peer", "ended because the other guest failed")
            self.cut = True
            self.boot.cut()

    def reasons(self) -> list[lab.Reason]:
        """A guest whose power was cut cannot send its remaining reports."""
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
        """One outcome for both: the tested guest's, with the messages of its peer."""
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
