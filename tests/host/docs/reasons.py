#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The library's functions are the only source of the reasons' texts. Other copies are compared with them.

    reasons.py            TAP: compares Documentation/routes.md, Documentation/cufile.md and include/peerdma_cufile.h
    reasons.py --write    writes the texts in Documentation/routes.md
"""
from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("PEERDMA_BUILD") or ROOT / "build")
ROUTES, CUFILE, HEADER = (ROOT / name for name in ("Documentation/routes.md", "Documentation/cufile.md", "include/peerdma_cufile.h"))
UAPI = ROOT / "include/uapi/peerdma.h"
# Groups: number, name and errno; meaning and advice; columns that only the page has.
ROW = re.compile(r"^(\| (\d+) \| `(\w+)` \| [^|]*) \|([^|]*)\|([^|]*)\|([^|]*\|[^|]*\|)$", re.M)


def texts(library: str, function: str) -> Callable[[int], str]:
    call = getattr(ctypes.CDLL(str(BUILD / "lib" / library)), function)
    call.restype, call.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
    return lambda number: call(number).decode()


def reason_of(kind: str) -> Callable[[int], str]:
    return texts("libpeerdma.so.0", f"peerdma_reason_{kind}")


def cell(text: str) -> str:
    # Escapes Markdown's special characters.
    return " " + re.sub(r"([<>*_|])", r"\\\1", text) + " " if text else " "


def written(page: str) -> str:
    """The page with the library's texts in its table."""
    text, advice = reason_of("text"), reason_of("advice")
    return ROW.sub(lambda row: f"{row[1]} |{cell(text(int(row[2])))}|{cell(advice(int(row[2])))}|{row[6]}", page)


def the_page_of_routes_has_the_librarys_words() -> None:
    found, name = ROW.findall(ROUTES.read_text()), reason_of("name")
    numbers = re.findall(r"^\tPEERDMA_REASON_\w+ = (\d+),", UAPI.read_text(), re.M)
    assert numbers and sorted(row[1] for row in found) == sorted(numbers), {row[1] for row in found} ^ set(numbers)
    assert all(name(int(row[1])) == row[2] for row in found), found
    assert written(ROUTES.read_text()) == ROUTES.read_text(), "tests/host/docs/reasons.py --write"


def another_word_is_noticed() -> None:
    page = ROUTES.read_text()
    for kind in ("text", "advice"):
        words = (cell(reason_of(kind)(int(row[1]))) for row in ROW.findall(page))
        old = next(word for word in words if word.strip() and page.count(f"|{word}|") == 1)
        other = page.replace(f"|{old}|", "| something else |")
        assert written(other) == written(page) != other, old


def whys() -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"PEERDMA_CUFILE_WHY_(\w+) = (\d+)", HEADER.read_text())}


def libcufiles_page_and_header_have_its_words() -> None:
    text = texts("libcufile.so.0", "peerdma_cufile_why_text")
    table = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]*) \|[^|]*\|$",
                            CUFILE.read_text().partition("| `peerdma_cufile_why` |")[2].partition("\n\n")[0], re.M))
    header = dict(re.findall(r"PEERDMA_CUFILE_WHY_(\w+) = \d+,\s*/\* (.*?)(?:: @reason)? \*/", HEADER.read_text()))
    assert whys() and set(header) == set(whys()) and set(table) == set(whys()) - {"NONE"}, (header, table)
    for name, number in whys().items():
        assert header[name] == text(number), (name, header[name], text(number))
        assert table.get(name, text(number)) == text(number), (name, table[name], text(number))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        ROUTES.write_text(written(ROUTES.read_text()))
    else:
        sys.exit(tap.run([the_page_of_routes_has_the_librarys_words, another_word_is_noticed, libcufiles_page_and_header_have_its_words]))
