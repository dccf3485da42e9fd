#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Tests of the power cut's parts: the drive that loses its cache, and the checks afterwards."""
from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "power"), str(Path(__file__).resolve().parents[1]),
                str(Path(__file__).resolve().parents[3] / "qemu")]
import drive  # noqa: E402
import lab  # noqa: E402
import powercut  # noqa: E402
import tap  # noqa: E402

OLD, NEW, NEWER = (bytes([value]) * drive.SECTOR for value in (1, 2, 3))


def a_drive(folder: str) -> drive.Drive:
    image = Path(folder) / "image"
    image.write_bytes(OLD * 64)
    return drive.Drive(image)


def what_was_flushed_stays() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = a_drive(folder)
        one.write(0, NEW * 64)
        one.flush()
        one.cut(random.Random(1))
        assert one.read(0, 64 * drive.SECTOR) == NEW * 64 and not one.lost


def what_was_asked_to_be_stored_stays() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = a_drive(folder)
        one.write(0, NEW * 4, fua=True)
        one.cut(random.Random(1))
        assert one.read(0, 5 * drive.SECTOR) == NEW * 4 + OLD


def what_was_not_may_be_lost_or_not() -> None:
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(20):
            one = a_drive(folder)
            one.write(0, NEW * 64)
            one.write(0, NEWER * 64)
            assert one.read(0, 64 * drive.SECTOR) == NEWER * 64
            one.cut(random.Random(seed))
            after = one.read(0, 64 * drive.SECTOR)
            seen |= {after[at:at + drive.SECTOR] for at in range(0, len(after), drive.SECTOR)}
    assert seen == {OLD, NEW, NEWER}


def told() -> powercut.Told:
    so_far = powercut.Told()
    for line in ("# w a 1 0 8", "# w a 2 4 8", "# w b 3 0 1", "# s a 2", "# w a 4 0 1", "# w a 5 8 1", "# d a 5"):
        so_far.line(line)
    return so_far


GOOD = ["# r a 0 4 1", "# r a 4 4 2", "# r a 8 1 5", "# r a 9 3 2"]


def what_was_synced_and_is_there_is_right() -> None:
    assert powercut.judge(told(), powercut.found_in(GOOD)) == []


def what_was_written_later_may_be_there() -> None:
    assert powercut.judge(told(), powercut.found_in(["# r a 0 1 4", "# r a 1 3 1", *GOOD[1:]])) == []


def each_run_that_is_missing_or_older_is_wrong() -> None:
    for at in range(len(GOOD)):
        assert powercut.judge(told(), powercut.found_in(GOOD[:at] + GOOD[at + 1:]))
    assert powercut.judge(told(), powercut.found_in([*GOOD[:2], "# r a 8 1 2", GOOD[3]]))


def what_nobody_wrote_is_wrong() -> None:
    assert powercut.judge(told(), powercut.found_in([*GOOD, "# r b 0 1 -1"]))


class FlushedDrive(drive.Drive):
    """A drive that some guest has flushed."""

    def __init__(self, image: Path) -> None:
        super().__init__(image)
        self.flushes = 1


class FakeBoot:
    """A boot that does as told: it stands still before its first line, or writes and syncs until the power cut."""
    plan: list[bool] = []  # of each boot: it stands still

    def __init__(self, guest: lab.Guest) -> None:
        self.outcome, self.on = lab.Outcome(guest), True

    def cut(self) -> None:
        self.on = False

    async def run(self) -> lab.Outcome:
        if self.plan.pop(0):
            self.outcome.reasons.append(lab.Reason("timeout", "the guest was silent for too long", ["RIP=1"]))
            return self.outcome
        self.outcome.spoke = True
        for version in range(1, 121):
            self.outcome.guest.say(f"# w a {version} 0 8")
            self.outcome.guest.say(f"# s a {version}")
        while self.on:
            await asyncio.sleep(0.01)
        (self.outcome.guest.out / "serial.log").write_text("")
        (self.outcome.guest.out / "tap.log").write_text("")
        return self.outcome


def power_cut_of(*plan: bool) -> tuple[str, list[str], list[str]]:
    """What a round says, what is wrong, and its messages."""
    async def second_boot(guest: lab.Guest, _: object) -> lab.Outcome:
        outcome = lab.Outcome(guest)
        outcome.notes.append("# r a 0 8 120")
        return outcome

    messages: list[str] = []
    kept = powercut.Drive, powercut.make_images, lab.Boot, lab.boot
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)

        def make_images(first: lab.Guest) -> None:
            for disk in powercut.DISKS:
                first.path(disk).write_bytes(OLD)

        FakeBoot.plan = list(plan)
        powercut.Drive, powercut.make_images, lab.Boot, lab.boot = FlushedDrive, make_images, FakeBoot, second_boot
        try:
            says, wrong = asyncio.run(powercut.one_round(lab.Kernel(lab.NEWEST, "plain", out), out, 1, tell=messages.append))
        finally:
            powercut.Drive, powercut.make_images, lab.Boot, lab.boot = kept
    return says, wrong, messages


def a_guest_that_stood_still_is_booted_again() -> None:
    says, wrong, messages = power_cut_of(True, False)
    assert says.startswith("power cut after 120 writes") and not wrong, (says, wrong)
    assert any("stood still" in text for text in messages), messages


def a_guest_that_stands_still_twice_is_wrong() -> None:
    _, wrong, _ = power_cut_of(True, True)
    assert any("ended by itself" in text for text in wrong) and "RIP=1" in wrong, wrong


if __name__ == "__main__":
    sys.exit(tap.run([what_was_flushed_stays, what_was_asked_to_be_stored_stays, what_was_not_may_be_lost_or_not,
                      what_was_synced_and_is_there_is_right, what_was_written_later_may_be_there,
                      each_run_that_is_missing_or_older_is_wrong, what_nobody_wrote_is_wrong,
                      a_guest_that_stood_still_is_booted_again, a_guest_that_stands_still_twice_is_wrong]))
