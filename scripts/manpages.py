#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""manpages.py FOLDER: writes the manual pages to FOLDER: one for each function of the headers, made from its comment and its
prototype, and those of Documentation/man.

A function's comment has this form. The parts stand in this order; a function without parameters or without a result lacks them.

    name - what it does, without a full stop
    @param: text; several names with the same text are separated by commas
    @other: as name_of_function()              takes the text from that function's comment

    Paragraphs.

    Return: text.
      -EINVAL text, one error a line           likewise "-EINVAL as name_of_function()"
    Example:
      code, indented by two spaces
    Since 0.1. Source: what it is made of.

"Return: as name_of_function()." takes the errors too. A page also describes the structs of the prototype, the enums that the text
names, and the flags that a parameter or a member names.

A page of Documentation/man may have the lines
    .\\" doc: HEADER           the DOC: sections of a header
    .\\" functions: NAME...    a list of functions with what they do; * matches any name
The overview page of a header lists each of its functions once. Its date and its LIBRARY are those of the functions' pages.
A comment that lacks something is a failure.
"""
from __future__ import annotations

import errno
import re
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from comments import Comment, comments

ROOT = Path(__file__).resolve().parent.parent
OVERVIEWS = {"peerdma.h": "peerdma.3", "peerdma_cufile.h": "peerdma_cufile.3", "peerdma_verbs.h": "peerdma_verbs.3"}
UAPI = "uapi/peerdma.h"
LONG = 12  # an enum with more enumerators is described only by the page of the function that names its values
ERRNOS = {name for name in dir(errno) if name.startswith("E")}
VARIABLES = ("PEERDMA_DEVICE",)


class Fault(Exception):
    pass


# --- Text to mdoc ----------------------------------------------------------------------------------

def plain(text: str) -> str:
    """Text with what roff would interpret escaped."""
    text = text.replace("\\", "\\e").replace("^", "\\(ha").replace("~", "\\(ti")
    text = re.sub(r"(?<![\w-])-(?=[\w-])|(?<= )-(?= )", r"\\-", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def macro_of(word: str, own: str, pages: set[str]) -> str:
    """The mdoc macro for a word, empty for plain text."""
    if found := re.fullmatch(r"@(\w+(?:->\w+)?)", word):
        return f"Fa {found[1]}"
    if re.fullmatch(r"\w+->\w+", word):
        return f"Fa {word}"
    if found := re.fullmatch(r"([\w.-]+)\((\d)\)", word):
        return f"Xr {found[1]} {found[2]}"
    if found := re.fullmatch(r"(\w+)\(\)", word):
        return f"Xr {found[1]} 3" if found[1] in pages and found[1] != own else f"Fn {found[1]}"
    if found := re.fullmatch(r"(-?)(E[A-Z0-9]+)", word):
        return f"Er {plain(word)}" if found[2] in ERRNOS else ""
    if word in VARIABLES:
        return f"Ev {word}"
    if re.fullmatch(r"NULL|SIG[A-Z]+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?:_[A-Z0-9]+|_\*)", word):
        return f"Dv {word}"
    if found := re.fullmatch(r"(struct|enum)\x01(\w+)", word):
        return f"Vt {found[1]} {found[2]}"
    if re.fullmatch(r"/(?:dev|etc|proc|sys)(?:/[\w.-]+)*|Documentation/[\w./-]+|(?:\w+/)*\w+\.hp?p?", word):
        return f"Pa {word}"
    return ""


def mdoc(text: str, own: str = "", pages: set[str] = set()) -> list[str]:
    """The lines of a paragraph. A sentence begins on a line of its own."""
    lines: list[str] = []
    line = ""

    def flush() -> None:
        nonlocal line
        if line:
            lines.append(plain(line))
        line = ""

    words = re.sub(r"\b(struct|enum) (?=peerdma_\w|CU\w|ibv_)", "\\1\x01", text).split()
    for at, word in enumerate(words):
        opening, core, possessive, closing = re.fullmatch(r"([(\[]*)(.*?)('s)?([,.;:)\]?!]*)", word).groups("")  # type: ignore[union-attr]
        if core.count("(") > core.count(")") and closing.startswith(")"):
            core, closing = core + ")", closing[1:]
        macro = macro_of(core, own, pages)
        if macro:
            flush()
            possessive = " Ns 's" if possessive else ""
            lines.append(" ".join(["." + macro.split()[0], *opening, *macro.split()[1:]]) + possessive
                         + "".join(f" {char}" for char in closing))
        else:
            word = word.replace("\x01", " ")
            if len(line) + 1 + len(word) > 78:
                flush()
            line += (" " if line else "") + word
            follows = words[at + 1] if at + 1 < len(words) else ""
            if re.search(r"[.?!]\)?$", word) and re.match(r"[\W]*[A-Z@]|[\w]+\(", follows):
                flush()
    flush()
    return lines


def paragraphs(text: str, own: str, pages: set[str]) -> list[str]:
    """The lines of several paragraphs; a line that is indented by two spaces is literal."""
    lines: list[str] = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines += [".Pp"] if lines else []
        if warning := re.match(r"WARNING: ", part):
            lines += [".Sy Warning :"]
            part = part[warning.end():]
        lines += mdoc(part, own, pages)
    return lines


# --- Comments --------------------------------------------------------------------------------------

@dataclass
class Described:
    """A comment's parts."""
    comment: Comment
    header: str
    params: dict[str, str] = field(default_factory=dict)
    text: str = ""
    result: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    example: str = ""
    since: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        return self.comment.name

    def fault(self, text: str) -> Fault:
        return Fault(f"{self.comment.place}: {self.name}: {text}")


