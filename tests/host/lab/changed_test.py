#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""tests/changed.py: the tests selected by a changed file. An unknown file must select all."""
from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).resolve().parent), str(ROOT / "tests/host"), str(ROOT / "qemu")]
import run  # noqa: E402
import tap  # noqa: E402
import changed  # noqa: E402
from changed import Affected  # noqa: E402

METAS = sorted((ROOT / "tests/meta").glob("*.sh"))
GUESTS = {test.name: test for test in run.guest_tests()}


def affected(*files: str) -> Affected:
    return Affected.of_files(ROOT, list(files))


def guests(*files: str) -> set[str]:
    found = affected(*files)
    return {name for name, test in GUESTS.items() if found.guest(name, test.words("group"), test.path)}


def hosts(*files: str) -> set[str]:
    found = affected(*files)
    return {path.stem for path in run.host_tests() if found.host(path)}


def unknown_selects_everything() -> None:
    for path in ("Makefile", "qemu/lab.py", "tests/run.py", "a/new/file", "include/uapi/peerdma.h", "user/lib/buffer.cpp",
                 "tests/guest/lib.sh", "tests/host/tap.py", "tests/tools/nobody_names_it.cpp", "tests/guest/nobody_sources_it.sh"):
        assert affected(path).all, path
    assert affected("README.md", "qemu/lab.py").all


def metas(*files: str) -> set[str]:
    found = affected(*files)
    return {path.stem for path in METAS if found.meta(path)}


def kernel_selects_all_guests() -> None:
    for path in ("kernel/memory/mem.c", "user/view/codec.cpp", "user/tools/provider/publish.cpp"):
        assert guests(path) == set(GUESTS), path
        # They publish a GPU and read into it as well.
        assert metas(path) == {meta.stem for meta in METAS} and affected(path).power, path


def pages_select_their_tests() -> None:
    assert "docs" in guests("README.md") and "read" not in guests("README.md")
    assert {"docs_test", "reasons", "compat", "cufile_errors"} <= hosts("Documentation/routes.md")
    assert {"docs_test", "syzlang"} <= hosts("kernel/face/op.c")
    for path in ("Documentation/parts.dot", "Documentation/parts.svg", "Documentation/results/summary.svg", "LICENSE.md"):
        assert hosts(path) == {"docs_test", "results_test"}, path


def a_test_selects_itself() -> None:
    throttled = next(path for path in GUESTS.values() if path.name == "throttled").path.relative_to(ROOT)
    assert guests(str(throttled)) == {"throttled"}
    program = next((ROOT / "tests").rglob("throttled.cpp")).relative_to(ROOT)
    assert "throttled" in guests(str(program)) and len(guests(str(program))) < 10


def a_test_selects_those_that_run_it() -> None:
    for name, those in (("io/read", {"read", "fabric_io", "card_io"}), ("lifetime/revoke", {"revoke", "fabric_lifetime", "card_lifetime"}),
                        ("cufile/nearby", {"nearby", "card_nearby"}), ("cufile/cufile_ways", {"cufile_ways", "card_cufile_ways"}), ("cufile/fio", {"fio", "card_io"}),
                        ("fabric/fabric_stack", {"fabric_stack", "card_stack"}), ("fabric/fabric_seeing", {"fabric_seeing", "card_seeing"}),
                        ("face/fuzz", {"fuzz", "fabric_fuzz", "card_fuzz"}), ("io/large", {"large", "fabric_large", "card_large"})):
        assert guests(f"tests/guest/{name}.sh") == those, name
    # revoke.cpp executes it.
    assert "revoke" in guests("tests/guest/lifetime/owner.cpp")
    assert {"fabric_fuzz", "fuzz"} <= guests("tests/fuzz/corpus/new")
    assert {"cufile_ways", "card_cufile_ways"} <= guests("tests/host/cufile/cufile_ways.py") & guests("tests/host/cufile/conformance/main.cpp")
    assert {"docs", "example", "verbs_pair"} <= guests("Documentation/examples/file_to_gpu.cpp")


def what_is_sourced_selects_the_tests_that_source_it() -> None:
    # lib.sh runs it, in each test.
    assert guests("tests/tools/pdio.cpp") == set(GUESTS) and metas("tests/tools/pdio.cpp") == {meta.stem for meta in METAS}
    # rdma.sh sources the one; verbs_ends.sh names the program.
    assert {"card_verbs", "fabric", "nfs"} <= guests("tests/guest/rdma_card.sh") and "read" not in guests("tests/guest/rdma_card.sh")
    assert {"verbs", "card_verbs"} <= guests("tests/guest/verbs/verbs.cpp") and "read" not in guests("tests/guest/verbs/verbs.cpp")
    assert "invalidate" in metas("tests/guest/rdma_card.sh") and "invalidate" not in metas("tests/guest/stacked.sh")
    assert "gone_view" in guests("tests/guest/view.sh"), "its second guest sources it"
    assert guests("tests/guest/stacked.sh") == {"stack", "fabric_stack", "card_stack"}


