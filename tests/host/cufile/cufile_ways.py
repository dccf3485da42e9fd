#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# tier: check
"""Runs the tests of cufile_conformance by each path and each call: libcufile.so.0 must give the same results.

Tests that move bytes, or whose I/O is refused, run again by each path. They must pass, and their results (counts,
errno, events, *bytes_done, counters: answers.hpp) are compared with those of the first path. EXCEPT lists the
unavoidable differences, each with its reason; an exception that does not occur on each path that it covers is a
failure. Paths named "directly" must move bytes directly, according to the library's counters, and no other path may.
The argument "guest" selects the paths that need the module. TIER=check: those of IN_CHECK only.
"""
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Iterable, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("PEERDMA_BUILD", ROOT / "build")) / "tests/host/cufile_conformance"
FEWEST = 80  # tests compared on each path
FEWEST_DIRECT = 40  # tests that move bytes directly, on the paths named so

FAILS = "it fails, or was not run"
Answers = dict[str, Counter[str]]  # by test
Way = dict[str, str]  # CONFORMANCE_...: answers.hpp
Met = set[tuple[str, tuple[str, str]]]  # by path: the matched keys of EXCEPT
CALLS: dict[str, Way] = {"by vectors": {"CALL": "vector"}, "by batches": {"CALL": "batch"}, "by streams": {"CALL": "stream"}}
HOST: dict[str, Way] = {
    "through host memory": {},
    "past the page cache": {"JSON": '{"properties": {"force_odirect_mode": true}}'},
    "without helpers and rings": {"JSON": '{"execution": {"parallel_io": false}}'},
    "with one slab": {"JSON": '{"properties": {"posix_pool_slab_size_kb": [1024], "posix_pool_slab_count": [1]}}'},
    "into registered memory": {"MEMORY": "registered"},
    "into host memory": {"MEMORY": "host"},
    "in files of the program's own": {"FILES": "own"}} | CALLS
GUEST: dict[str, Way] = {
    "forced through host memory": {"JSON": '{"properties": {"force_compat_mode": true}}'},
    "directly": {},
    "directly, into registered memory": {"MEMORY": "registered"}} | {f"directly, {name}": way for name, way in CALLS.items()}

IN_CHECK = ["through host memory", "past the page cache", "by streams"]

# Skipped: results that depend on timing or on how an I/O is cut; tests of processes, descriptors, rings and settings.
SKIPPED = ["*Fork*", "*Cancel*", "Threads.*", "Race.*", "Nested.*", "*Scarcity.*", "Driver.*", "Policy.*", "LogPath.*", "Loud.*",
           "Descriptors.*", "Gated.ADeadlineGivesWhatHasComeByThen", "Gated.DestroyingWaitsForWhatHasBegun",
           "Gated.ClosingWaitsForWhatHasBegun", "Cufile.ThreadsUnderLoadAndWhenIdle", "Cufile.AThreadThatIsCanceled",
           "Cufile.AProcessThatEndsWithAllOpen", "Cufile.SettingsAndClosingBesideReadersWithoutAPause",
           "Cufile.OpenedAndClosedManyTimesAtOnce", "Cufile.AFailureOfTheDriversIsAnError", "Cufile.PastThePageCacheOneThreadIsEnough"]

# In a guest a child cannot use the stand-in. The other tests are slow there and test contexts and threads rather than
# paths.
SKIPPED_IN_GUEST = ["Cufile.StandardInputIsLeftAlone", "Memory.OfAnotherProcess", "Shapes.Every*", "Contexts.*",
                    "Cufile.PastThePageCacheFromManyThreads", "Cufile.FromThreadsWithoutAContext", "Cufile.ManyContextsAtOnce",
                    "Batches.AFileSystemThatThrows", "Batches.ManyAtOnceFromManyThreads"]