def parse(comment: Comment, header: str) -> Described:
    made = Described(comment, header)
    part, names, prose = "text", [], []
    for line in comment.body.splitlines():
        if found := re.match(r"@[\w., @]+?:(?= )", line):
            part = "param"
            for entry in re.split(r"\s{2,}(?=@[\w.]+(?:, @[\w.]+)*: )", line):
                heads, _, text = entry.partition(": ")
                names = re.findall(r"@([\w.]+)", heads)
                made.params |= {name: text for name in names}
        elif found := re.match(r"Return: (.*)", line):
            part, made.result = "result", found[1]
        elif line == "Example:":
            part = "example"
        elif found := re.match(r"Since ([\d.]+\d)\.(?: Source: )?(.*)", line):
            part, made.since, made.source = "source", found[1], found[2]
        elif part in ("result", "error") and (found := re.match(r"  ((?:-E\w+(?:, )?)+) (.+)", line)):
            part, names = "error", re.findall(r"E\w+", found[1])
            made.errors |= {name: found[2] for name in names}
        elif part == "param" and line.startswith("  "):
            made.params |= {name: f"{made.params[name]} {line.strip()}" for name in names}
        elif part == "error" and line.startswith("  "):
            made.errors |= {name: f"{made.errors[name]} {line.strip()}" for name in names}
        elif part == "result" and line.startswith("  "):
            made.result += f" {line.strip()}"
        elif part == "example" and (line.startswith("  ") or not line):
            made.example += line[2:] + "\n"
        elif part == "source":
            made.source += f" {line.strip()}"
        elif not line.strip() or part == "text":
            part = "text"
            prose.append(line)
        elif part == "param" or (part in ("result", "error", "example") and line.strip()):
            raise made.fault(f"cannot place the line {line!r}")
    made.text = "\n".join(prose).strip("\n")
    for errors in made.errors.values():
        if re.search(r"\s{2,}-E", errors):
            raise made.fault("one error a line")
    return made


