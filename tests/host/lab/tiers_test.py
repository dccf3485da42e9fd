#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tiers of tests/run.py: what check-quick runs, check runs too, and check-all runs everything that they run. And its verdict:
what is reported of host tests and boots, the totals, the status, the commands that repeat a failure."""
from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/host"), str(ROOT / "qemu")]
import run  # noqa: E402
import tap  # noqa: E402

Runs = set[tuple[str, str, str, str]]  # kernel, build, topology, test
Job = tuple[str, str, list[str]]  # place, test, all its tests
SELECTION = {"K", "DEBUG", "T", "GROUP", "TEST", "TIER", "CHANGED", "SHORT", "LIMIT", "KSRC", "ACCEL"}


def environment(**variables: str) -> dict[str, str]:
    """The environment with this selection instead of the caller's."""
    return {name: value for name, value in os.environ.items() if name not in SELECTION} | variables


def chosen_by(**variables: str) -> run.Choice:
    with mock.patch.dict(os.environ, environment(**variables), clear=True):
        return run.Choice.from_environment()


def choice(tier: str, short: int = 0) -> run.Choice:
    return run.Choice(None, "plain", None, None, None, tier, short)


def guest_runs(tier: str, short: int = 0) -> Runs:
    of = choice(tier, short)
    return {(k, variant, topology, test.name) for test in run.guest_tests() for k, variant in of.kernels
            for topology in test.words("topologies")
            if of.wants(test, k, variant, topology) and not of.why_not(test, k, variant)}


def host_runs(tier: str, short: int = 0) -> set[Path]:
    return {path for path in run.host_tests() if choice(tier, short).wants_host(path)}


def planned(check: run.Check) -> list[Job]:
    """All its jobs. None is begun."""
    jobs: list[Job] = []

    async def reported(where: str, test: str, _: object, tests: list[str]) -> None:
        jobs.append((where, test, tests))

    async def plan() -> None:
        await asyncio.gather(*check.plan())
    check.reported = reported  # type: ignore[method-assign]
    with contextlib.redirect_stdout(io.StringIO()):
        asyncio.run(plan())
    return jobs


def each_tier_runs_what_the_one_before_runs() -> None:
    for less, more in zip(run.TIERS, run.TIERS[1:]):
        assert guest_runs(less) < guest_runs(more), guest_runs(less) - guest_runs(more)
        assert host_runs(less) < host_runs(more), host_runs(less) - host_runs(more)


def check_runs_each_guest_test_once_on_a_plain_kernel() -> None:
    plain = [test for _, variant, _, test in guest_runs("check") if variant == "plain"]
    again = [test.name for test in run.guest_tests() for _ in test.words("check")]
    assert len(plain) == len(set(plain)) + len(again)
    absent = [test for test in run.guest_tests() if test.name not in plain]
    assert all("all" in test.words("tier") or test.is_long(run.NEWEST, "plain") or not test.is_on(run.NEWEST)
               or "plain" not in test.words("variants", "plain") for test in absent), [test.name for test in absent]


def check_quick_needs_one_kernel_and_one_boot() -> None:
    quick = guest_runs("quick")
    assert quick and {run_[:3] for run_ in quick} == {(run.NEWEST, "plain", "switch")}, quick


def all_has_each_test() -> None:
    scripts = {path.stem for ending in ("py", "sh") for path in (ROOT / "tests/host").rglob(f"*.{ending}") if path.read_text().startswith("#!")}
    host = {test for where, test, _ in planned(run.Check(choice("all"), run.Report())) if where == "host"}
    assert host - run.host_programs() == scripts, host - run.host_programs() ^ scripts
    here = guest_runs("all")
    for test in run.guest_tests():
        expected = {(k, "plain", topology, test.name) for k in run.lab.KERNELS for topology in test.words("topologies")
                    if test.is_on(k) and test.is_for("plain")}
        assert expected <= here, expected - here
    # On a debug kernel, each that is for one runs somewhere.
    debug = {test.name for test in run.guest_tests() if test.is_for("debug") and test.is_on(run.NEWEST)}
    assert {test for _, variant, _, test in here if variant == "debug"} == debug