def a_guest_test_selects_the_host_tests_that_read_it() -> None:
    reads = re.compile(r"(?<!tmp/)tests/guest|guest_tests\(|guest_scripts\(")
    readers = {path.stem for path in run.host_tests() if path.suffix in (".py", ".sh") and reads.search(path.read_text())}
    assert readers and readers <= hosts("tests/guest/io/read.sh"), readers
    # It imports the other, and docs_test looks for names in these.
    assert {"reasons", "check_tree_test"} <= hosts("tests/host/docs/reasons.py")
    # These look for names of kernels, of ours and of programs, and for the command that compiles it.
    for program in ("tests/guest/lifetime/owner.cpp", "tests/tools/stress.cpp"):
        assert {"lab_test", "docs_test", "changed_test", "compile_commands_test"} <= hosts(program), program


def a_program_selects_the_host_tests_that_run_it() -> None:
    # run.py and coverage.py only build it, in main().
    engines = {path.stem for path in (ROOT / "qemu").glob("*.py") if path.stem != "lab" and "pattern_binary(" in path.read_text()}
    assert "demo" in engines, engines
    reaches = re.compile(rf"pattern_binary\(|^\s*(?:from|import) (?:{'|'.join(engines)})\b|qemu/(?:{'|'.join(engines)})\.py", re.M)
    those = {path.stem for path in run.host_tests() if path.suffix and path.stem != "changed_test" and reaches.search(path.read_text())}
    assert "demo_rdma_test" in those and those <= hosts("tests/tools/pattern.cpp"), those - hosts("tests/tools/pattern.cpp")


def what_a_page_may_name_selects_the_test_of_names() -> None:
    for path in (METAS[0], next((ROOT / "tests/mutants").glob("*.mutant")), ROOT / "tests/tools/hold.cpp", ROOT / "tests/guest/io/read.sh",
                 ROOT / "tests/power/check.sh", ROOT / "tests/peer/bare.sh", ROOT / "tests/perf/counts.py"):
        assert "docs_test" in hosts(str(path.relative_to(ROOT))), path


def a_host_test_selects_those_that_read_all_of_them() -> None:
    for file, those in (("tests/host/tools/bench.sh", {"changed_test", "lab_test", "docs_test", "tiers_test"}),
                        ("tests/mutants.py", {"mutants_test", "lab_test"}), ("tests/meta/warn.sh", {"changed_test", "lab_test", "tiers_test"})):
        assert those <= hosts(file) and len(hosts(file)) < 7, hosts(file)


def a_program_selects_the_tests_that_carry_those_that_run_it() -> None:
    carrier = GUESTS["fabric_io"].path.read_text()
    carried = [test for test in GUESTS.values() if changed.carries(ROOT, GUESTS["fabric_io"].path, test.name)]
    assert len(carried) > 3, carrier
    programs = {path.stem: path for folder in ("tests/guest", "tests/tools") for path in (ROOT / folder).rglob("*.cpp")}
    named = {name for name in programs for test in carried if changed.names(ROOT, test.path, name)}
    assert {"neighbours", "stress"} <= named, named
    for name in named:
        file = str(programs[name].relative_to(ROOT))
        assert affected(file).all or "fabric_io" in guests(file), file


def what_a_program_of_the_host_includes_selects_the_guest_test_that_runs_it() -> None:
    todo, seen = list((ROOT / "tests/host/cufile/conformance").iterdir()), set()
    while todo:
        path = todo.pop().resolve()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        todo += [path.parent / name for name in re.findall(r'^#include "(.*)"', path.read_text(), re.M)]
    files = [str(path.relative_to(ROOT)) for path in seen if ROOT / "tests/host" in path.parents]
    assert "tests/host/cufile/random_bytes.hpp" in files, files
    for file in files:
        assert "cufile_ways" in guests(file), file


def parts_select_their_groups() -> None:
    cufile = guests("user/cufile/api/driver.cpp")
    assert {"cufile", "registered"} <= cufile and "uring" not in cufile
    assert not metas("user/cufile/api/driver.cpp")
    assert metas(str(METAS[0].relative_to(ROOT)))


def the_command_and_libraries_select_what_runs_them() -> None:
    # Each guest test publishes a GPU by the command.
    assert guests("user/tools/provider/publish.cpp") == set(GUESTS)
    for folder, names in (("cufile/api/driver", r"cufile|softgpu"), ("verbs/mr", r"verbs")):
        there = {name for name, test in GUESTS.items() if re.search(rf"^(?!\s*#).*(?:{names})", test.path.read_text(), re.M)}
        assert there and there <= guests(f"user/{folder}.cpp"), there - guests(f"user/{folder}.cpp")


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=folder, env=os.environ | tap.WITHOUT_GITCONFIG, check=True)