# By path and test: results that differ, and why. The test itself may fail there.
NONE = "(?!)"
COUNTED = "counted|statistics"
NO_COPY = "CUDA copies nothing that could fail"
NO_REASON = "there is no reason not to be direct"
ELSEWHERE = "a vector has no offset in memory: this is another address"
ASKED = "Read, asked which error -1 is, is counted as well"
EXCEPT: dict[tuple[str, str], tuple[str, str]] = {
    ("*registered memory", "Cufile.WhatIsWrongWithA*"): (r"\w+ 100 0 8100 |counted", "what leaves it is 5017, else EIO"),
    ("into registered memory", "Cufile.StatsAreWhatWasDone"): (NONE, "it counts registrations"),
    ("into host memory", "Cufile.WhatIsWrongWithA*"): (r"\w+ 100 0 8100 ", "where no memory is there is no copy to fail: 1"),
    ("into host memory", "Batches.WhatLiesTogetherIsOneCopy"): (f"event|{COUNTED}", NO_COPY),
    ("into host memory", "Cufile.TheThreadsContextStaysWhatItWas"): (f"Read 100 0 0 |{COUNTED}", NO_COPY),
    ("into host memory", "Cufile.NothingIsWrittenToTheWorkingDirectory"): (NONE, NO_REASON),
    ("into host memory", "Cufile.TheLogGoesWhereItIsAskedTo"): (NONE, NO_REASON),
    ("into host memory", "Cufile.TheReasonIsThere"): (NONE, NO_REASON),
    ("into host memory", "Cufile.WhoInsistsOnDirectGetsAnError"): (rf"\w+ 100 0 0 |{COUNTED}", NO_REASON),
    ("into host memory", "Cufile.Stats*"): (NONE, "statistics have it under no GPU"),
    ("in files of the program's own", "Batches.AllOrNothing"): (f"BatchIOSubmit 2 |event|{COUNTED}", "only the program knows what is "
                                                               "writable, so it is begun, and may end before it is looked at"),
    ("in files of the program's own", "Cufile.WhatIsWrongWithARead"): (r"\w+ 10 0 0 |counted", "it is its own error: EBADF"),
    ("in files of the program's own", "Cufile.TheProgramMayCloseItsDescriptor"): (f"Read 5 0 0 |{COUNTED}", "which is in use"),
    ("*by vectors", "Cufile.ARegisteredBufferHasAnEnd"): (f"Read 4096 0 4097 |{COUNTED}", ELSEWHERE),
    ("*by vectors", "Cufile.AnyKindOfMemoryMayBeRegistered"): ("Read 300000 0 1 |counted", ELSEWHERE),
    ("*by vectors", "Cufile.PlacesThatWrapAround"): (r"\w+ \d+ 0 \d{19} |counted", ELSEWHERE),
    ("by vectors", "Cufile.StatsAreWhatWasDone"): (NONE, "what a vector refuses is counted as its own"),
    ("*by batches", "Cufile.AHandleThatIsNotRegistered"): (NONE, "BatchIOSetUp opens the driver"),
    ("*by batches", "Cufile.AnOpenThatNobodyAskedForIsOne"): (NONE, "BatchIOSetUp opens the driver"),
    ("*by batches", "Cufile.ADriverThatCannotSayWhatMemoryIs"): (f"Read 5 0 0 |{COUNTED}", "it fails once, before Read is asked why"),
    ("by streams", "Cufile.TheThreadsContextStaysWhatItWas"): (f"Read 100 0 0 |{COUNTED}", "one copy fails, before Read is asked why"),
    ("*by streams", "Cufile.ADriverThatCannotSayWhatMemoryIs"): (f"Read 5 0 0 |{COUNTED}", "it fails at the call, and is asked again"),
    ("*by streams", "Cufile.AFileSystemOfTheProgramsOwn"): ("counted", ASKED),
    ("*by streams", "Cufile.WhatIsWrongWithA*"): ("counted", ASKED),
    ("*by streams", "Cufile.WithoutPinnedMemoryItIsSlowerAndRight"): (f"Read 1000 0 0 |{COUNTED}", "a stream needs it: 5043"),
    ("forced*", "Cufile.TheReasonIsThere"): (NONE, "the reason is that it is forced"),
    ("directly*", "Cufile.TheReasonIsThere"): (NONE, NO_REASON),
    ("directly*", "Cufile.NothingIsWrittenToTheWorkingDirectory"): (NONE, NO_REASON),
    ("directly*", "Cufile.TheLogGoesWhereItIsAskedTo"): (NONE, NO_REASON),
    ("directly*", "Cufile.WhoInsistsOnDirectGetsAnError"): (rf"\w+ 100 0 0 |{COUNTED}", "but to write a part of a block"),
    ("directly*", "Cufile.Stats*"): (NONE, "they are counted as direct"),
    ("directly*", "Batches.StatsOfBatches"): (NONE, "they are counted as direct"),
    ("directly*", "Batches.WhatLiesTogetherIsOneCopy"): (f"event|{COUNTED}", NO_COPY),
    ("directly*", "Cufile.TheThreadsContextStaysWhatItWas"): (f"Read 100 0 0 |{COUNTED}", NO_COPY),
}


