#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""How the lab judges a run, without a guest: which output it accepts."""
from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, Iterator
from unittest import mock

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[3] / "qemu"), str(HERE.parents[2]), str(HERE.parents[1])]
import lab  # noqa: E402
import run  # noqa: E402
import tap  # noqa: E402

KERNEL = lab.Kernel(lab.NEWEST, "plain", Path("/nonexistent"))
TOPOLOGY = lab.Topology.load("switch")
GOOD = ["check nvme ok", "begin t 60", "1..1", "ok 1 - it", "end t 0 5", "check p2pmem ok", "check modules ok",
        "check kcsan skip no", "check kmemleak skip no", "check dma-api skip no", "check stuck-tasks ok", "verdict 11",
        "exit 0"]


def judge(lines: list[str]) -> lab.Outcome:
    guest = lab.Guest(KERNEL, TOPOLOGY, [lab.Test(Path("t.sh"), {})], Path("/nonexistent"))
    outcome = lab.Outcome(guest)
    judged = lab.Judge(outcome)
    for line in lines:
        judged.line(line)
    judged.close()
    return outcome


def without(line: str) -> list[str]:
    """The good run without one line."""
    return [text for text in GOOD if text != line]


def with_test(*lines: str) -> list[str]:
    """The good run with other lines in its test and correct counts."""
    run = GOOD[:2] + list(lines) + GOOD[4:-2]
    return run + [f"verdict {len(run)}", "exit 0"]


def kinds(lines: list[str]) -> set[str]:
    return {reason.kind for reason in judge(lines).reasons}


def a_guest_that_looks_at_a_process_reads_what_it_means_to() -> None:
    """gone() of guest.sh, while the process ends: a read of another file afterwards is of that file."""
    functions = re.search(r"^gone\(\) \{.*?^\}[^\n]*", (lab.ROOT / "qemu/guest.sh").read_text(), re.M | re.S)
    assert functions
    script = functions[0] + """
        set -u
        gone $$ && echo "this shell is there"
        for _ in {1..400}; do
            read -r pid < <(bash -c 'sleep 0.00$((RANDOM % 5)) & echo $!; wait')
            until gone "$pid"; do :; done
            read -r word _ </proc/stat
            [ "$word" = cpu ] || echo "$word"
        done
        sleep 0 & for _ in {1..1000}; do gone $! && exit; sleep 0.01; done; echo "a process that has ended is there" """
    assert subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout == ""


def the_clock_of_this_machine_is_known() -> None:
    """A second measurement agrees to a thousandth."""
    first = lab.tsc_khz()
    lab.tsc_khz.cache_clear()
    assert platform.machine() != "x86_64" or first
    assert abs(lab.tsc_khz() - first) <= first / 1000, (first, lab.tsc_khz())


def good_run() -> None:
    outcome = judge(GOOD)
    assert outcome.ok and len(outcome.lines) == 1, outcome.reasons