def each_unit_test_is_compiled() -> None:
    make = subprocess.run(["make", "-nB", "-C", str(ROOT / "user"), "BUILD=/nonexistent", "host-tests"], capture_output=True, text=True,
                          env={name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")})
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/host").rglob("*_test.cpp")}
    compiled = set(re.findall(r" -c \S*/(tests/host/\S+_test\.cpp) ", make.stdout))
    assert compiled == there, (compiled ^ there, make.stderr)


def without_a_debug_kernel_check_names_what_builds_it() -> None:
    check = run.Check(choice("check"), run.Report())
    with mock.patch.object(run.lab, "kernel", lambda *_: None):
        jobs = planned(check)
    assert not [where for where, *_ in jobs if "debug" in where]
    reasons = [result.reason for result in check.report.results if result.where == f"{run.NEWEST}-debug"]
    assert len(reasons) == 1 and f"qemu/kernel.sh path {run.NEWEST} debug" in reasons[0], reasons


def a_third_kernel_runs_what_it_does_not_lack() -> None:
    k, card_io = f"{run.OLDEST}0", run.lab.Test.named("card_io")
    every = choice("all")

    def on_it() -> dict[str, bool]:
        return {test.name: test.is_on(k) for test in run.guest_tests()}
    with mock.patch.object(run.lab, "KERNELS", (run.NEWEST, k, run.OLDEST)):
        lacks_nothing = on_it()
        assert lacks_nothing["card_io"] and not every.why_not(card_io, k, "plain")
        assert not lacks_nothing["docs"]  # "kernels: newest"
        for word, lack in run.lab.LACKS.items():
            lacking = run.lab.LACKS | {word: run.replace(lack, kernels=lack.kernels | {k})}
            with mock.patch.object(run.lab, "LACKS", lacking):
                want = {test.name for test in run.guest_tests() if word in test.words("wants")}
                assert on_it() == {name: on and name not in want for name, on in lacks_nothing.items()}, word
                assert {every.why_not(run.lab.Test.named(name), k, "plain") for name in want} <= {f"not for {k}: {lack.why}"}, word
    assert every.why_not(card_io, run.OLDEST, "plain") == f"not for {run.OLDEST}: {run.lab.LACKS['nvme-rdma-p2p'].why}"
    docs = run.lab.Test.named("docs")
    assert every.why_not(docs, run.OLDEST, "plain") == f"not for {run.OLDEST}: {docs.notes['because']}"


def short_leaves_out_what_is_long() -> None:
    tests = {test.name: test for test in run.guest_tests()}
    left_out = guest_runs("all") - guest_runs("all", short=1)
    elsewhere = {ran for ran in guest_runs("all") if ran[1] == "debug" and ran[2] not in run.DEBUG_TOPOLOGIES}
    assert elsewhere and left_out == elsewhere | {ran for ran in guest_runs("all") if tests[ran[3]].is_long(ran[0], ran[1])}, left_out
    assert set(run.lab.KERNELS) == {ran[0] for ran in left_out} and {"plain", "debug"} == {ran[1] for ran in left_out}
    assert guest_runs("check") < guest_runs("all", short=1)


def the_shortest_leaves_each_test_somewhere() -> None:
    every, short = guest_runs("all", short=1), guest_runs("all", short=2)
    newest, older = run.NEWEST, run.lab.KERNELS[1:]
    assert guest_runs("check") < short < every
    longer = {test.name for test in run.guest_tests() if test.words("longer")}
    assert {ran for ran in every - short if ran[0] == newest} == {ran for ran in every if ran[1] == "debug" and ran[3] in longer} != set()
    for k in older:
        tests = {ran[3] for ran in every if ran[0] == k}
        first = {test.name: test.words("topologies")[0] for test in run.guest_tests()}
        assert {(topology, name) for of, _, topology, name in short if of == k} == {(first[name], name) for name in tests}
    assert host_runs("all", short=2) == host_runs("check") and choice("all", 2).host_tier == "check"


def host_test_that_says(*lines: str, status: int = 0) -> tuple[list[run.Result], str]:
    """Its results, and what was printed of it."""
    said, report = io.StringIO(), run.Report()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        path = Path(folder) / "says.sh"
        path.write_text("#!/bin/sh\ncat <<'EOF'\n" + "".join(f"{line}\n" for line in lines) + f"EOF\nexit {status}\n")
        path.chmod(0o755)
        asyncio.run(run.run_host_test(path, report))
    return report.results, said.getvalue()


def a_failed_test_says_why() -> None:
    """Of TAP, whose reasons come behind the line."""
    _, said = host_test_that_says("1..2", "not ok 1 - one", "# of this", "ok 2 - two", status=1)
    lines = said.splitlines()
    assert lines[0].endswith("says: one") and "# of this" in lines[2], lines


def what_a_host_test_says_is_counted() -> None:
    runs = "[==========] Running 1 test from 1 test suite."
    for lines, status, expected in (
            (("1..2", "ok 1 - a", "ok 2 - b # SKIP no disk"), 0, [("passed", ""), ("skipped", "no disk")]),
            (("1..1", "not ok 1 - a # SKIP no disk"), 1, [("failed", "no disk")]),
            (("1..0 # SKIP no compiler",), 0, [("skipped", "no compiler")]),
            (("1..0",), 0, [("failed", "it has no test")]),
            (("[==========] Running 0 tests from 0 test suites.",), 0, [("failed", "it has no test")]),
            ((), 0, [("failed", "planned None, showed 0")]),
            (("1..2", "ok 1 - a"), 0, [("passed", ""), ("failed", "planned 2, showed 1")]),
            (("1..1", "ok 1 - a"), 3, [("passed", ""), ("failed", "ended with status 3")]),
            ((runs, "[       OK ] A.B (1 ms)"), 0, [("passed", "")]),
            ((runs, "x.cpp:1: Skipped", "no io_uring", "[  SKIPPED ] A.B (0 ms)"), 0, [("skipped", "no io_uring")])):
        results, _ = host_test_that_says(*lines, status=status)
        assert [(result.status, result.reason) for result in results] == expected, (lines, results)


def a_failure_is_repeated_by_a_command() -> None:
    k = run.NEWEST
    for where, test, command in (("host", "docs_test", "make check GROUP=host TEST=docs_test"), (f"{k}/switch", "read", f"make check K={k} T=switch TEST=read"),
                                 (f"{k}-debug/switch", "boot", f"make check K={k} DEBUG=1 T=switch TEST=read,write"),
                                 (f"{k}/switch/pair", "boot", f"make check K={k} T=switch TEST=read,write"),
                                 (f"{k}-kcsan/edu/large", "large", f"make check K={k} DEBUG=kcsan T=edu TEST=large"),
                                 (f"{k}-gcov/switch", "read", f"make check K={k} T=switch TEST=read"),
                                 (f"{k}/power", "powercut", f"make check K={k} TEST=powercut"),
                                 (f"meta/{k}", "hang", f"make check K={k} GROUP=meta TEST=hang"),
                                 (f"meta/{k}-debug", "hang", f"make check K={k} DEBUG=1 GROUP=meta TEST=hang"),
                                 (f"{k}-debug", "modules", f"make check K={k} DEBUG=1 TEST=uring"),
                                 (k, "modules", f"make check K={k} TEST=uring"), ("host", "tests", "make check-quick"),
                                 ("kernel", f"{k} plain", f"qemu/kernel.sh path {k} plain"), (k, "splats", "make check-all")):
        with mock.patch.dict(os.environ, environment(), clear=True), mock.patch.object(run.lab, "BUILD", ROOT / "build"):
            assert run.repeat_command(run.Result(where, test, "", "failed"), ["read", "write"]) == command, (where, test)


def that_command_has_what_the_run_had() -> None:
    def command(where: str, test: str, text: str = "") -> str:
        return run.repeat_command(run.Result(where, test, text, "failed"), [])
    with (tempfile.TemporaryDirectory() as folder, mock.patch.object(run.lab, "BUILD", Path(folder)),
          mock.patch.dict(os.environ, environment(KSRC="/a b", ACCEL="tcg"), clear=True)):
        program = Path(folder) / "tests/host/unit"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
        assert command(run.NEWEST + "/rp", "read") == f"make check K={run.NEWEST} T=rp TEST=read KSRC='/a b' ACCEL=tcg BUILD={folder}"
        assert command("kernel", f"{run.NEWEST} plain") == f"KSRC='/a b' qemu/kernel.sh path {run.NEWEST} plain"
        assert command("host", "unit") == f"make check GROUP=host TEST=unit KSRC='/a b' ACCEL=tcg BUILD={folder}"
        for case in ("A.B", "Large/A.B/0"):
            assert command("host", "unit", case) == (f"export PEERDMA_BUILD={folder}; scripts/user.sh host-tests-all && "
                                                     f"{os.path.relpath(program, ROOT)} --gtest_filter={case}")


def that_command_selects_what_failed_and_nothing_else() -> None:
    """Of each job of check-all: all its tests, and the first of them."""
    def selected(where: str, test: str, tests: list[str]) -> list[Job]:
        make, verb, *variables = shlex.split(run.repeat_command(run.Result(where, test, "", "failed"), tests))
        assert (make, verb) == ("make", "check")
        return planned(run.Check(chosen_by(TIER="check", **dict(variable.split("=", 1) for variable in variables)), run.Report()))
    tests_there = run.guest_tests()
    with (mock.patch.dict(os.environ, environment(), clear=True), mock.patch.object(run.lab, "BUILD", ROOT / "build"),
          mock.patch.object(run, "guest_tests", lambda: tests_there)):
        check = run.Check(choice("all"), run.Report())
        every = planned(check)
        assert check.report.boots == {where: tests for where, test, tests in every if test == "boot"}
        for where, test, tests in every:
            assert selected(where, test, tests) == [(where, test, tests)], (where, test)
            if test == "boot":
                assert selected(where, tests[0], tests) == [(where, test, tests[:1])], (where, tests[0])
        for kernel in {where.partition("/")[0] for where, test, _ in every if test == "boot"}:
            assert {where.partition("/")[0] for where, *_ in selected(kernel, "modules", [])} == {kernel}


def the_totals_come_last() -> None:
    """Behind all else that is printed: what failed and its notes, and the commands that repeat it."""
    report, said = run.Report(), io.StringIO()
    k = run.NEWEST
    with contextlib.redirect_stdout(said):
        report.add("host", "docs_test", "a link", "failed", "", ["it leads nowhere", *map(str, range(run.FINAL_NOTES))])
        report.add(f"{k}/switch", "read", "a byte", "passed")
        report.add(f"{k}/switch", "boot", "splat: BUG", "failed")
        report.add(f"{k}/switch", "write", "a disk", "skipped", "no disk")
        report.boots[f"{k}/switch"] = ["read", "write"]
        report.slow.append(f"{k}/switch read")
        report.times.append(run.Took("host", "docs_test", 1))
        status = report.close(show_times=True)
    assert status == 1
    notes = ["it leads nowhere", *map(str, range(run.FINAL_NOTES - 1))]
    assert said.getvalue().splitlines()[-6 - run.FINAL_NOTES:] == [
        "FAIL host docs_test: a link", *(f"     {'':<16} {note}" for note in notes), f"FAIL {k}/switch boot: splat: BUG", "To repeat what failed:",
        *(f"  {run.repeat_command(result, ['read', 'write'])}" for result in report.results if result.status == "failed"),
        "1 passed, 2 failed, 1 skipped"], said.getvalue()


def only_a_run_in_which_something_passed_is_good() -> None:
    for statuses, expected, if_empty in ((["passed"], 0, 0), (["passed", "skipped"], 0, 0), (["passed", "failed"], 1, 1), (["failed"], 1, 1),
                                         (["skipped"], 1, 0), ([], 1, 0)):
        report = run.Report()
        with contextlib.redirect_stdout(io.StringIO()):
            for status in statuses:
                report.add("host", "unit", "", status)
            assert (report.close(), report.close(may_be_empty=True)) == (expected, if_empty), statuses


def after(job: Callable[[run.Check], Awaitable[None]], lines: list[run.lab.Line], reasons: list[run.lab.Reason]) -> list[tuple[str, str]]:
    """The tests and statuses that a job on the newest kernel reports, if this is what the guest leaves."""
    check = run.Check(choice("all"), run.Report())
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config").touch()

        async def boot(guest: run.lab.Guest, _: object) -> run.lab.Outcome:
            guest.out.mkdir(parents=True)
            return run.lab.Outcome(guest, lines, reasons)

        async def runs() -> None:
            kernel = check.kernels[run.NEWEST, "plain"] = asyncio.get_running_loop().create_future()
            kernel.set_result(run.lab.Kernel(run.NEWEST, "plain", Path(folder)))
            await job(check)
        with (mock.patch.object(run.lab, "BUILD", Path(folder)), mock.patch.object(run.lab, "boot", boot),
              contextlib.redirect_stdout(io.StringIO())):
            asyncio.run(runs())
    return [(result.test, result.status) for result in check.report.results]


def what_a_guest_leaves_is_counted() -> None:
    line, reason = run.lab.Line, run.lab.Reason
    tests = [run.lab.Test(Path(f"/nonexistent/{name}.sh"), {"topologies": "switch"}) for name in ("read", "write")]
    good, bad = line("read", True, "a"), line("write", False, "b")

    def boot(check: run.Check) -> Awaitable[None]:
        return check.guest_boot((run.NEWEST, "plain"), "switch", "", tests)
    for lines, reasons, expected in (
            ([good], [], [("read", "passed"), ("boot", "passed")]),
            ([good, line("write", True, "b", "no disk")], [], [("read", "passed"), ("write", "skipped"), ("boot", "passed")]),
            ([good, bad], [reason("not-ok", "1 of 2 lines")], [("read", "passed"), ("write", "failed")]),
            ([good], [reason("splat", "BUG: x")], [("read", "passed"), ("boot", "failed")]),
            ([good], [reason("leak", "p2pmem")], [("read", "passed"), ("boot", "failed")]),
            ([good], [reason("hung", "for 60 s", test="write"), reason("plan", "1 of 2")], [("read", "passed"), ("write", "failed"), ("boot", "failed")]),
            ([good, line("node", False, "c")], [reason("not-ok", "1 of 2 lines")], [("read", "passed"), ("read", "failed")])):
        assert after(boot, lines, reasons) == expected, (lines, reasons)


def a_run_that_must_fail_passes_for_its_reason_only() -> None:
    splat, leak = run.lab.Reason("splat", "BUG: x"), run.lab.Reason("leak", "p2pmem", ["gpu0"])
    for notes, reasons, expected in (({"must-fail": "splat BUG"}, [splat], "passed"), ({"must-fail": "splat BUG"}, [], "failed"),
                                     ({"must-fail": "splat BUG"}, [leak], "failed"), ({"must-fail": "splat Oops"}, [splat], "failed"),
                                     ({"must-fail": "splat BUG", "also": "leak gpu0"}, [splat], "failed"),
                                     ({"must-fail": "splat BUG", "also": "leak gpu0"}, [splat, leak], "passed"), ({}, [splat], "failed")):
        test = run.lab.Test(Path("/nonexistent/x.sh"), notes)

        def boot(check: run.Check, test: run.lab.Test = test) -> Awaitable[None]:
            return check.meta_boot((run.NEWEST, "plain"), test)
        assert after(boot, [], reasons) == [("x", expected)], (notes, reasons)


def a_power_cut_that_loses_bytes_fails() -> None:
    for wrong, expected in (([], "passed"), (["a byte"], "failed")):
        async def one_round(kernel: object, out: Path, *_: object, wrong: list[str] = wrong, **__: object) -> tuple[str, list[str]]:
            out.mkdir(parents=True)
            return "all is there", wrong
        with mock.patch.object(run.powercut, "one_round", one_round):
            assert after(lambda check: check.power_cut((run.NEWEST, "plain")), [], []) == [("powercut", expected)]


def engine(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ROOT / "tests/run.py"), *words], env=environment(**variables), capture_output=True, text=True)


