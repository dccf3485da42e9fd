#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tiers of tests/run.py: what check-quick runs, check runs too, and check-all runs everything that they run. And its report
of a failed host test."""
from __future__ import annotations

import asyncio
import contextlib
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/host"), str(ROOT / "qemu")]
import run  # noqa: E402
import tap  # noqa: E402

Runs = set[tuple[str, str, str, str]]  # kernel, build, topology, test


def choice(tier: str, short: int = 0) -> run.Choice:
    return run.Choice(None, "plain", None, None, None, tier, short)


def guest_runs(tier: str, short: int = 0) -> Runs:
    of = choice(tier, short)
    return {(k, variant, topology, test.name) for test in run.guest_tests() for k, variant in of.kernels
            for topology in test.words("topologies")
            if of.wants(test, k, variant, topology) and not of.why_not(test, k, variant)}


def host_runs(tier: str, short: int = 0) -> set[Path]:
    return {path for path in run.host_tests() if choice(tier, short).wants_host(path)}


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
    assert host_runs("all") == set(run.host_tests())
    here = guest_runs("all")
    for test in run.guest_tests():
        expected = {(k, "plain", topology, test.name) for k in run.lab.KERNELS for topology in test.words("topologies")
                    if test.is_on(k) and test.is_for("plain")}
        assert expected <= here, expected - here


def short_leaves_out_what_is_long() -> None:
    tests = {test.name: test for test in run.guest_tests()}
    left_out = guest_runs("all") - guest_runs("all", short=1)
    assert left_out == {ran for ran in guest_runs("all") if tests[ran[3]].is_long(ran[0], ran[1])}, left_out
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


def a_failure_is_repeated_by_a_command_that_selects_it() -> None:
    k = run.NEWEST
    for where, test, command in (("host", "docs_test", "make check GROUP=host TEST=docs_test"), (f"{k}/switch", "read", f"make check K={k} T=switch TEST=read"),
                                 (f"{k}-debug/switch", "boot", f"make check K={k} DEBUG=1 T=switch"),
                                 (f"{k}/switch/pair", "boot", f"make check K={k} T=switch TEST=read,write"),
                                 (f"{k}-kcsan/edu/large", "large", f"make check K={k} DEBUG=kcsan T=edu TEST=large"),
                                 (f"{k}/power", "powercut", f"make check K={k} TEST=powercut"),
                                 (f"meta/{k}", "hang", f"make check K={k} GROUP=meta TEST=hang"),
                                 (f"meta/{k}-debug", "hang", f"make check K={k} DEBUG=1 GROUP=meta TEST=hang"),
                                 (f"{k}-debug", "modules", f"make check K={k} DEBUG=1 TEST=uring"),
                                 (k, "modules", f"make check K={k} TEST=uring"),
                                 ("kernel", f"{k} plain", f"qemu/kernel.sh path {k} plain"), (k, "splats", "make check-all")):
        assert run.repeat_command(run.Result(where, test, "", "failed"), ["read", "write"]) == command, (where, test)
    assert run.Choice(k, "plain", None, None, "read,write").names("write")
    assert run.Choice(run.NEWEST, "plain", None, None, "powercut").power("plain")
    assert not run.Choice(run.NEWEST, "plain", None, None, "read").power("plain")


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
    async def planned() -> tuple[set[tuple[str, str]], set[tuple[str, str]], list[tuple[str, str]]]:
        check, jobs = limited(100), []

        async def reported(where: str, test: str, *_: object) -> None:
            jobs.append((where, test))
        check.reported = reported  # type: ignore[method-assign]
        await asyncio.gather(*check.plan())
        return check.first, {job for job in jobs if job[0] == "host"}, jobs
    with contextlib.redirect_stdout(io.StringIO()):
        first, host, jobs = asyncio.run(planned())
    assert {job for job in first if job[0] == "host"} == {job for job in host if job[1] in {path.stem for path in host_runs("check")}}
    # Of each test that check runs on a plain kernel, there is a boot that begins first; of the oldest kernel there is none.
    tests = {test.name: test for test in run.guest_tests()}
    boots = {f"{k}/{topology}" + (f"/{boot}" if (boot := tests[name].notes.get("boot", name if "peer" in tests[name].notes else "")) else "")
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
        with contextlib.redirect_stdout(io.StringIO()):
            real, run.lab.boot = run.lab.boot, boot  # type: ignore[assignment]
            try:
                await check.reported(where, "boot", job, names)
            finally:
                run.lab.boot = real
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
                      check_quick_needs_one_kernel_and_one_boot, all_has_each_test, short_leaves_out_what_is_long,
                      the_shortest_leaves_each_test_somewhere, what_check_has_begins_first,
                      the_others_wait_for_them, after_the_limit_only_what_check_has_is_run,
                      a_failed_test_says_why, what_a_host_test_says_is_counted,
                      a_failure_is_repeated_by_a_command_that_selects_it, no_guest_test_has_the_name_of_a_host_program,
                      a_job_that_cannot_be_done_fails_alone, what_is_ended_early_leaves_no_process, what_is_killed_leaves_no_process,
                      an_entry_of_a_kernel_that_did_not_run_is_not_called_unmet, a_name_of_no_test_is_refused,
                      a_slot_is_not_given_to_a_job_that_was_ended]))
