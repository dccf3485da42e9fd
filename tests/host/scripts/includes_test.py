#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/includes.py finds each kind of fault, and none in the tree."""
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(Path(__file__).resolve().parents[1])]
import includes  # noqa: E402
import tap  # noqa: E402


def found(files: dict[str, list[str]]) -> list[str]:
    """Its output for a tree of files with these includes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, included in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f'#include "{other}"\n' for other in included))
        return includes.faults(Path(folder))


def the_tree_has_no_fault() -> None:
    assert includes.faults(includes.USER) == []


def each_include_of_cufile_by_its_folder_is_found() -> None:
    graph = includes.read(includes.USER)
    assert "cufile/path/request.hpp" in graph["cufile/path/router.hpp"]
    assert "cufile/path/router.hpp" in graph["cufile/path/router.cpp"]


def downwards_and_beside_is_no_fault() -> None:
    assert found({"cufile/api/a.cpp": ["cufile/path/b.hpp", "cufile/api/c.hpp"], "cufile/path/b.hpp": ["../../lib/l.hpp"],
                  "cufile/api/c.hpp": ["cufile/platform/d.hpp"], "cufile/platform/d.hpp": [], "lib/l.hpp": []}) == []


def a_header_that_includes_itself_by_way_of_another_is_found() -> None:
    assert found({"lib/a.hpp": ["b.hpp"], "lib/b.hpp": ["lib/c.hpp"], "lib/c.hpp": ["a.hpp"]}) == [
        "circle of includes: lib/a.hpp -> lib/b.hpp -> lib/c.hpp -> lib/a.hpp"]


def two_units_that_include_each_other_are_found() -> None:
    assert found({"cufile/path/a.hpp": ["cufile/path/b.hpp"], "cufile/path/b.hpp": [],
                  "cufile/path/b.cpp": ["cufile/path/a.hpp", "cufile/path/b.hpp"]}) == [
        "circle of units: cufile/path/a -> cufile/path/b -> cufile/path/a"]


def an_include_upwards_is_found() -> None:
    for upper, lower in zip(includes.CUFILE, includes.CUFILE[1:]):
        assert found({f"cufile/{lower}/a.cpp": [f"cufile/{upper}/b.hpp"], f"cufile/{upper}/b.hpp": []}) == [
            f"cufile/{lower}/a.cpp includes cufile/{upper}/b.hpp: {lower} is below {upper}"]


def a_folder_without_a_layer_is_found() -> None:
    assert found({"cufile/other/a.cpp": []}) == ["cufile/other/a.cpp: no layer has the folder other"]


if __name__ == "__main__":
    sys.exit(tap.run([the_tree_has_no_fault, each_include_of_cufile_by_its_folder_is_found, downwards_and_beside_is_no_fault,
                      a_header_that_includes_itself_by_way_of_another_is_found, two_units_that_include_each_other_are_found,
                      an_include_upwards_is_found, a_folder_without_a_layer_is_found]))
