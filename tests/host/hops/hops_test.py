#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# tier: all
"""A cuFileRead() enters no more files of user/cufile than scripts/hops.py allows, and hops.py tells bodies from
accessors."""
from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/host")]
import hops  # noqa: E402
import tap  # noqa: E402


def one_statement_is_no_body() -> None:
    for text in ("int fd() const { return fd_; }", "Lease(State &s) : a(s), b(s)\n{\n}", "void f()\n{\n\tother.f(1);\n}",
                 'int f() { return g("; if"); // and; if\n}'):
        assert not hops.has_a_body(text), text


def more_is_a_body() -> None:
    for text in ("void f()\n{\n\ta();\n\tb();\n}", "void f()\n{\n\tif (a)\n\t\tb();\n}", "int f() { for (;;) ; }"):
        assert hops.has_a_body(text), text


def each_read_is_within_its_limit() -> None:
    for read, limit in hops.LIMITS.items():
        files = hops.entered(*read)
        assert "api/cufile_api.cpp" in files and "path/router.cpp" in files, files
        assert len(files) <= limit, f"{' '.join(read)}: {sorted(files)}, limit {limit}"


if __name__ == "__main__":
    sys.exit(tap.run([one_statement_is_no_body, more_is_a_body, each_read_is_within_its_limit]))