def the_status_of_the_command_is_its_verdict() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "tests/host/unit"
        program.parent.mkdir(parents=True)
        for line, status, totals in (("ok 1", 0, "1 passed, 0 failed, 0 skipped"), ("not ok 1", 1, "0 passed, 1 failed, 0 skipped"),
                                     ("ok 1 # SKIP no disk", 1, "0 passed, 0 failed, 1 skipped")):
            program.write_text(f"#!/bin/sh\necho 1..1\necho '{line}'\ncase '{line}' in not*) exit 1; esac\n")
            program.chmod(0o755)
            ended = engine(PEERDMA_BUILD=folder, GROUP="host", TEST="unit")
            assert (ended.returncode, ended.stdout.splitlines()[-1]) == (status, totals), ended


def a_selection_that_is_not_valid_is_refused() -> None:
    refused = {"K=1.0": "K=1.0", "DEBUG=2": "DEBUG=2", "T=nowhere": "T=nowhere", "GROUP=ios": "GROUP=ios", "TEST=read,no": "TEST=read,no",
               "SHORT=3": "SHORT=3", "LIMIT=1h": "LIMIT=1h", "TIER=most": "TIER=most", "TIER=check LIMIT=9": "LIMIT", "GROUP=io LIMIT=9": "LIMIT"}
    for variables, text in refused.items():
        try:
            chosen_by(**dict(variable.split("=") for variable in variables.split()))
        except run.lab.LabError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{variables}: not refused")
    with tempfile.TemporaryDirectory() as folder:
        ended = engine("--validate", PEERDMA_BUILD=folder, GROUP="ios")
        assert ended.returncode == 1 and ended.stderr.startswith("error: GROUP=ios: expected ") and not ended.stdout, ended
        ended = engine("--validate", PEERDMA_BUILD=folder, K=run.OLDEST, GROUP="host", DEBUG="0", CHANGED="0", LIMIT="0", TEST="compat")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", ""), ended
        assert not list(Path(folder).iterdir())