def who_stood_still_is_booted_again() -> None:
    timeout, splat = lab.Reason("timeout", ""), lab.Reason("splat", "BUG: KASAN: use-after-free")
    stall = lab.Reason("splat", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:")
    for said, reasons, again in (([], [timeout], True), (GOOD[:1], [timeout], False), (GOOD[:3], [timeout], False),
                                 ([], [timeout, splat], False), ([], [timeout, stall], True), ([], [timeout, stall, splat], False),
                                 (GOOD[:1], [timeout, stall], False), ([], [], False), (GOOD, [], False)):
        outcome = judge(said)
        outcome.reasons += reasons
        assert outcome.stood_still == again, (said, reasons)


def every_line_counts() -> None:
    for line in GOOD:
        assert not judge(without(line)).ok, f"good without {line!r}"


def every_prefix_fails() -> None:
    for n in range(len(GOOD)):
        assert "no-verdict" in kinds(GOOD[:n]), n


def nothing_after_the_last_word() -> None:
    assert "no-verdict" in kinds(GOOD + ["ok 2 - late"])
    assert "no-verdict" in kinds(GOOD[:-1] + ["check late ok", "exit 0"])


def script_that_died() -> None:
    assert "no-verdict" in kinds(GOOD[:-1] + ["exit 137"])


def plans() -> None:
    assert judge(with_test("ok 1 - a", "# note", "ok 2 - b", "1..2")).ok
    assert "plan" in kinds(with_test("ok 1 - a"))
    assert "plan" in kinds(with_test("1..2", "ok 1 - a"))
    assert "plan" in kinds(with_test("1..1", "ok 1 - a", "ok 2 - b"))
    assert "plan" in kinds(with_test("1..2", "ok 1 - a", "ok 3 - c"))
    assert "plan" in kinds(with_test("1..1", "ok 1 - a", "1..1"))


def bad_lines() -> None:
    outcome = judge(with_test("1..2", "not ok 1 - a", "# why", "ok 2 - b"))
    assert not outcome.ok and outcome.lines[0].notes == ["# why"]
    assert "died" in kinds(with_test("1..1", "ok 1 - a", "Bail out! no disk"))


def skips() -> None:
    assert "all-skipped" in kinds(with_test("1..0 # SKIP nothing here"))
    assert "all-skipped" in kinds(with_test("1..1", "ok 1 - a # SKIP no"))
    assert judge(with_test("1..2", "ok 1 - a # SKIP no", "ok 2 - b")).ok


def a_module_that_a_kernel_lacks_is_no_reason_to_build_again() -> None:
    with tempfile.TemporaryDirectory(dir=lab.BUILD) as folder:
        kernel = lab.Kernel(lab.NEWEST, "plain", Path(folder) / "home")
        place = Path(folder) / "kernel" / kernel.name  # nothing has been built yet
        builds = 0

        def build(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            nonlocal builds
            builds += 1
            with open(place / ".kmod.lock") as lock:  # another lab.py waits for this one
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    raise AssertionError("two may build the test modules of a kernel at once")
                except BlockingIOError:
                    pass
            work = Path(next(word for word in words if word.startswith("M=")).removeprefix("M="))
            (work / "splat.ko").touch()  # the other modules need an option that this kernel lacks
            return subprocess.CompletedProcess(words, 0, "", "")

        with mock.patch.object(lab.Kernel, "module", place / "peerdma.ko"), mock.patch.object(lab.subprocess, "run", build):
            lab.make_test_modules(kernel)
            lab.make_test_modules(kernel)
            assert builds == 1, builds
            os.utime(place / "kmod/built", (0, 0))  # older than the sources
            lab.make_test_modules(kernel)
            assert builds == 2, builds


def what_comes_soon_is_asked_for_again_though_the_clock_went_on() -> None:
    lib = (lab.ROOT / "tests/guest/lib.sh").read_text()
    soon = re.search(r"^soon\(\) \{.*?^\}", lib, re.M | re.S)
    assert soon
    third = "tries=0; third() { tries=$((tries + 1)); SECONDS=$((SECONDS + 100)); [ $tries = 3 ]; }"
    assert subprocess.run(["bash", "-c", f"{soon[0]}\n{third}\nsoon 5 third && ! soon 0 false"]).returncode == 0


def a_test_finds_no_file_of_another() -> None:
    guest = (lab.ROOT / "qemu/guest.sh").read_text()
    functions = re.findall(r"^(?:scratch_files|remove_scratch)\(\) \{.*?\}$", guest, re.M | re.S)
    assert len(functions) == 2, functions
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "before").touch()
        (folder / "kept").mkdir()
        script = "\n".join([*functions, f"scratch=({name}); scratch_before=$(scratch_files)",
                            f"touch '{name}/left  over' {name}/saved {name}/rpcbind.pid {name}/kept/file; mkfifo {name}/fifo; remove_scratch"])
        subprocess.run(["bash", "-euc", script], check=True)
        assert sorted(path.name for path in folder.iterdir()) == ["before", "kept", "rpcbind.pid"] and (folder / "kept/file").exists()


def test_ends() -> None:
    for status, kind in (("1", "died"), ("137", "died"), ("hung", "hung")):
        assert kind in kinds([f"end t {status} 5" if line == "end t 0 5" else line for line in GOOD])
    hung = judge(["begin t 60", "ok 1 - a", "# b", "ok 2 - c", "# sh(7) in wait4", "end t hung 5"])
    assert hung.reasons[0].notes == ["ok 2 - c", "# sh(7) in wait4"]


def what_fails_after_a_test_that_aborted_says_so() -> None:
    def run_of(*lines: str) -> lab.Outcome:
        guest = lab.Guest(KERNEL, TOPOLOGY, [lab.Test(Path(f"{name}.sh"), {}) for name in "tuv"], Path("/nonexistent"))
        outcome = lab.Outcome(guest)
        judged = lab.Judge(outcome)
        for line in (GOOD[0], *lines):
            judged.line(line)
        judged.close()
        return outcome

    u = ["begin u 60", "1..2", "not ok 1 - a", "# why", "ok 2 - b", "end u 1 5", "check p2pmem not ok d lost 1"]
    said = "after t aborted in this boot"
    for t in (["begin t 60", "ok 1 - a", "Bail out! no disk", "end t 1 5"], ["begin t 60", "1..1", "ok 1 - a", "end t 137 5"],
              ["begin t 60", "1..1", "not ok 1 - a", "end t hung 5"]):
        outcome = run_of(*t, *u)
        assert [line.notes for line in outcome.lines if line.test == "u"] == [[f"# failed, {said}", "# why"], []]
        about = {str(reason): said in str(reason) for reason in outcome.reasons if reason.kind not in ("not-ok", "no-verdict")}
        for reason, says in about.items():
            assert says == (" t " not in reason.partition(", after")[0] and not reason.startswith("died: t:")), reason
        assert about["died: u ended with status 1, " + said] and about["leak: d lost 1, " + said] and about["plan: v did not run, " + said]
    assert not any("aborted" in str(reason) for reason in run_of("begin t 60", "1..1", "not ok 1 - a", "end t 0 5", *u[:-2], "end u 0 5").reasons)
    assert "plan: u did not run, " + said in map(str, run_of("begin t 60", "1..1").reasons)


def the_folder_of_a_run_is_one_that_a_guest_sees() -> None:
    for path in (lab.BUILD / "lab/mine", lab.BUILD / "lab/run/again"):
        assert lab.folder_of_a_run(path) == path
    for path in ("/", str(lab.BUILD), str(lab.BUILD / "mine"), str(lab.BUILD / "lab"), str(lab.BUILD / "lab/../bin"), str(lab.ROOT / "tests/mine")):
        said = refused(lambda: lab.folder_of_a_run(Path(path)))
        assert said == f"-o {path}: expected a folder below {lab.BUILD}/lab", said
    for command in ("qemu/lab.py", "tests/power/powercut.py"):
        for path in ("/tmp/mine", *(str(lab.BUILD / name) for name in ("bin", "check", "kernel"))):
            # With no kernel of the lab, so that nothing is ever built.
            done = subprocess.run([lab.ROOT / command, "-k", "0", "-o", path], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (1, f"error: -o {path}: expected a folder below {lab.BUILD}/lab\n"), done


def a_guest_has_its_folder_for_itself() -> None:
    def another() -> None:
        with lab.alone_in(Path(folder)):
            raise AssertionError("two guests in one folder")
    with tempfile.TemporaryDirectory() as folder:
        with lab.alone_in(Path(folder)):
            assert refused(another) == f"a guest runs in {folder}: choose another folder with -o"
        with lab.alone_in(Path(folder)):
            pass


def end_checks() -> None:
    for line, kind in (("check p2pmem not ok d lost 1", "leak"), ("check modules not ok x", "module-reference"),
                       ("check kmemleak not ok 1", "leak"), ("check kcsan not ok 0", "kcsan"),
                       ("check dma-api not ok 1", "dma-api")):
        name = " ".join(line.split()[:2])
        assert kind in kinds([line if text.startswith(name) else text for text in GOOD]), line


def splats_found() -> None:
    for line in ("WARNING: CPU: 0 PID: 1 at x", "BUG: unable to handle", "Oops: 0002 [#1]", "UBSAN: shift",
                 "BUG: KASAN: use-after-free", "rcu: INFO: rcu_preempt detected stalls", "unreferenced object 0xff",
                 "DMAR: [DMA Write] Request device [03:00.0] fault addr 0x0", "WARNING: possible recursive locking",
                 "INFO: task x:1 blocked for more than 120 seconds.", "refcount_t: underflow", "x[1]: segfault at 0",
                 "list_del corruption", "DMA-API: nvme 0000:03:00.0: device driver maps", "watchdog: BUG: soft lockup"):
        assert list(lab.find_splats(["before", line], [])), line


def quiet_lines() -> None:
    for line in ("ACPI: DEBUG", "DMAR: IOMMU enabled", "kasan: KernelAddressSanitizer initialized",
                 "rcu: Preemptible hierarchical RCU implementation.", "Lock dependency validator: Copyright",
                 "DMA-API: preallocated 65536 debug entries", "nvme nvme0: pci function 0000:03:00.0",
                 "kmemleak: Kernel memory leak detector initialized", "debug: ignoring loglevel setting."):
        assert not list(lab.find_splats([line], [])), line


def known_splats() -> None:
    log = ["WARNING: at known_one", "Call Trace:", "---[ end trace 0 ]---", "WARNING: at another", "Call Trace:"]
    found = list(lab.find_splats(log, ["known_one"]))
    assert found[0] == ("known_one", log[0]) and found[1] == (None, log[3]), found
    assert lab.brief([line for entry, line in found if not entry]) == [log[3]]


def races_of_the_kernel() -> None:
    """Only KCSAN reports with accesses by functions of the module count, but not those of the kernel's functions that are
    compiled into the module."""
    bar, head = "=" * 66, "BUG: KCSAN: data-race in xas_load / "
    theirs = [bar, head + "xas_store", " xas_load+0x1/0x2", " io_run+0x1/0x2 [peerdma]", bar]
    ours = [bar, head + "io_run [peerdma]", " io_run+0x1/0x2 [peerdma]", bar]
    known = [regex for regex, _ in lab.known_splats(f"{lab.NEWEST}-kcsan")]
    race = "BUG: KCSAN: data-race in "
    inline = [bar, race + "peerdma_file_get [peerdma] / percpu_ref_kill_and_confirm", " peerdma_file_get+0x1/0x2 [peerdma]", bar]
    other = [bar, race + "peerdma_file_get [peerdma] / peerdma_file_add [peerdma]", " peerdma_file_get+0x1/0x2 [peerdma]", bar]
    found = list(lab.find_splats(theirs + ours + inline + other, known))
    assert [entry is not None for entry, _ in found] == [True, False, True, False], found


OF_C = ("c", "cpp", "h", "hpp")


def a_kernel_is_chosen_by_the_table_alone() -> None:
    """qemu/kernels.tbl is the only list of kernels. Only comments name a single kernel, and what the product says to its users."""
    assert run.NEWEST == lab.NEWEST
    # Also in a regular expression, but not as the begin of a release.
    names = "|".join(re.escape(k).replace(r"\.", r"(?:\\?\.|\[\.\])") for k in lab.KERNELS)
    value, comment = re.compile(rf"(?<![\w.])(?:{names})(?!\w|\.\d)"), re.compile(r"(?:^|\s)(?:#|//)(?! (?:long|longer|kernels): ).*", re.M)
    comment_of_c = re.compile(r"/\*.*?\*/|(?:^|\s)//.*?$", re.M | re.S)
    said = {"user/tools/check/kernel.cpp": re.escape(f"make check runs on {' and '.join(reversed(lab.KERNELS))}, of Debian's source"),
            "user/lib/reason.cpp": r"Use a kernel with CONFIG_DMABUF_MOVE_NOTIFY, or [0-9.]+, or have root set "}
    distributions = "user/tools/check/distribution.cpp"  # which has what, and what to do: check_tree_test.py

    def named(text: str, of_c: bool = False) -> re.Match[str] | None:
        return value.search((comment_of_c if of_c else comment).sub("", text))
    for used in ('K="${K:-' + lab.NEWEST + '}"', f"kernel.sh path {lab.OLDEST} debug", f'[ "$LAB_K" = {lab.OLDEST} ]', f"for K={lab.OLDEST} in",
                 f"case $LAB_K in\n{lab.OLDEST})", f"# long: {lab.OLDEST} debug", f'getenv("LAB_K")) != "{lab.OLDEST}"', f"| {lab.OLDEST} alone |",
                 f"DAX (on {lab.OLDEST}): refused", f"for want in {lab.OLDEST}.; do", "'^linux-headers-" + lab.OLDEST.replace(".", "[.]") + "[.]'",
                 "grep '" + lab.OLDEST.replace(".", r"\.") + "'"):
        assert named(used), used
    for free in (f"x # on {lab.OLDEST}", f"// {lab.OLDEST} lacks it", f'"{lab.OLDEST}.95+deb13"', f"0.{lab.OLDEST}"):
        assert not named(free), free
    for used in (f'#define K "{lab.OLDEST}"', f'/* x */ "{lab.OLDEST}"', f'K /* x\n */ = "boot {lab.NEWEST}"; // y'):
        assert named(used, of_c=True), used
    for free in (f"/* in\n * {lab.NEWEST} */ x", f"x // {lab.OLDEST}\ny", f"/** since {lab.OLDEST}. */"):
        assert not named(free, of_c=True), free
    globs = ("Makefile", "scripts/*.sh", "scripts/*.py", "qemu/*.py", "qemu/*.sh", ".ci/run", "tests/Makefile",
             "qemu/topo/*.args", "scripts/debian/**/*", "scripts/Containerfile", "user/Makefile", "kernel/**/Kbuild*",
             *(f"tests/**/*.{suffix}" for suffix in ("py", "sh", "mutant")),
             *(f"{folder}/**/*.{suffix}" for folder in ("include", "kernel", "qemu", "tests", "user") for suffix in OF_C))
    files = {path: str(path.relative_to(lab.ROOT)) for glob in globs for path in lab.ROOT.glob(glob) if path.is_file()}
    there = {path.parent.name for path in files}
    assert {"scripts", "qemu", "perf", "meta", "peer", "tools", "fuzz", "gpu", "mutants", "topo", "debian", "viewd", "uapi", "kmod"} <= there
    assert {distributions, *said} <= set(files.values())
    for path, name in files.items():
        text = path.read_text()
        if name in said:
            text, nr = re.subn(said[name], "", text)
            assert nr == 1, f"{name}: expected once {said[name]}"
        if name != distributions:
            assert not (found := named(text, path.suffix[1:] in OF_C)), f"{name}: {found[0]}"
    for k in lab.KERNELS:
        assert (lab.ROOT / f"qemu/kernel-{k}.config").exists() and (lab.ROOT / f"qemu/splats/{k}").exists(), k


def headers_name_kernels_by_age() -> None:
    with tempfile.TemporaryDirectory() as folder:
        def test(header: str) -> lab.Test:
            path = Path(folder) / "t.sh"
            path.write_text(f"#!/bin/bash\n# {header}\n")
            return lab.Test.load(path)

        runs = [(lab.NEWEST, "plain"), (lab.NEWEST, "debug"), (lab.OLDEST, "plain"), (lab.OLDEST, "debug")]
        for words, long in (("oldest", "0010"), ("newest", "1000"), (lab.OLDEST, "0010"), ("plain", "1010"), ("debug", "0101"),
                            ("oldest debug", "0111")):
            assert "".join(str(int(test(f"long: {words}").is_long(*run_))) for run_ in runs) == long, words
        for words, on in (("newest", [lab.NEWEST]), ("oldest", [lab.OLDEST]), (lab.OLDEST, [lab.OLDEST])):
            assert [k for k in lab.KERNELS if test(f"kernels: {words}").is_on(k)] == on, words
        assert all(test("group: io").is_on(k) for k in lab.KERNELS)
        for header in ("long: 6.1", "long: eldest", "kernels: plain", "long: oldest,debug"):
            said = refused(lambda h=header: test(h))
            assert f"# {header.split()[0]} {header.split()[1]}: expected newest, oldest, " in said, said
        said = refused(lambda: test("wants: md-p2p nvme"))
        assert said.endswith(f"# wants: nvme: expected {', '.join(lab.LACKS)}"), said


def what_kernels_lack_is_in_their_table() -> None:
    def of(*lines: str) -> dict[str, lab.Lack]:
        return lab.lacks_of("\n".join(lines), ("3.0", "2.0"))
    assert of("# lacks x", "kernel 3.0", "lacks  a  2.0  no a, before 2.5", "lacks b - no b", "lacks c 3.0,2.0 no c") == {
        "a": lab.Lack(frozenset({"2.0"}), "no a, before 2.5"), "b": lab.Lack(frozenset(), "no b"), "c": lab.Lack(frozenset({"2.0", "3.0"}), "no c")}
    for lines, said in ((["lacks a 2.1 why"], "lacks a: '2.1': expected -, or of 3.0, 2.0"), (["lacks a 2.0"], "lacks a: no reason: expected"),
                        (["lacks a - why", "lacks a 2.0 why"], "lacks a: a second line: expected")):
        assert said in refused(lambda given=lines: of(*given)), lines
    # A guest asks for words of the table only, and each word is asked for.
    scripts = [path for folder in ("guest", "peer", "perf") for path in (lab.ROOT / "tests" / folder).rglob("*.sh")]
    asked = {word for path in scripts for word in re.findall(r"(?:^|if|[;&|!(])\s*lacks ([\w-]+)|^# wants: (.*)", path.read_text(), re.M)}
    assert {word for pair in asked for words in pair for word in words.split()} == set(lab.LACKS), asked


def a_guest_is_told_what_its_kernel_lacks() -> None:
    function = re.search(r"^lacks\(\) \{.*?^\}", (lab.ROOT / "tests/guest/lib.sh").read_text(), re.M | re.S)
    assert function
    for k in lab.KERNELS:
        for word, lack in lab.LACKS.items():
            done = subprocess.run(["bash", "-uc", f'{function[0]}\nlacks {word} && echo "$lack"'], capture_output=True, text=True,
                                  env=os.environ | {"LAB_LACKS": lab.Kernel(k, "plain", Path()).lacks})
            assert (done.stdout, done.stderr) == (f"{lack.why}\n" if k in lack.kernels else "", ""), (k, word, done)


def variants() -> None:
    assert [lab.variant_of(debug) for debug in (None, "", "0", "1", "kcsan", "rt")] == [*["plain"] * 3, *lab.SLOW]
    assert all(lab.Test.named("cancel").is_for(variant) for variant in ("plain", *lab.SLOW))  # "plain debug"
    assert not any(lab.Test.named("nfs_io").is_for(variant) for variant in lab.SLOW)           # "plain"
    assert not lab.Test.named("suspend").is_for("rt")                                          # "debug"
    try:
        lab.variant_of("2")
    except lab.LabError:
        return
    raise AssertionError("DEBUG=2 means nothing")


def archive() -> None:
    data = lab.cpio({"init": (0o100755, b"abc")})
    assert data.startswith(b"070701") and b"TRAILER!!!" in data and len(data) % 4 == 0


def topologies() -> None:
    for path in (lab.ROOT / "qemu/topo").glob("*.args"):
        topology = lab.Topology.load(path.stem)
        assert topology.says, path
        assert topology.name == "storage" or any("gpu0" in arg for arg in topology.args), path
        # Something in it must be able to move bytes.
        assert "disk0" in topology.disks or any(arg.startswith("edu,") for arg in topology.args), path
    # Otherwise the kernel leaves what it has unmapped to the IOMMU for 10 ms, and DMA there is no fault.
    assert "iommu.strict=1" in lab.Topology.load("rp-vtd").cmdline.split()


def dma_is_counted_since_the_mark_and_at_the_addresses_that_are_asked_for() -> None:
    def seen(addr: int, length: int) -> str:
        return f"pci_nvme_map_addr addr 0x{addr:x} len {length}\n"

    async def answers(boot: lab.Boot) -> None:
        trace = boot.guest.out / "trace.log"
        trace.write_text(seen(0x10000, 4096))
        assert await boot.answer("dma-mark") == "ok"
        assert await boot.answer("dma-at 0x10000:0x20000") == "ok 0"
        with open(trace, "a") as file:
            # From its first byte to its last; a byte before it, over its end, elsewhere.
            file.write(seen(0x10000, 4096) + seen(0x1f000, 4096) + seen(0xffff, 100) + seen(0x1f000, 4097) + "another event\n" + seen(0x40000, 512))
        assert await boot.answer(f"dma-at {0x10000}:{0x20000}") == "ok 8192"
        assert await boot.answer("dma-at 0:0 0x10000:0x11000 0x10000:0x20000 0x40000:0x40200") == "ok 8704", "each is counted once"
        assert await boot.answer("dma-at") == "ok 0"
        with mock.patch.object(boot, "bar_window", mock.AsyncMock(return_value=(0x10000, 0x1ffff))):
            assert await boot.answer("dma") == f"ok gpu0 {2 * 4096 + 4097} elsewhere {100 + 512}"

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(answers(lab.Boot(lab.Guest(KERNEL, TOPOLOGY, [], Path(folder)))))


def refused(call: Callable[[], object]) -> str:
    """Returns the text of the LabError that the call raises."""
    try:
        call()
    except lab.LabError as error:
        return str(error)
    raise AssertionError("nothing was said")


@contextlib.contextmanager
def tree_of_tests(*names: str) -> Iterator[Path]:
    """A tree with these guest tests and topologies."""
    root = lab.ROOT
    with tempfile.TemporaryDirectory() as folder:
        lab.ROOT = Path(folder)
        (lab.ROOT / "qemu").mkdir()
        (lab.ROOT / "qemu/topo").symlink_to(root / "qemu/topo")
        for name in ("perf/counts.sh", *names):
            path = lab.ROOT / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n# group: {'perf' if 'perf' in name else 'io'}\n# topologies: switch\n")
        try:
            yield lab.ROOT
        finally:
            lab.ROOT = root


def a_guest_test_is_found_by_its_name() -> None:
    assert lab.Test.named("read").path == lab.ROOT / "tests/guest/io/read.sh"
    assert "no guest tests" in refused(lambda: lab.Test.named("lib"))
    said = refused(lambda: lab.Test.load(lab.ROOT / "tests/guest/read.sh"))
    assert said.endswith("no such test; did you mean tests/guest/io/read.sh?"), said


def each_guest_test_is_in_a_folder_and_has_a_name_of_its_own() -> None:
    with tree_of_tests("guest/io/b.sh", "guest/memory/pages/a.sh"):
        (lab.ROOT / "tests/perf/count.sh").write_text("#!/bin/sh\n# group: bench\n# topologies: switch\n")
        assert [test.name for test in run.guest_tests()] == ["a", "b", "counts"]
    with tree_of_tests("guest/io/a.sh", "guest/memory/a.sh"):
        assert "have the name a" in refused(run.guest_tests)
        assert "2 guest tests" in refused(lambda: lab.Test.named("a"))
    with tree_of_tests("guest/io/a.sh", "guest/b.sh"):
        assert "b.sh: expected in a folder" in refused(run.guest_tests)


def of_the_jobs_that_wait_the_longest_begins_first() -> None:
    began: list[int] = []
    most = 0

    async def job(slots: run.Slots, seconds: int, running: set[int]) -> None:
        nonlocal most
        async with slots.take(seconds):
            began.append(seconds)
            running.add(seconds)
            most = max(most, len(running))
            await asyncio.sleep(0)
            running.remove(seconds)
            if seconds == 5:
                raise OSError  # a job that fails gives its slot back

    async def jobs() -> None:
        slots, running = run.Slots(2), set[int]()
        done = await asyncio.gather(*(job(slots, n, running) for n in (1, 2, 3, 5, 4)), return_exceptions=True)
        assert [type(answer) for answer in done if answer] == [OSError]
        assert slots.free == 2

    asyncio.run(jobs())
    assert began == [1, 2, 5, 4, 3] and most == 2, (began, most)


TESTS: list[Callable[[], None]] = [
    the_clock_of_this_machine_is_known, good_run, who_stood_still_is_booted_again, every_line_counts, every_prefix_fails, nothing_after_the_last_word, script_that_died, plans, bad_lines,
    skips, what_comes_soon_is_asked_for_again_though_the_clock_went_on,
    a_test_finds_no_file_of_another, test_ends, what_fails_after_a_test_that_aborted_says_so, the_folder_of_a_run_is_one_that_a_guest_sees,
    a_guest_has_its_folder_for_itself, a_guest_that_looks_at_a_process_reads_what_it_means_to, end_checks, splats_found, quiet_lines, known_splats,
    races_of_the_kernel, a_kernel_is_chosen_by_the_table_alone, headers_name_kernels_by_age,
    what_kernels_lack_is_in_their_table, a_guest_is_told_what_its_kernel_lacks, variants, archive, topologies, a_guest_test_is_found_by_its_name,
    each_guest_test_is_in_a_folder_and_has_a_name_of_its_own, a_module_that_a_kernel_lacks_is_no_reason_to_build_again,
    of_the_jobs_that_wait_the_longest_begins_first, dma_is_counted_since_the_mark_and_at_the_addresses_that_are_asked_for]


if __name__ == "__main__":
    sys.exit(tap.run(TESTS))