class Outcome(NamedTuple):
    passed: dict[str, bool]
    told: Answers
    direct: set[str]  # tests that moved bytes directly
    notes: list[str]  # how the program ended, if abnormally


def run(way: Way, tests: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers"
        done = subprocess.run([PROGRAM, f"--gtest_filter={tests}"], text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=os.environ | {"TMPDIR": folder, "CONFORMANCE_ANSWERS": str(answers)}
                              | {f"CONFORMANCE_{key}": value for key, value in way.items()})
        lines = answers.read_text().splitlines()
    passed = {name: what != "FAILED" for what, name in
              re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:,.*)? \(\d+ ms\)$", done.stdout, re.M)}
    told: Answers = {}
    direct: set[str] = set()
    for line in lines:
        test, _, answer = line.partition("\t")
        if not answer.startswith("direct "):
            told.setdefault(test, Counter())[answer] += 1
        elif answer != "direct 0":
            direct.add(test)
    notes = [] if done.returncode in (0, 1) else [f"it ended with {done.returncode}: {done.stdout[-500:]!r}"]
    return Outcome(passed, told, direct, notes)


def of_io(answers: Counter[str]) -> bool:
    return any(not answer.startswith(("counted", "statistics")) for answer in answers)


def compared(answers: Counter[str], way: Way) -> Counter[str]:
    """Drops the statistics of errors: calls that do not report Read's error issue a Read for it, which counts one
    error more."""
    return Counter({answer: n for answer, n in answers.items()
                    if "CALL" not in way or not answer.startswith("statistics of errors")})


def unexpected(way: str, test: str, answer: str, met: Met) -> bool:
    """True if no exception covers the result; records the exceptions that do. FAILS is covered by any exception of
    the test."""
    keys = {key for key, (answers, _) in EXCEPT.items() if fnmatchcase(way, key[0]) and fnmatchcase(test, key[1])
            and (answer == FAILS or re.match(answers, answer))}
    met |= {(way, key) for key in keys}
    return not keys


def not_met(ways: Iterable[str], met: Met) -> list[str]:
    return [f"{name}: {key[1]}: {reason}" for name in ways for key, (_, reason) in EXCEPT.items()
            if fnmatchcase(name, key[0]) and (name, key) not in met]


def main() -> int:
    in_guest = sys.argv[1:] == ["guest"]
    ways, skipped = (GUEST, SKIPPED + SKIPPED_IN_GUEST) if in_guest else (HOST, SKIPPED)
    if os.environ.get("TIER") == "check" and not in_guest:
        ways = {name: HOST[name] for name in IN_CHECK}
    print(f"1..{len(ways) + 1}", flush=True)
    first: Answers = {}
    met: Met = set()
    failed = 0
    for number, (name, way) in enumerate(ways.items(), 1):
        outcome = run(way, ":".join(first) if first else "-" + ":".join(skipped))
        notes = outcome.notes
        if not first:
            first = {test: answers for test, answers in outcome.told.items() if of_io(answers)}
        for test in sorted(first):
            here, there = compared(outcome.told.get(test, Counter()), way), compared(first[test], way)
            found = [] if outcome.passed.get(test) else [FAILS]
            found += sorted((here - there) | (there - here))
            notes += [f"{test}: {answer}: {here[answer]} here, {there[answer]} there"
                      for answer in found if unexpected(name, test, answer, met)]
        direct = len(outcome.direct & set(first))
        good = direct >= FEWEST_DIRECT if name.startswith("directly") else not direct
        bad = bool(notes) or len(first) < FEWEST or not good
        failed += bad
        print(f"{'not ' * bad}ok {number} - {name}: {len(first)} tests, {direct} directly", *notes, sep="\n# ", flush=True)
    stale = not_met(ways, met)
    print(f"{'not ' * bool(stale)}ok {len(ways) + 1} - each exception is met by each way", *stale, sep="\n# ")
    return 1 if failed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
