#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""How instruction counts are judged, without a guest: a falsified baseline must fail."""
from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Callable
from unittest import mock
from xml.etree import ElementTree

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "perf"), str(Path(__file__).resolve().parents[1])]
import bench  # noqa: E402
import counts  # noqa: E402
import plot  # noqa: E402
import tables  # noqa: E402
import tap  # noqa: E402
from tables import lab  # noqa: E402

KIB = counts.KIB
SAID = ["# count direct_read 4096 1000", "count direct_read 1048576 1100", "count host_odirect_read 4096 1001",
        "exact direct_read.commands 4096 1", "exact direct_read.allocations 4096 0.03125", "absent p2pmem_mmap_read 4096 not here",
        "ok 1 - all is counted"]
KEY = ("direct_read", 4 * KIB)


def baseline(**changed: float) -> dict[counts.Key, float]:
    return {KEY: changed.get("ours", 1000), ("direct_read", counts.MIB): 1100, ("host_odirect_read", 4 * KIB): 1000}


def judged(before: dict[counts.Key, float]) -> counts.Verdict:
    return counts.judge_baseline(counts.Counts.parse(SAID), before)


def parses() -> None:
    got = counts.Counts.parse(SAID)
    assert got.instructions == baseline() | {("host_odirect_read", 4 * KIB): 1001}, got.instructions
    assert got.exact["direct_read.allocations", 4096] == 0.03125
    assert got.absent == {("p2pmem_mmap_read", 4096): "not here"}


def the_lowest_of_two_counts() -> None:
    for other in ("count direct_read 4096 1200", "count direct_read 4096 800"):
        for said in ([*SAID, other], [other, *SAID]):
            got = counts.Counts.parse(said).instructions[KEY]
            assert got == min(1000, float(other.split()[-1])), got


def the_same_is_good() -> None:
    verdict = judged(baseline())
    assert not verdict.wrong and not verdict.notes, verdict


def a_doctored_baseline_fails() -> None:
    assert not judged(baseline(ours=1000 / 1.029)).wrong
    verdict = judged(baseline(ours=1000 / 1.031))
    assert len(verdict.wrong) == 1 and "3.1 % more" in verdict.wrong[0], verdict


def better_is_said_not_failed() -> None:
    verdict = judged(baseline(ours=1000 / 0.96))
    assert not verdict.wrong and len(verdict.notes) == 1 and "BASELINE=1" in verdict.notes[0], verdict


def nothing_may_vanish() -> None:
    assert counts.judge_baseline(counts.Counts(), {}).wrong, "no counts at all are good"
    assert judged({}).wrong, "counts without a baseline are good"
    before = baseline() | {("p2pmem_mmap_read", 4096): 1.0}
    assert any("absent" in line for line in judged(before).wrong), "what is absent is good"


def exact_counts_do_not_move() -> None:
    got = counts.Counts.parse(SAID)
    wanted = dict(got.exact)
    assert not counts.judge_exact(got, wanted).wrong
    for doctored in (wanted | {("direct_read.commands", 4096): 2.0}, wanted | {("direct_read.commands", 4096): 0.99},
                     wanted | {("other.merges", 4096): 0.0}, {}):
        assert counts.judge_exact(got, doctored).wrong, doctored


def limits_hold_and_break() -> None:
    got = counts.Counts.parse(SAID)
    assert not counts.judge_limit(got, counts.against_host(lab.NEWEST, "", 4 * KIB, 1.00, True)).wrong
    assert counts.judge_limit(got, counts.against_host(lab.NEWEST, "", 4 * KIB, 0.99, True)).wrong
    assert not counts.judge_limit(got, counts.growth(lab.NEWEST)).wrong
    got.instructions["direct_read", counts.MIB] = 1151
    assert counts.judge_limit(got, counts.growth(lab.NEWEST)).wrong
    assert counts.judge_limit(got, counts.against_host(lab.NEWEST, "", 64 * KIB, 1.0, True)).wrong, "what was not counted is good"


