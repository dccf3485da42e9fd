# SPDX-License-Identifier: MIT
"""A small change of the module's source, located by its context's name, so that it survives when code moves.

    in held_look
     context that stays
    -line to remove
    +line to add

"in NAME" is a function, a struct, a table or a #define in any file of kernel/. The lines with " " and "-" must occur
in it exactly once, in succession; white space is ignored. A change may have several parts, each with its own "in".
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


class MutationError(Exception):
    pass


@dataclass
class Part:
    name: str
    lines: list[str] = field(default_factory=list)  # with " ", "-" or "+"

    @property
    def wanted(self) -> list[str]:
        return [squeeze(line[1:]) for line in self.lines if line[0] != "+"]


def squeeze(line: str) -> str:
    return " ".join(line.split())


def parse(text: str) -> list[Part]:
    parts: list[Part] = []
    for line in text.splitlines():
        if line.startswith("# ") or not line:
            continue
        if line.startswith("in "):
            parts.append(Part(line[3:].strip()))
        elif parts and line[0] in " -+":
            parts[-1].lines.append(line)
        else:
            raise MutationError(f"neither 'in NAME' nor a line of a change: {line!r}")
    if not parts or any(not part.wanted for part in parts):
        raise MutationError("a change needs a name, and at least one line that is there")
    return parts


def blocks(lines: list[str]) -> list[tuple[str, int, int]]:
    """The top-level blocks as (head, first line, line after the last)."""
    found, i = [], 0
    while i < len(lines):
        begin = i
        if lines[i].startswith("#define"):
            while lines[i].endswith("\\"):
                i += 1
            found.append((lines[begin], begin, i + 1))
        elif re.match(r"[A-Za-z_]", lines[i]):
            while i < len(lines) and not re.search(r"[{;]\s*(/\*.*\*/)?$", lines[i]):
                i += 1
            head = "\n".join(lines[begin:i + 1])
            if i < len(lines) and "{" in lines[i]:
                while i < len(lines) and not lines[i].startswith("}"):
                    i += 1
            found.append((head, begin, i + 1))
        i += 1
    return found


def is_named(head: str, name: str) -> bool:
    escaped = re.escape(name)
    if head.startswith("#define"):
        return bool(re.match(rf"#define {escaped}\b", head))
    if "{" in head and re.search(rf"\b{escaped}\(", head.split("{")[0]):
        return True
    return bool(re.search(rf"\b{escaped}(\[\w*\])?\s*(=|\{{)", head) or re.search(rf"\b{escaped}\);$", head)
                or re.search(rf"^static .*\b{escaped};", head))


def places(lines: list[str], part: Part) -> list[int]:
    wanted = part.wanted
    squeezed = [squeeze(line) for line in lines]
    return [at for head, begin, end in blocks(lines) if is_named(head, part.name)
            for at in range(begin, end - len(wanted) + 1) if squeezed[at:at + len(wanted)] == wanted]


def change(lines: list[str], at: int, part: Part) -> list[str]:
    out = lines[:at]
    for line in part.lines:
        if line[0] == "+":
            out.append(line[1:])
        else:
            if line[0] == " ":
                out.append(lines[at])
            at += 1
    return out + lines[at:]


def apply(text: str, tree: Path, dry: bool = False) -> list[Path]:
    """Applies the change if each part matches in exactly one place. Returns the changed files."""
    changed: dict[Path, list[str]] = {}
    sources = {path: path.read_text().splitlines() for path in sorted((tree / "kernel").rglob("*.[ch]"))}
    for part in parse(text):
        found = [(path, at) for path, lines in sources.items() for at in places(changed.get(path, lines), part)]
        if len(found) != 1:
            raise MutationError(f"in {part.name}: {len(found)} places have these lines, and one must")
        path, at = found[0]
        changed[path] = change(changed.get(path, sources[path]), at, part)
    for path, lines in changed.items():
        if not dry:
            path.write_text("\n".join(lines) + "\n")
    return list(changed)
