#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The table of errors in Documentation/cufile.md lists each number of include/cufile.h, and the tests it names
expect them."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]

HEADER = (ROOT / "include/cufile.h").read_text()
ENUM = re.search(r"typedef enum CUfileOpError \{(.*?)\}", HEADER, re.S)
CODES = {name: int(number) for name, number in re.findall(r"CU_FILE_(\w+) = (\d+)", ENUM[1] if ENUM else "")}
SOURCE = "".join(path.read_text() for path in sorted((ROOT / "user/cufile").rglob("*.[ch]pp")))
# "Fixture.Test": its body, up to the brace in the first column
TESTS = {f"{fixture}.{name}": body for path in sorted((ROOT / "tests/host/cufile").rglob("*.cpp")) for fixture, name, body in
         re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)\n\{\n(.*?)^\}", path.read_text(), re.M | re.S)}


def section() -> str:
    text = (ROOT / "Documentation/cufile.md").read_text()
    return text.partition("\n## Errors\n")[2].partition("\n## ")[0]


# [(number, name, when, tests)]
ROWS = [(int(number), name, when, re.findall(r"`([^`]+)`", tests)) for number, name, when, tests in
        re.findall(r"^\| (\d+) \| `(\w+)` \|(.*)\|([^|]*)\|$", section(), re.M)]


def the_table_has_each_error_of_the_header_once_and_in_order() -> None:
    assert CODES and ENUM and len(CODES) == len(re.findall(r"^\tCU_FILE_\w+", ENUM[1], re.M)), CODES
    assert [(name, number) for number, name, _, _ in ROWS] == list(CODES.items()), \
        set(CODES.items()) ^ {(name, number) for number, name, _, _ in ROWS}


def each_has_a_test_or_a_reason_why_it_is_never_returned() -> None:
    for number, _, when, tests in ROWS:
        never = when.strip().startswith("never: ") and len(when.strip()) > len("never: ")
        assert never != bool(tests), number


def the_tests_are_there_and_expect_it() -> None:
    for number, name, _, tests in ROWS:
        for test in tests:
            assert test in TESTS, f"{number}: there is no {test}"
            assert re.search(rf"\b(?:{number}|CU_FILE_{name})\b", TESTS[test]), f"{test} does not speak of {number}"


def what_is_never_returned_is_not_in_the_source_and_what_is_returned_is() -> None:
    for number, name, when, _ in ROWS:
        there = re.search(rf"\bCU_FILE_{name}\b", SOURCE) is not None
        assert there != when.strip().startswith("never"), f"{number}: CU_FILE_{name}"


if __name__ == "__main__":
    sys.exit(tap.run([the_table_has_each_error_of_the_header_once_and_in_order,
                      each_has_a_test_or_a_reason_why_it_is_never_returned, the_tests_are_there_and_expect_it,
                      what_is_never_returned_is_not_in_the_source_and_what_is_returned_is]))