def a_card_has_its_limits() -> None:
    def far(k: str) -> counts.Counts:
        return counts.Counts(counts.read_csv(counts.HERE / f"far-{k}.csv"))

    def states(kept: counts.Counts) -> list[str]:
        return [bench.judged(kept, limit).split()[0] for limit in bench.card_limits(lab.NEWEST)]
    kept = far(lab.NEWEST)
    assert states(kept) == ["holds"] * len(counts.CARD_LIMITS)
    kept.instructions["nvme_card_direct_read", counts.MIB] *= 2
    assert states(kept) == ["holds", "BROKEN"]
    del kept.instructions["nvme_card_" + counts.REFERENCE, 4 * KIB]
    assert states(kept) == ["BROKEN", "BROKEN"], "what has nothing to be compared with is good"
    kept = far(lab.NEWEST)
    del kept.instructions["nvme_card_direct_read", counts.MIB]
    assert states(kept) == ["holds", "BROKEN"], "what was not counted is good"
    lack = lab.LACKS["nvme-rdma-p2p"]
    for k in lab.KERNELS:
        counted = {key for key in far(k).instructions if key[0].startswith("nvme_card_")}
        assert bool(bench.card_limits(k)) == bool(counted) == (k not in lack.kernels), k
    # A third kernel has them, unless it lacks that too.
    k = f"{lab.OLDEST}0"
    assert len(bench.card_limits(k)) == len(counts.CARD_LIMITS)
    with mock.patch.object(lab, "LACKS", lab.LACKS | {"nvme-rdma-p2p": replace(lack, kernels=lack.kernels | {k})}):
        assert not bench.card_limits(k)
    assert counts.reference_of("nfs_card_direct_read_all") == "nfs_card_host_odirect_read_all"


def the_median_of_boots() -> None:
    boots = [counts.Counts({KEY: value}) for value in (5.0, 1.0, 3.0)]
    assert counts.Counts.median(boots).instructions == {KEY: 3.0}


def files_come_back() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        counts.write_csv(path, "baseline", baseline())
        assert path.read_text().split("\n")[0] == "metric,size,instr_per_op"
        assert counts.read_csv(path) == baseline()
        path.write_text("metric,size,seconds\n")
        try:
            counts.read_csv(path)
        except ValueError:
            return
        raise AssertionError("another header is read")


def checked_in_baselines_suit_the_limits() -> None:
    for k in lab.KERNELS:
        kept = counts.Counts(counts.read_csv(counts.HERE / f"baseline-{k}.csv"))
        assert counts.read_csv(counts.HERE / f"exact-{k}.csv")[("direct_read.host_bytes", 4 * KIB)] == 0
        for limit in counts.limits(k):
            verdict = counts.judge_limit(kept, limit)
            assert not (limit.required and verdict.wrong) and verdict.wrong + verdict.notes, verdict
            assert "not counted" not in str(verdict), verdict


def a_kernel_without_limits_is_an_error() -> None:
    assert {limit.k for limit in counts.LIMITS} == set(lab.KERNELS), counts.LIMITS
    try:
        counts.limits("6.1")
    except ValueError as error:
        assert str(error) == "kernels.tbl has no limits for the kernel 6.1", error
        return
    raise AssertionError("6.1 has limits")


def the_page_shows_the_baselines() -> None:
    assert tables.is_current(), "tests/perf/tables.py writes them"


def another_kernel_has_its_columns() -> None:
    k, read = f"{lab.OLDEST}0", counts.read_csv

    def of_the_oldest(path: Path) -> dict[counts.Key, float]:
        return read(path.with_name(path.name.replace(k, lab.OLDEST)))
    limits = (*counts.LIMITS, *(replace(limit, k=k) for limit in counts.limits(lab.OLDEST)))
    with mock.patch.object(lab, "KERNELS", (lab.NEWEST, k, lab.OLDEST)), mock.patch.object(counts, "LIMITS", limits), \
            mock.patch.object(counts, "read_csv", of_the_oldest):
        for name, table in tables.TABLES.items():
            head, *others = table()
            assert (f" {k} |" in head) == (f" {lab.OLDEST} |" in head), (name, head)
            assert {line.count("|") for line in others} == {head.count("|")}, (name, head)
        assert f" {k} |" in tables.limits()[0] and "allocations, " + k in tables.exact()[0]


def the_plot_is_svg() -> None:
    for k in lab.KERNELS:
        values = counts.read_csv(counts.HERE / f"baseline-{k}.csv")
        root = ElementTree.fromstring(plot.svg(k, values))
        lines = [node for node in root if node.tag.endswith("polyline")]
        assert len(lines) == len(plot.lines_of(values)) > 3
        for line in lines:
            for point in line.attrib["points"].split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= plot.WIDTH and 0 <= y <= plot.HEIGHT, point


TESTS: tuple[Callable[[], None], ...] = (
    parses, the_lowest_of_two_counts, the_same_is_good, a_doctored_baseline_fails, better_is_said_not_failed, nothing_may_vanish,
    exact_counts_do_not_move, limits_hold_and_break, a_card_has_its_limits, the_median_of_boots, files_come_back,
    checked_in_baselines_suit_the_limits, a_kernel_without_limits_is_an_error, the_page_shows_the_baselines,
    another_kernel_has_its_columns, the_plot_is_svg)


if __name__ == "__main__":
    sys.exit(tap.run(TESTS))
