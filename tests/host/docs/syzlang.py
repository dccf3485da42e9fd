#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Documentation/peerdma.txt describes every struct, member and command of include/uapi/peerdma.h, in the same order."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]


def members(text: str, pattern: str, member: str) -> dict[str, list[str]]:
    return {name: re.findall(member, body, re.M) for name, body in re.findall(pattern, text, re.M | re.S)}


HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/uapi/peerdma.h").read_text(), flags=re.S)
SYZ = (ROOT / "Documentation/peerdma.txt").read_text()


def every_struct_has_the_members_of_the_header_in_order() -> None:
    wanted = members(HEADER, r"^struct (\w+) \{(.*?)^\};", r"(\w+)(?:\[\d+\])?;\s*$")
    got = members(SYZ, r"^(?:type )?(\w+)(?:\[ID\])? \{\n(.*?)^\}", r"^\t(\w+)")
    assert wanted and len(wanted) == len(re.findall(r"^struct \w+ \{", HEADER, re.M)) and all(wanted.values()), wanted
    for name, names in wanted.items():
        assert got.get(name) == names, f"{name}: {names} is {got.get(name)}"


def every_ioctl_and_command_is_there() -> None:
    wanted = set(re.findall(r"#define (PEERDMA_[A-Z_]+) _IO\(", HEADER))
    ops = re.search(r"^peerdma_uring_ops = (.*)$", SYZ, re.M)
    got = set(re.findall(r"cmd const\[(PEERDMA_\w+)\]", SYZ)) | set(ops[1].split(", ") if ops else ())
    assert wanted == got, wanted ^ got


if __name__ == "__main__":
    sys.exit(tap.run([every_struct_has_the_members_of_the_header_in_order, every_ioctl_and_command_is_there]))
