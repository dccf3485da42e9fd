#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The tables of Documentation/compat.md and two other pages: what works on which kernel, and the tests that show it.
They are made from the headers of the tests.

    compat.py            TAP: compares the tables with the headers; each guest test must be in a table
    compat.py --write    writes the tables
"""
from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]
import run  # noqa: E402
import tap  # noqa: E402

PAGE = run.lab.ROOT / "Documentation/compat.md"
IN_CI = run.Choice(None, "plain", None, None, short=1)
SHORTEST = run.replace(IN_CI, short=2)
TESTING = run.lab.ROOT / "Documentation/testing.md"
FABRICS = run.lab.ROOT / "Documentation/fabrics.md"

# Features, and the guest tests that prove them. {on WORD: WHAT} holds for kernels that lack WORD (qemu/kernels.tbl), {on CONFIG_X}
# names those whose configuration has it.
FEATURES = (
    ("reading and writing files of ext4, any offset and length", "read write edges"),
    ("more than 2 GiB in one request", "large"),
    ("files that change meanwhile, signals, kills", "meanwhile"),
    ("zeros of holes have arrived when a read ends", "readback"),
    ("random operations against a model, every byte", "verify"),
    ("buffers and files by number", "ids"),
    ("io_uring: single commands, many pieces, polled rings", "uring uring_poll batch"),
    ("routes and reasons, on several topologies", "route"),
    ("no route where all DMA passes through host memory (swiotlb)", "bounce"),
    ("xfs; other filesystems refused", "filesystems"),
    ("SATA and inline data; persistent memory and DAX {on CONFIG_NVDIMM_PFN}: refused", "refused"),
    ("md, device-mapper, partitions, mirrors", "stack legs mirror"),
    ("NVMe multipath", "paths"),
    ("nothing is merged where a route goes", "merge"),
    ("bad and hostile input; which BARs are published", "badinput hostile bars"),
    ("who may do what; limits by user and cgroup", "access nodes limits throttled"),
    ("mmap of buffers", "proxy"),
    ("unbind, hotplug, kill, rmmod, power of a drive, reset and errors of the GPU: nothing is lost", "lifecycle locks cancel revoke held dead halt"),
    ("suspend to idle, to RAM and to a disk: buffers are revoked, no other bytes are read as theirs", "suspend"),
    ("memory of NVIDIA's driver, with a stand-in for it", "nvidia registered"),
    ("each allocation and user copy that can fail", "failnth"),
    ("a storage that fails; power cuts in direct writes", "iofaults powercut"),
    ("random calls, guided by coverage", "fuzz"),
    ("instructions per operation", "counts"),
    ("no cache line is written by two CPUs", "lines"),
    ("views of files, served by ublk; exported by NVMe over RDMA",
     "served prefetch hosts faults faults_service silent killed systemd exported exported_faults gone_view"),
    ("views by the command and by definitions; 1,000 of them", "command many"),
    ("the command", "cli check copy bench selftest selftest_faults"),
    ("rules: who may move what", "rules"),
    ("the documentation's own commands", "docs docs_pair"),
    ("counters, tracepoints, the witness; inotify and task counters", "seeing observed"),
    ("dma-bufs of buffers, imported by another device", "dmabuf"),
    ("dma-bufs of other drivers as buffers", "import vendors"),
    ("NVMe over RDMA, with soft-RoCE", "fabric fabric_io fabric_large fabric_fuzz fabric_lifetime fabric_seeing fabric_single fabric_stack ways remote gone"),
    ("NFS over RDMA, with soft-RoCE", "nfs nfs_io nfs_ways ways remote gone"),
    ("which network card leads to a server, with a stand-in", "nic"),
    ("NVMe over RDMA by a network card of the lab that moves the bytes itself, by its own DMA {on nvme-rdma-p2p: only that it is refused, with the reason}",
     "card card_io card_stack card_large card_fuzz"),
    ("NFS over RDMA by that card", "card_nfs card_nfs_io"),
    ("counters, tracepoints and the witness, of NVMe and NFS by that card", "card_seeing"),
    ("a drive by two such cards, of which the nearer one is preferred", "card_ana"),
    ("two such cards, one of them out of the GPU's reach {on nvme-rdma-p2p: NFS only}", "card_paths"),
    ("libcufile by way of a second GPU's memory, which alone that card reaches", "card_nearby"),
    ("views read through that card", "card_view"),
    ("what is under way by that card when something goes", "card_ways card_lifetime card_nfs_ways"),
    ("verbs, GPU memory to GPU memory, by that card", "card_verbs"),
    ("memory that its owner moves within the GPU and goes on, by that card", "card_moving"),
    ("the DMA engine of that card", "dmacard"),
    ("verbs, GPU memory to GPU memory, with soft-RoCE {on rdma-on-demand: only that it is refused, with the reason}",
     "verbs verbs_pair example"),
    ("libcufile.so.0 and fio on it, with a stand-in for CUDA", "cufile nearby fio cufile_ways"),
    ("libcufile.so.0 on a drive that is reached through that card", "card_cufile_ways"),
)


@functools.cache
def guest_tests() -> dict[str, run.lab.Test]:
    return {test.name: test for test in run.guest_tests()}


def kernels() -> list[tuple[str, str]]:
    """The columns of the tables."""
    newest, *older = run.lab.KERNELS
    return [(newest, "plain"), (newest, "debug"), *((k, "plain") for k in older)]


def name_of(k: str, variant: str) -> str:
    return k if variant == "plain" else f"{k}, {variant}"


def topologies(test: run.lab.Test, k: str, variant: str, choice: run.Choice = IN_CI) -> set[str]:
    """Those on which CI runs the test."""
    return {name for name in test.words("topologies") if choice.wants(test, k, variant, name) and not choice.why_not(test, k, variant)}


def runs(test: run.lab.Test, k: str, variant: str) -> str:
    """Returns "always" (each run of CI, unless it is the shortest), "asked" (CI leaves it out) or "never"."""
    if not test.is_on(k) or not test.is_for(variant):
        return "never"
    return "always" if topologies(test, k, variant) else "asked"


def cell(names: list[str], k: str, variant: str) -> str:
    # The power cut has no header: run.py runs it on each plain kernel.
    tests = guest_tests()
    how = {name: runs(tests[name], k, variant) if name in tests else "always" if variant == "plain" else "never" for name in names}
    return ", ".join([f"`{name}`" for name in names if how[name] == "always"]
                     + [f"(`{name}`)" for name in names if how[name] == "asked"]) or "-"


def feature(what: str) -> str:
    """With the kernels of what is braced; without it, if there are none."""
    def named(found: re.Match[str]) -> str:
        word, says = found[1], found[2] or ""
        of = [k for k in run.lab.KERNELS if (has_option(k, word) if word.startswith("CONFIG_") else k in run.lab.LACKS[word].kernels)]
        return f" (on {' and '.join(of)}{says})" if of else ""
    return re.sub(r" \{on ([\w-]+)(: [^}]*)?\}", named, what)


def has_option(k: str, option: str) -> bool:
    path = run.lab.ROOT / f"qemu/kernel-{k}.config"
    return path.exists() and f"{option}=y" in path.read_text().splitlines()


def table() -> str:
    rows = ["| proven | " + " | ".join(name_of(*key) for key in kernels()) + " |", "|---|" + "---|" * len(kernels())]
    rows += [f"| {feature(what)} | " + " | ".join(cell(names.split(), *key) for key in kernels()) + " |"
             for what, names in FEATURES]
    return "\n".join(rows)


def of_kernel(k: str, variant: str) -> dict[str, list[str]]:
    """The tests by "always", "asked" and "never"."""
    found: dict[str, list[str]] = {"always": [], "asked": [], "never": []}
    for name, test in guest_tests().items():
        found[runs(test, k, variant)].append(name)
    return found


def topologies_of_tests(k: str, variant: str, choice: run.Choice) -> list[set[str]]:
    """Of each test that CI runs on this kernel."""
    return [found for test in guest_tests().values() if (found := topologies(test, k, variant, choice))]


def number(usual: int, shortest: int) -> str:
    return f"{usual}" if usual == shortest else f"{usual}, with `SHORT=2` {shortest}"


def totals() -> str:
    rows = ["| kernel | guest tests in each run of CI | topologies | more that CI leaves out | not there |", "|---|---|---|---|---|"]
    for k, variant in kernels():
        found = of_kernel(k, variant)
        usual, shortest = (topologies_of_tests(k, variant, choice) for choice in (IN_CI, SHORTEST))
        never = f"{len(found['never'])}" + (f": {', '.join(f'`{name}`' for name in found['never'])}" if variant == "plain" else "")
        rows.append(f"| {name_of(k, variant)} | {number(len(usual), len(shortest))} "
                    f"| {number(len(set().union(*usual)), len(set().union(*shortest)))} | {len(found['asked'])} | {never} |")
    return "\n".join(rows)


def debug() -> str:
    """The tests that the debug kernel runs always, always but in the shortest run, only if asked for, and never."""
    found = of_kernel(run.NEWEST, "debug")
    found["longer"] = [name for name in found["always"] if not topologies(guest_tests()[name], run.NEWEST, "debug", SHORTEST)]
    lists = {key: ", ".join(f"`{name}`" for name in sorted(found[key])) for key in found}
    return (f"On the debug kernel CI runs {lists['always']}; with `SHORT=2` all but {lists['longer']}.\n"
            f"CI leaves out {lists['asked']}.\n"
            f"Plain only are {lists['never']}.")


def fabrics() -> str:
    """The tests of RDMA that CI leaves out."""
    rows = ["| kernel | tests that CI leaves out |", "|---|---|"]
    for variant in ("plain", "debug"):
        asked: dict[tuple[str, ...], list[str]] = {}  # by the kernels
        for name, test in sorted(guest_tests().items()):
            of = tuple(name_of(*key) for key in kernels() if key[1] == variant and runs(test, *key) == "asked")
            if of and "rdma" in test.words("group"):
                asked.setdefault(of, []).append(name)
        rows += [f"| {' and '.join(of)} | {', '.join(f'`{name}`' for name in asked[of])} |" for of in sorted(asked, key=len, reverse=True)]
    return "\n".join(rows)


TABLES = {PAGE: {"totals": totals, "kernels": table}, TESTING: {"debug": debug}, FABRICS: {"asked": fabrics}}


def filled(path: Path) -> str:
    """The page with its tables made anew: each follows a mark "<!-- table: NAME -->" and ends at an empty line."""
    text = path.read_text()
    for name, made in TABLES[path].items():
        mark = f"<!-- table: {name} -->\n"
        assert text.count(mark) == 1, f"{path} has no place for the table {name}"
        text = re.sub(re.escape(mark) + r"(\S.*\n)*", lambda _, m=mark, t=made: f"{m}{t()}\n", text)
    return text


def rows_of(text: str, first: str) -> list[list[str]]:
    """The rows of the table that begins with this line, as cells."""
    lines = text[text.index(first):].splitlines()[2:]
    return [line.split("|") for line in lines[:next(i for i, line in enumerate(lines) if not line.startswith("|"))]]


def the_tables_are_what_the_headers_of_the_tests_say() -> None:
    for path in TABLES:
        assert filled(path) == path.read_text(), f"{path}: tests/host/docs/compat.py --write"


def testing_md_and_make_help_have_each_topology_and_no_other() -> None:
    named = {cells[1].strip(" `") for cells in rows_of(TESTING.read_text(), "| name | drive and GPU |")}
    help_names = re.search(r"^#   T=(\S+)", (run.lab.ROOT / "Makefile").read_text(), re.M)
    there = {path.stem for path in (run.lab.ROOT / "qemu/topo").glob("*.args")}
    assert named == there, named ^ there
    assert help_names and set(help_names[1].split("|")) == there, help_names


def who_may_do_what_is_tested_on_each_kernel() -> None:
    """What separates users is tested on every kernel."""
    for name in ("access", "nodes", "hostile", "badinput", "limits"):
        for k in run.lab.KERNELS:
            assert name in of_kernel(k, "plain")["always"], f"{name} does not run on {k}"


def each_guest_test_is_in_it() -> None:
    named = {name for _, names in FEATURES for name in names.split()}
    assert named == set(guest_tests()) | {"powercut"}, named ^ (set(guest_tests()) | {"powercut"})


def what_the_shortest_run_leaves_out_is_said() -> None:
    longer = {test.name for test in guest_tests().values() if test.is_long(run.NEWEST, "debug", "longer")}
    said = debug().splitlines()[0].partition("with `SHORT=2` all but ")[2]
    assert longer and set(re.findall(r"`(\w+)`", said)) == longer, said
    for k in run.lab.KERNELS[1:]:
        row = next(cells for cells in rows_of(totals() + "\n\n", "| kernel |") if cells[1].strip() == k)
        first = {test.words("topologies")[0] for test in guest_tests().values() if runs(test, k, "plain") == "always"}
        assert row[3].endswith(f", with `SHORT=2` {len(first)} "), row


def another_kernel_has_its_column_and_row() -> None:
    k = f"{run.OLDEST}0"
    with mock.patch.object(run.lab, "KERNELS", (run.NEWEST, k, run.OLDEST)):
        assert table().startswith(f"| proven | {run.NEWEST} | {run.NEWEST}, debug | {k} | {run.OLDEST} |\n")
        assert len({line.count("|") for line in table().splitlines()}) == 1
        lack = run.lab.LACKS["nvme-rdma-p2p"]
        for lacking, nfs_only, there in ((lack.kernels, f" (on {run.OLDEST}: NFS only)", "`card_view`"),
                                         (lack.kernels | {k}, f" (on {k} and {run.OLDEST}: NFS only)", "-"), (frozenset[str](), "", "`card_view`")):
            with mock.patch.object(run.lab, "LACKS", run.lab.LACKS | {"nvme-rdma-p2p": run.replace(lack, kernels=lacking)}):
                cells = {row[1].strip(): row[4].strip() for row in rows_of(table() + "\n\n", "| proven |")}
                assert cells["views read through that card"] in (there, f"({there})"), (lacking, cells)
                assert f"two such cards, one of them out of the GPU's reach{nfs_only}" in cells, cells
        assert f"\n| {k} | " in totals() and f"\n| {run.NEWEST} and {k} and {run.OLDEST} | " in fabrics(), fabrics()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for changed in TABLES:
            changed.write_text(filled(changed))
    else:
        sys.exit(tap.run([the_tables_are_what_the_headers_of_the_tests_say, testing_md_and_make_help_have_each_topology_and_no_other,
                          who_may_do_what_is_tested_on_each_kernel, each_guest_test_is_in_it, what_the_shortest_run_leaves_out_is_said,
                          another_kernel_has_its_column_and_row]))
