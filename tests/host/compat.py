#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The table of Documentation/compat.md, which kernel does what and which test has seen it, from the tests' own headers.

    compat.py            TAP: is it what the headers say, and is each guest test in it
    compat.py --write    write it
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]
import run  # noqa: E402
import tap  # noqa: E402

PAGE = run.lab.ROOT / "Documentation/compat.md"
KERNELS = (("7.2", "plain"), ("7.2", "debug"), ("6.12", "plain"))
BY_DEFAULT = run.Choice(None, "plain", None, None)
TABLE = re.compile(r"(<!-- table: kernels -->\n).*?(\n\n|\Z)", re.S)

# What is proven, and by which guest tests.
FEATURES = (
    ("reading and writing files of ext4, any offset and length", "read write edges"),
    ("more than 2 GiB in one request", "large"),
    ("files that change meanwhile, signals, kills", "meanwhile"),
    ("random operations against a model, every byte", "verify"),
    ("buffers and files by number", "ids"),
    ("io_uring: single commands, many pieces, polled rings", "uring uring_poll batch"),
    ("routes and reasons, on six topologies", "route"),
    ("no route where all DMA passes through host memory (swiotlb)", "bounce"),
    ("xfs; other filesystems refused", "filesystems"),
    ("md, device-mapper, partitions, mirrors", "stack legs mirror"),
    ("NVMe multipath", "paths"),
    ("nothing is merged where a route goes", "merge"),
    ("bad and hostile input", "badinput hostile"),
    ("who may do what; limits by user and cgroup", "access limits"),
    ("mmap of buffers", "proxy"),
    ("unbind, hotplug, kill, rmmod, power of a drive: nothing is lost", "lifecycle locks revoke held dead"),
    ("memory of NVIDIA's driver, with a stand-in for it", "nvidia registered"),
    ("each allocation and user copy that can fail", "failnth"),
    ("a storage that fails; power cuts in direct writes", "iofaults powercut"),
    ("random calls, guided by coverage", "fuzz"),
    ("instructions per operation", "counts"),
    ("the command", "cli check copy bench selftest selftest_faults"),
    ("rules: who may move what", "rules"),
    ("the documentation's own commands", "docs docs_pair"),
    ("counters, tracepoints, the witness", "seeing"),
    ("dma-bufs of buffers, imported by another device", "dmabuf"),
    ("dma-bufs of other drivers as buffers", "import vendors"),
    ("NVMe over RDMA, with soft-RoCE", "fabric fabric_io fabric_large fabric_fuzz fabric_lifetime fabric_seeing fabric_single fabric_stack ways remote gone"),
    ("NFS over RDMA, with soft-RoCE", "nfs nfs_io nfs_ways ways remote gone"),
    ("which network card leads to a server, with a stand-in", "nic"),
    ("verbs, GPU memory to GPU memory, with soft-RoCE (on 6.12: only that it is refused, with the reason)",
     "verbs verbs_pair example"),
    ("libcufile.so.0 and fio on it, with a stand-in for CUDA", "cufile nearby fio"),
)


def guest_tests() -> dict[str, run.lab.Test]:
    return {test.name: test for test in run.guest_tests()}


def runs(test: run.lab.Test, k: str, variant: str) -> str:
    """always, asked (for) or never"""
    if k not in test.words("kernels", k) or variant not in test.words("variants", variant):
        return "never"
    here = any(BY_DEFAULT.wants(test, k, variant, topology) for topology in test.words("topologies"))
    return "always" if here and not BY_DEFAULT.why_not(test, k, variant) else "asked"


def cell(names: list[str], k: str, variant: str) -> str:
    # The power cut has no header: run.py makes it on each plain kernel.
    tests = guest_tests()
    how = {name: runs(tests[name], k, variant) if name in tests else "always" if variant == "plain" else "never" for name in names}
    return ", ".join([f"`{name}`" for name in names if how[name] == "always"]
                     + [f"(`{name}`)" for name in names if how[name] == "asked"]) or "-"


def table() -> str:
    rows = ["| proven | " + " | ".join(k if variant == "plain" else f"{k}, {variant}" for k, variant in KERNELS) + " |",
            "|---|" + "---|" * len(KERNELS)]
    rows += [f"| {what} | " + " | ".join(cell(names.split(), k, variant) for k, variant in KERNELS) + " |"
             for what, names in FEATURES]
    return "\n".join(rows)


def the_table_is_what_the_headers_of_the_tests_say() -> None:
    found = TABLE.search(PAGE.read_text())
    assert found and found[0] == found[1] + table() + found[2], "tests/host/compat.py --write"


def each_guest_test_is_in_it() -> None:
    named = {name for _, names in FEATURES for name in names.split()}
    assert named == set(guest_tests()) | {"powercut"}, named ^ (set(guest_tests()) | {"powercut"})


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(TABLE.sub(lambda found: found[1] + table() + found[2], PAGE.read_text()))
    else:
        sys.exit(tap.run([the_table_is_what_the_headers_of_the_tests_say, each_guest_test_is_in_it]))