def without_an_upstream_everything_is_selected() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert Affected.of_changes(folder).all
        git(folder, "init", "-q")
        assert Affected.of_changes(folder).all
        git(folder, "commit", "-q", "--allow-empty", "-m", "x")
        assert Affected.of_changes(folder).all
        git(folder, "clone", "-q", ".", "clone")
        clone = folder / "clone"
        (clone / "README.md").touch()
        assert "1 changed files" in Affected.of_changes(clone).text and not Affected.of_changes(clone).all
        git(clone, "checkout", "-q", "-b", "fix", "--no-track")
        assert "1 changed files" in Affected.of_changes(clone).text, "compared with the only remote's default branch"
        git(clone, "checkout", "-q", "--detach")
        assert Affected.of_changes(clone).all


def a_pushed_branch_is_compared_with_the_default_branch() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, clone = Path(name), Path(name) / "clone"
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "x")
        git(folder, "clone", "-q", ".", "clone")
        git(clone, "checkout", "-q", "-b", "feature", "--track")
        for number, file in enumerate(("README.md", "LICENSE.md"), 1):
            (clone / file).touch()
            git(clone, "add", file)
            git(clone, "commit", "-q", "-m", file)
            assert f"{number} changed files" in Affected.of_changes(clone).text
            git(clone, "push", "-q", "-u", "origin", "feature")
            assert f"{number} changed files" in Affected.of_changes(clone).text
        # From its copy it does not differ, which says nothing of what was changed.
        git(clone, "remote", "set-head", "origin", "--delete")
        assert Affected.of_changes(clone).all


def a_file_for_other_programs_selects_its_test() -> None:
    for file, test in ((".editorconfig", "hook_test"), (".dockerignore", "setup_test")):
        assert hosts(file) == {test} and not guests(file), file


def nothing_selects_nothing() -> None:
    for files in ((), (".gitignore",)):
        assert not guests(*files) and not hosts(*files) and not metas(*files) and not affected(*files).power, files


def what_another_tier_runs_is_named() -> None:
    async def jobs(tier: str, *files: str) -> tuple[int, list[str]]:
        check = run.Check(run.Choice(None, "plain", None, None, tier=tier), run.Report(), affected(*files))
        with contextlib.redirect_stdout(io.StringIO()):  # what is skipped, by name
            tasks = check.plan()
            for task in tasks:
                task.cancel()
        return len(tasks), check.left_out

    async def left_out(*files: str) -> list[str]:
        return (await jobs("check", *files))[1]
    assert asyncio.run(left_out("tests/guest/faults/iofaults.sh")) == ["iofaults"]
    assert asyncio.run(left_out("tests/guest/face/nodes.sh", "tests/guest/io/read.sh")) == ["card_io", "fabric_io", "nodes"]
    assert asyncio.run(left_out(".gitignore")) == [] and asyncio.run(jobs("all", ".gitignore")) == (0, [])
    assert "warn" in asyncio.run(left_out("tests/meta/warn.sh"))
    assert {"warn", "powercut"} <= set(asyncio.run(left_out("kernel/memory/mem.c")))
    threads = run.host_programs("all/")
    assert threads and threads <= set(asyncio.run(left_out("user/cufile/api/driver.cpp"))), "whether they were built or not"
    # Those that are long on every plain kernel are left out as well.
    long = {name for name, test in GUESTS.items() if "plain" in test.words("long") and "debug" not in test.words("tier")}
    assert long and long <= set(asyncio.run(left_out("kernel/memory/mem.c"))), long
    # A host test of its name is of the tier.
    assert "cufile_ways" in asyncio.run(left_out("user/cufile/api/driver.cpp"))


if __name__ == "__main__":
    sys.exit(tap.run([unknown_selects_everything, kernel_selects_all_guests, pages_select_their_tests, a_test_selects_itself,
                      a_test_selects_those_that_run_it, what_is_sourced_selects_the_tests_that_source_it, a_host_test_selects_those_that_read_all_of_them,
                      a_program_selects_the_tests_that_carry_those_that_run_it, a_program_selects_the_host_tests_that_run_it,
                      what_a_page_may_name_selects_the_test_of_names,
                      what_a_program_of_the_host_includes_selects_the_guest_test_that_runs_it, a_guest_test_selects_the_host_tests_that_read_it,
                      without_an_upstream_everything_is_selected, a_pushed_branch_is_compared_with_the_default_branch,
                      parts_select_their_groups, the_command_and_libraries_select_what_runs_them, a_file_for_other_programs_selects_its_test, nothing_selects_nothing,
                      what_another_tier_runs_is_named]))
