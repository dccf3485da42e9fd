#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/layers.py finds dependencies on higher layers, and cycles."""
from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "scripts"), str(Path(__file__).resolve().parents[1])]
import layers  # noqa: E402
import tap  # noqa: E402


def breaches(**sources: str) -> list[str]:
    """Its output for files given as LAYER_NAME=C."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            layer, _, stem = name.partition("_")
            (Path(folder) / layer).mkdir(exist_ok=True)
            subprocess.run(["cc", "-c", "-xc", "-", "-o", f"{folder}/{layer}/{stem}.o"], input=text, text=True, check=True)
        edges = layers.graph(Path(folder))
        return layers.upwards(edges) + layers.circles(edges)


def a_layer_may_need_those_before_it() -> None:
    assert not breaches(base_ids="int ids(void) { return 1; }", io_io="int ids(void); int io(void) { return ids(); }",
                        memory_mem="int ids(void); int mem(void) { return ids(); }")


def one_that_needs_a_layer_above_is_named() -> None:
    found = breaches(base_ids="int io(void); int ids(void) { return io(); }", io_io="int io(void) { return 1; }")
    assert found == ["base/ids needs io/io, of a layer above: io"], found


def a_circle_is_named_whatever_its_length() -> None:
    found = breaches(memory_a="int b(void); int a(void) { return b(); }", memory_b="int c(void); int b(void) { return c(); }",
                     memory_c="int a(void); int c(void) { return a(); }", memory_d="int a(void); int d(void) { return a(); }")
    assert found == ["a circle: memory/a memory/b memory/c"], found


def data_counts_as_well() -> None:
    found = breaches(base_a="extern int table; int a(void) { return table; }", face_op="int a(void); int table = 1;")
    assert found == ["base/a needs face/op, of a layer above: table"], found


def a_header_of_a_layer_above_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"base/a.h": "", "io/io.h": "", "base/b.c": '#include <linux/fs.h>\n#include "io/io.h"\n',
                           "io/c.c": '#include "base/a.h"\n', "compat/d.h": '#include "io/io.h"\n'}.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_text(text)
        found = layers.includes_upwards(Path(folder))
    assert found == ["base/b.c includes io/io.h, of a layer above"], found
    assert not layers.includes_upwards(layers.KERNEL)


def an_exception_is_left_out() -> None:
    layers.ALLOWED["base/ids", "io/io"] = "for this test"
    try:
        assert not breaches(base_ids="int io(void); int ids(void) { return io(); }", io_io="int io(void) { return 1; }")
    finally:
        layers.ALLOWED.clear()


if __name__ == "__main__":
    sys.exit(tap.run([
        a_layer_may_need_those_before_it, one_that_needs_a_layer_above_is_named, a_circle_is_named_whatever_its_length,
        data_counts_as_well, a_header_of_a_layer_above_is_named, an_exception_is_left_out]))
