# SPDX-License-Identifier: MIT
"""The comments of the headers and of the module that begin with two stars, for docs.py and manpages.py."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator


@dataclass
class Comment:
    """A comment that begins with two stars, and the declaration after it."""
    place: str
    name: str     # of the declared object; empty for a DOC: section
    kind: str     # struct, enum, function, define or doc
    brief: str
    body: str
    declaration: str

    def described(self) -> list[str]:
        names = re.findall(r"(?:^|(?<=\s\s))((?:@[\w.]+(?:, )?)+):", self.body, re.M)
        return [name for group in names for name in re.findall(r"@([\w.]+)", group)]

    def members(self) -> list[str]:
        """The names to describe: parameters, members, enumerators without a comment of their own."""
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", self.declaration, flags=re.S)
        if self.kind == "function":
            inner = code[code.index("(") + 1:code.rindex(")")]
            return [name for part in inner.split(",") if part.strip() not in ("", "void") and (name := member_of(part))]
        if self.kind == "struct" and "{" in code:
            return [name for part in re.sub(r"\{[^{}]*\}", "", code[code.index("{") + 1:code.rindex("}")]).split(";")
                    if (name := member_of(part))]
        if self.kind == "enum" and "{" in code:
            return [found[1] for line in self.declaration.splitlines()[1:]
                    if (found := re.match(r"\s*([A-Z]\w+)\b(?! *\()", line)) and "/*" not in line]
        return []


def member_of(declaration: str) -> str:
    """The name that a struct member declares, without its semicolon."""
    if found := re.search(r"\(\*(?:const )?(\w+)\)\(", declaration):
        return found[1]
    plain = re.sub(r"\s=.*|\s:\s.*|\[[^\]]*\]|\b__\w+\([^)]*\)|\b____\w+", "", declaration, flags=re.S)
    found = re.search(r"(\w+)\s*$", plain)
    return found[1] if found else ""


def declaration_of(code: str) -> str:
    """The declaration after a comment."""
    if code.startswith("#define"):
        return re.match(r"(?:[^\n]*\\\n)*[^\n]*", code)[0]  # type: ignore[index]
    depth = 0
    for at, char in enumerate(code):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(char, 0)
        if depth == 0 and char == ";":
            return code[:at + 1]
        if char == "{" and depth == 1 and re.match(r"[^{;=]*\)\s*(?:const\s*)?\{", code[:at + 1], re.S):
            return code[:at].rstrip()  # without a function's body
    return code.split("\n\n")[0]


def comments(root: Path, path: Path) -> Iterator[Comment]:
    text = (root / path).read_text()
    for found in re.finditer(r"/\*\*(?!\*)(.*?)\*/[ \t]*\n?", text, re.S):
        lines = [re.sub(r"^[ \t]*\* ?", "", line) for line in found[1].strip("\n").splitlines()]
        whole = "\n".join(lines).strip()
        place = f"{path}:{text.count(chr(10), 0, found.start()) + 1}"
        if title := re.match(r"DOC: (.*)", whole):
            yield Comment(place, "", "doc", title[1], whole[title.end():].strip("\n"), "")
            continue
        head = re.match(r"((?:struct|enum|union|class) )?(~?[\w:]+)(?:\(\))? - ", whole)
        if not head:
            # A C++ comment beside its declaration needs no name of its own.
            code = declaration_of(text[found.end():].lstrip())
            name = re.search(r"(\w+)\s*(?:\(|;|=|$)", code) if path.suffix == ".hpp" else None
            yield Comment(place, name[1] if name else "", "object" if name else "", whole, "", code)
            continue
        # The brief ends before a blank line, a parameter, Return or Since.
        rest = whole[head.end():].splitlines()
        end = next((at for at, line in enumerate(rest) if at and (not line.strip() or line.startswith(("@", "Return", "Since")))), len(rest))
        declaration = declaration_of(text[found.end():].lstrip())
        kind = head[1].strip() if head[1] else "define" if declaration.startswith("#define") else "function"
        if kind == "function" and "(" not in declaration.split("=")[0]:
            kind = "object"
        yield Comment(place, head[2], kind, " ".join(line.strip() for line in rest[:end]), "\n".join(rest[end:]).strip("\n"),
                      declaration)


def faults_of(comment: Comment) -> list[str]:
    """The faults of a comment."""
    if not comment.kind:
        return [f"{comment.place}: a comment with two stars that is not \"name - what it is\""]
    if comment.kind == "doc":
        return []
    faults = []
    if not re.search(rf"\b{re.escape(comment.name.split('::')[-1])}\b", comment.declaration):
        faults.append(f"{comment.place}: {comment.name} is not what follows")
    described, members = comment.described(), comment.members()
    faults += [f"{comment.place}: {comment.name} has no @{name}" for name in described
               if name not in members and not (comment.kind == "enum" and re.search(rf"\b{name}\b", comment.declaration))]
    # Names inside the module may explain themselves; the public interface must be described completely.
    if comment.place.startswith("include/") and comment.kind in ("struct", "function", "enum"):
        prose = comment.brief + comment.body
        faults += [f"{comment.place}: {comment.name} does not describe @{name}" for name in members
                   if name not in described and f"@{name}" not in prose and not comment.place.startswith("include/cufile.h")]
    return faults