@dataclass
class Headers:
    functions: dict[str, Described]
    structs: dict[str, Described]
    enums: dict[str, Comment]
    flags: dict[str, Described]
    docs: dict[str, list[Comment]]

    @classmethod
    def read(cls, root: Path) -> Headers:
        made = cls({}, {}, {}, {}, {})
        for header in (*OVERVIEWS, UAPI):
            made.docs[header] = []
            for comment in comments(root, Path("include") / header):
                if comment.kind == "doc":
                    made.docs[header].append(comment)
                elif comment.kind == "enum":
                    made.enums[comment.name] = comment
                elif header == UAPI:
                    continue
                elif comment.kind == "function":
                    made.functions[comment.name] = parse(comment, header)
                elif comment.kind == "struct" and "{" in comment.declaration:
                    made.structs[comment.name] = parse(comment, header)
                elif comment.kind == "define":
                    made.flags[comment.name] = parse(comment, header)
        for one in made.functions.values():
            made.complete(one)
        return made

    def other(self, one: Described, text: str) -> Described | None:
        """The function that "as NAME()" refers to, complete."""
        found = re.fullmatch(r"as (\w+)\(\)\.?", text)
        if not found:
            return None
        if found[1] not in self.functions or found[1] == one.name:
            raise one.fault(f"no other function {found[1]}()")
        self.complete(self.functions[found[1]])
        return self.functions[found[1]]

    def complete(self, one: Described) -> None:
        """Replaces "as NAME()" by what that function's comment says, and checks that nothing is missing."""
        for name, text in one.params.items():
            if other := self.other(one, text):
                if name not in other.params:
                    raise one.fault(f"{other.name}() does not describe @{name}")
                one.params[name] = other.params[name]
        if other := self.other(one, one.result):
            one.result = other.result
            one.errors = other.errors | one.errors
        for name, text in one.errors.items():
            if other := self.other(one, text):
                if name not in other.errors:
                    raise one.fault(f"{other.name}() does not describe -{name}")
                one.errors[name] = other.errors[name]
        for name in one.comment.members():
            if name not in one.params:
                raise one.fault(f"does not describe @{name}")
        if not one.text:
            raise one.fault("no paragraph says what it does")
        if not one.since:
            raise one.fault('no "Since"')
        if not one.result and not re.match(r"(?:PEERDMA_API )?void [^*]", one.comment.declaration):
            raise one.fault('no "Return"')
        for name in one.errors:
            if name not in ERRNOS:
                raise one.fault(f"-{name} is not an errno")


def enumerators(comment: Comment) -> list[tuple[str, str]]:
    """(name, text); a comment on a line of its own is ("", text)."""
    return [(name, " ".join(text.split())) for name, text in
            re.findall(r"^\t(?:(\w+) = \d+,\s*)?/\* (.*?) \*/$", comment.declaration, re.M | re.S)]