def no_guest_test_has_the_name_of_a_host_program() -> None:
    """TEST= would take both, of which scripts/check.sh builds one."""
    programs = run.host_programs()
    assert {"unit", "cufile_unit", "kernel_logic"} <= programs, programs
    assert not programs & {test.name for test in run.guest_tests()}


def a_job_that_cannot_be_done_fails_alone() -> None:
    async def cannot() -> None:
        raise OSError("no space left")

    async def can() -> None:
        pass

    async def both() -> run.Check:
        check = run.Check(choice("check"), run.Report())
        with contextlib.redirect_stdout(io.StringIO()):
            await asyncio.gather(check.reported("k/switch", "boot", cannot, ["read"]), check.reported("k/edu", "boot", can, ["read"]))
        return check
    results = asyncio.run(both()).report.results
    assert [(result.where, result.status, result.reason) for result in results] == [("k/switch", "failed", "no space left")]


def limited(limit: int) -> run.Check:
    return run.Check(run.replace(choice("all", 1), limit=limit), run.Report())


def what_check_has_begins_first() -> None:
    check = limited(100)
    jobs = [(where, test) for where, test, _ in planned(check)]
    first, host = check.first, {job for job in jobs if job[0] == "host"}
    assert {job for job in first if job[0] == "host"} == {job for job in host if job[1] in {path.stem for path in host_runs("check")}}
    # Of each test that check runs on a plain kernel, there is a boot that begins first; of the oldest kernel there is none.
    tests = {test.name: test for test in run.guest_tests()}
    boots = {"/".join(filter(None, (k, topology, tests[name].boot)))
             for k, variant, topology, name in guest_runs("check") if variant == "plain"}
    plain = {where for where, _ in first if where != "host" and "debug" not in where}
    assert plain == boots, plain ^ boots
    assert first < set(jobs)