def groups(values: list[tuple[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """(title, enumerators): as the comments on lines of their own divide them."""
    made: list[tuple[str, dict[str, str]]] = [("", {})]
    for name, text in values:
        if name:
            made[-1][1][name] = text
        else:
            made.append((text, {}))
    return [group for group in made if group[1]]


# --- Pages -----------------------------------------------------------------------------------------

def sentence(text: str) -> str:
    """As a sentence of its own."""
    text = text[0].upper() + text[1:] if re.match(r"(?!enum |struct |len |bus )[a-z]+(?:[ ,;:]|$)", text) else text
    return text if text.endswith((".", "?", "!")) else text + "."


def prototype(declaration: str) -> tuple[str, list[str]]:
    """(type, parameters)"""
    flat = " ".join(declaration.replace("PEERDMA_API ", "").split())
    found = re.fullmatch(r"(.*?)(\w+)\((.*)\);", flat)
    assert found, declaration
    return found[1].strip(), [part.strip() for part in found[3].split(",")]


def overview_part(text: str, name: str) -> str:
    found = re.search(rf"^\.Sh {name}\n(.*?)(?=^\.Sh |^\.Pp$)", text, re.M | re.S)
    return found[1].strip() if found else ""


class Page:
    """The page of a function."""

    def __init__(self, headers: Headers, one: Described, overview: str) -> None:
        self.headers, self.one = headers, one
        self.pages = set(headers.functions)
        overview_name = OVERVIEWS[one.header]
        date = re.search(r"^\.Dd .*$", overview, re.M)
        if not date:
            raise Fault(f"{overview_name} has no date")
        library = overview_part(overview, "LIBRARY")
        kind, parameters = prototype(one.comment.declaration)
        self.lines = ['.\\" SPDX-License-Identifier: MIT', f'.\\" Made by scripts/manpages.py from include/{one.header}', date[0],
                      f".Dt {one.name.upper()} 3", ".Os", ".Sh NAME", f".Nm {one.name}", f".Nd {plain(one.comment.brief.replace('@', ''))}",
                      ".Sh LIBRARY", library, ".Sh SYNOPSIS", f".In {one.header}", f'.Ft "{kind}"' if " " in kind else f".Ft {kind}",
                      f".Fo {one.name}", *(f'.Fa "{part}"' for part in parameters), ".Fc", ".Sh DESCRIPTION"]
        self.lines += self.text(one.text)
        if one.params:
            self.lines += [".Pp", "The parameters are:"]
            self.tagged({f'Fa "{name}"': text for name, text in one.params.items()})
        values = list(one.params.values())
        for struct in [found for part in parameters if (found := re.sub(r"^(?:const )?(struct \w+) \*+\w+$", r"\1", part))]:
            if known := headers.structs.get(struct.removeprefix("struct ")):
                values += self.struct(known)
        self.constants(values)
        self.enums([one.text, one.result, *values, *one.errors.values()])
        if one.result:
            self.lines += [".Sh RETURN VALUES", *self.text(sentence(one.result))]
        if one.example:
            self.lines += [".Sh EXAMPLES", '.\\" compiled', ".Bd -literal -offset indent",
                           *(plain_code(line) for line in one.example.rstrip("\n").split("\n")), ".Ed"]
        if one.result and (one.errors or kind != "const char *"):
            self.errors()
        self.see_also(overview_name)
        self.lines += [".Sh HISTORY", f".Fn {one.name}", f"appeared in PeerDMA {one.since}."]

    def text(self, text: str) -> list[str]:
        return paragraphs(text, self.one.name, self.pages)

    def tagged(self, entries: dict[str, str], width: str = "Ds") -> None:
        self.lines.append(f".Bl -tag -width {width}")
        for tag, text in entries.items():
            self.lines += [f".It {tag}", *self.text(sentence(text))]
        self.lines.append(".El")

    def struct(self, known: Described) -> list[str]:
        declared = {}
        code = known.comment.declaration
        for line in re.findall(r"^\t([^;\n]+);", code, re.M):
            name = re.search(r"(\w+)(?:\[\w+\])?$", line)
            assert name, line
            declared[name[1]] = line
        self.lines += [f".Ss struct {known.name}", *self.text(sentence(known.comment.brief))]
        self.tagged({f'Fa "{declared[name]}"': text for name, text in known.params.items() if name not in ("reserved", "reserved2")})
        if known.text:
            self.lines += [".Pp", *self.text(known.text)]
        return [known.text, *known.params.values()]

    def constants(self, values: list[str]) -> None:
        """The flags and other constants that a parameter or a member may have."""
        words = set(re.findall(r"\bPEERDMA_(?:\w+_\*|\w+)", " ".join(values)))
        named = [flag for name, flag in self.headers.flags.items() if any(fnmatchcase(name, word) for word in words)]
        if named:
            self.lines.append(".Ss Constants")
            self.tagged({f"Dv {flag.name}": "\n\n".join(filter(None, (sentence(flag.comment.brief), flag.text))) for flag in named})

    def enums(self, said: list[str]) -> None:
        """The enums that the text names, unless they are long and the page is another function's."""
        for name in dict.fromkeys(re.findall(r"\benum (\w+)", " ".join(said))):
            known = self.headers.enums.get(name)
            if not known:
                continue
            values = enumerators(known)
            if len(values) > LONG and self.one.name != f"{name}_name":
                continue
            self.lines += [f".Ss enum {name}", *self.text(sentence(known.brief))]
            for title, group in groups(values):
                self.lines += [".Pp", *self.text(sentence(title))] if title else []
                self.tagged({f"Dv {value}": text for value, text in group.items()})
            self.lines += [".Pp", *self.text(known.body)] if known.body else []

    def errors(self) -> None:
        self.lines.append(".Sh ERRORS")
        if self.one.errors:
            same: dict[str, list[str]] = {}
            for name, text in self.one.errors.items():
                same.setdefault(text, []).append(name)
            self.tagged({"Bq Er " + " , ".join(names): text for text, names in same.items()}, "Er")
            self.lines.append(".Pp")
        self.lines += ["Errors that every function may return are in", f".Xr {OVERVIEWS[self.one.header].partition('.')[0]} 3 ."]

    def see_also(self, overview: str) -> None:
        said = "\n".join(self.lines)
        pages = {(number, name) for name, number in re.findall(r"^\.Xr (\S+) (\d)", said, re.M)}
        pages |= {(number, name) for name, number in re.findall(r"([\w-]+)\((\d)\)", self.one.source)}
        pages |= {("3", name) for name in re.findall(r"(\w+)\(\)", self.one.source) if name in self.pages}
        pages.add(("3", overview.partition(".")[0]))
        family = "_".join(self.one.name.split("_")[:2])
        pages |= {("3", name) for name in self.pages if name == family or name.startswith(family + "_")}
        if "enum peerdma_reason" in said or ".Vt enum peerdma_reason" in said:
            pages.add(("3", "peerdma_reason_name"))
        pages.discard(("3", self.one.name))
        entries = sorted(pages)
        self.lines.append(".Sh SEE ALSO")
        self.lines += [f".Xr {name} {number}" + (" ," if at < len(entries) else "") for at, (number, name) in enumerate(entries, 1)]

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def plain_code(line: str) -> str:
    line = line.replace("\\", "\\e")
    return "\\&" + line if line.startswith((".", "'")) else line


def filled(name: str, text: str, headers: Headers) -> str:
    """A page of Documentation/man with its lists filled in."""
    listed: list[str] = []
    pages = set(headers.functions)

    def doc(found: re.Match[str]) -> str:
        lines: list[str] = []
        for number, comment in enumerate(headers.docs[found[1]]):
            lines += ([f".Ss {comment.brief}"] if number else []) + paragraphs(comment.body, "", pages)
        return "\n".join(lines)

    def functions(found: re.Match[str]) -> str:
        lines = [".Bl -tag -width Ds"]
        for pattern in found[1].split():
            names = [one for one in headers.functions if fnmatchcase(one, pattern)]
            if not names:
                raise Fault(f"{name}: no function is {pattern}")
            for one in names:
                listed.append(one)
                lines += [f".It Xr {one} 3", *mdoc(sentence(headers.functions[one].comment.brief), "", pages)]
        return "\n".join([*lines, ".El"])

    text = re.sub(r'^\.\\" doc: (\S+)$', doc, text, flags=re.M)
    text = re.sub(r'^\.\\" functions: (.*)$', functions, text, flags=re.M)
    wanted = [one.name for one in headers.functions.values() if OVERVIEWS[one.header] == name]
    if sorted(wanted) != sorted(listed):
        raise Fault(f"{name} does not list each function once: {sorted(set(wanted) ^ set(listed)) or 'one of them twice'}")
    return text


def manual(root: Path = ROOT) -> dict[str, str]:
    """All pages, by name."""
    headers = Headers.read(root)
    written = {path.name: path.read_text() for path in sorted((root / "Documentation/man").glob("*.[1-8]"))}
    made = {f"{one.name}.3": str(Page(headers, one, written[OVERVIEWS[one.header]])) for one in headers.functions.values()}
    if both := set(made) & set(written):
        raise Fault(f"Documentation/man has {', '.join(sorted(both))}, which {Path(__file__).name} makes")
    return dict(sorted((made | {name: filled(name, text, headers) for name, text in written.items()}).items()))


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Writes them; removes pages that are no longer made."""
    pages = manual(root)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.[1-8]"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text)
    return [folder / name for name in pages]


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        write(Path(sys.argv[1]))
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