def the_others_wait_for_them() -> None:
    async def order() -> list[str]:
        check, said = limited(100), []
        check.first = {("host", "unit"), (f"{run.NEWEST}/switch", "boot")}

        async def job(name: str) -> None:
            said.append(name)
        late = asyncio.create_task(check.reported("k/edu", "boot", lambda: job("late"), ["read"]))
        await asyncio.sleep(0.01)
        await check.reported("host", "unit", lambda: job("unit"), ["unit"])
        await asyncio.sleep(0.01)
        await check.reported(f"{run.NEWEST}/switch", "boot", lambda: job("switch"), ["read"])
        await late
        return said
    assert asyncio.run(order()) == ["unit", "switch", "late"]


def after_the_limit_only_what_check_has_is_run() -> None:
    async def after(where: str, names: list[str], first: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        check, begun = limited(1), []
        check.report.start -= 2
        check.first_have_begun.set()
        tests = {test.name: test for test in run.guest_tests()}
        guest = run.lab.Guest(run.lab.Kernel(run.NEWEST, "plain", Path("/nonexistent")), run.lab.Topology.load("switch"),
                              [tests[name] for name in names], Path("/nonexistent"))

        async def boot(guest: run.lab.Guest, _: object) -> None:
            begun.extend(test.name for test in guest.tests)

        async def job() -> None:
            await check.boot(guest, where, [tests[name] for name in first])
        with contextlib.redirect_stdout(io.StringIO()), mock.patch.object(run.lab, "boot", boot):
            await check.reported(where, "boot", job, names)
        assert check.incomplete() == {run.NEWEST}
        assert {result.reason for result in check.report.results} == {"not begun within LIMIT=1 s"}
        return begun, [(result.test, result.status) for result in check.report.results]
    where = f"{run.NEWEST}/switch"
    assert asyncio.run(after(where, ["read", "write"], [])) == ([], [("read", "skipped"), ("write", "skipped")])
    assert asyncio.run(after(where, ["read", "card"], ["read"])) == (["read"], [("card", "skipped")])


def wait_for_end(pid: int) -> None:
    for _ in range(50):
        if not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes():
            return
        time.sleep(0.1)
    raise AssertionError(f"process {pid} runs")


def what_is_ended_early_leaves_no_process() -> None:
    async def ended(how: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            child = Path(folder) / "child"
            # The command may have ended itself.
            words = ("sh", "-c", f"sleep 100 & echo $! >{child}; {'' if how == 'orphan' else 'wait'}")
            task = asyncio.create_task(run.output_of(*words, timeout=None if how == "cancel" else 0.5))
            while not (child.exists() and child.read_text()):
                await asyncio.sleep(0.01)
            if how == "cancel":
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, asyncio.TimeoutError):
                await task
            return int(child.read_text())
    for how in ("cancel", "timeout", "orphan"):
        wait_for_end(asyncio.run(ended(how)))


def what_is_killed_leaves_no_process() -> None:
    with tempfile.TemporaryDirectory() as folder:
        child = Path(folder) / "child"
        text = f"import asyncio, run; asyncio.run(run.output_of('sh', '-c', 'echo $$ >{child}; exec sleep 100'))"
        one = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT / "tests")
        while not (child.exists() and child.read_text()):
            time.sleep(0.01)
        one.kill()
        one.wait()
        wait_for_end(int(child.read_text()))


def an_entry_of_a_kernel_that_did_not_run_is_not_called_unmet() -> None:
    check = run.Check(run.Choice(None, "plain", None, None), run.Report())
    for where, test in (("kernel", f"{run.NEWEST} debug"), (f"{run.OLDEST}/switch", "boot"), (f"{run.NEWEST}1/switch", "boot")):
        check.report.results = [run.Result(where, test, "", "failed")]
        assert check.incomplete() == {k for k in run.lab.KERNELS if k in (test.split()[0], where.split("/")[0])}, where
    check.report.results = [run.Result(f"{run.NEWEST}/switch", "read", "", "failed"), run.Result(f"{run.NEWEST}/switch", "boot", "", "passed")]
    assert not check.incomplete()


def a_name_of_no_test_is_refused() -> None:
    def unknown(names: str) -> list[str]:
        return run.Choice(None, "plain", None, None, names).unknown()
    assert unknown("read,no_such_test,lab_test,unit,powercut,warn") == ["no_such_test"] and not unknown("read") and unknown("no") == ["no"]


def a_slot_is_not_given_to_a_job_that_was_ended() -> None:
    async def turns() -> list[str]:
        slots, said = run.Slots(1), []

        async def job(name: str) -> None:
            async with slots.take(1):
                said.append(name)
                await asyncio.sleep(0.05)
        first, second, third = (asyncio.create_task(job(name)) for name in "abc")
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert slots.free == 1
        return said
    assert asyncio.run(turns()) == ["a", "c"]


if __name__ == "__main__":
    sys.exit(tap.run([each_tier_runs_what_the_one_before_runs, check_runs_each_guest_test_once_on_a_plain_kernel,
                      check_quick_needs_one_kernel_and_one_boot, all_has_each_test, each_unit_test_is_compiled,
                      without_a_debug_kernel_check_names_what_builds_it, a_third_kernel_runs_what_it_does_not_lack, short_leaves_out_what_is_long,
                      the_shortest_leaves_each_test_somewhere, what_check_has_begins_first,
                      the_others_wait_for_them, after_the_limit_only_what_check_has_is_run,
                      a_failed_test_says_why, what_a_host_test_says_is_counted,
                      a_failure_is_repeated_by_a_command, that_command_has_what_the_run_had,
                      that_command_selects_what_failed_and_nothing_else, the_totals_come_last, only_a_run_in_which_something_passed_is_good,
                      what_a_guest_leaves_is_counted, a_run_that_must_fail_passes_for_its_reason_only, a_power_cut_that_loses_bytes_fails,
                      the_status_of_the_command_is_its_verdict, a_selection_that_is_not_valid_is_refused, no_guest_test_has_the_name_of_a_host_program,
                      a_job_that_cannot_be_done_fails_alone, what_is_ended_early_leaves_no_process, what_is_killed_leaves_no_process,
                      an_entry_of_a_kernel_that_did_not_run_is_not_called_unmet, a_name_of_no_test_is_refused,
                      a_slot_is_not_given_to_a_job_that_was_ended]))
