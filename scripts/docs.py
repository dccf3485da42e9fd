#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""make docs: the documentation as HTML, in build/docs.

pandoc converts pages, mandoc manual pages and dot pictures; this script converts the comments of the headers and of
the module. A warning of any of them, a comment that does not match its declaration and a broken link are failures.
tests/host/docs_test.py and tests/guest/docs.sh use the same parser for blocks, headings and links.
"""
from __future__ import annotations

import argparse
import html
import html.parser
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parent.parent
PICTURE = "Documentation/how.dot"
TEXT = ("*.md", "Documentation/**/*.md", "tests/*/*.md")
HEADERS = ("include/*.h", "include/*.hpp", "include/uapi/*.h", "kernel/**/*.[ch]")
CHAPTERS = ("Pages", "Manual pages", "Headers", "The module's source")
MANUAL = ("Documentation/man/*.[1-8]", "scripts/debian/*.1")


# --- Pages -----------------------------------------------------------------------------------------

@dataclass
class Block:
    """A fenced block with its contents and the comment before it, which tells how it is tested."""
    page: Path
    line: int
    language: str
    tag: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass
class Page:
    path: Path  # relative to the root
    text: str

    @property
    def title(self) -> str:
        found = re.search(r"^# (.+)$", self.text, re.M)
        return found[1] if found else str(self.path)

    @property
    def prose(self) -> str:
        """The page without its blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.M | re.S)

    def headings(self) -> list[str]:
        return re.findall(r"^#+ (.+?)\s*$", self.prose, re.M)

    def links(self) -> list[tuple[str, str]]:
        """(text, target), including pictures."""
        return re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", self.prose)

    def blocks(self) -> Iterator[Block]:
        lines = self.text.splitlines()
        start, tag = None, ""
        for number, line in enumerate(lines, 1):
            if not line.startswith("```"):
                continue
            if start is None:
                before = lines[number - 2] if number > 1 else ""
                found = re.fullmatch(r"<!-- (.+) -->", before)
                start, tag = number, found[1] if found else ""
                continue
            yield Block(self.path, start, lines[start - 1][3:].strip(), tag, "\n".join(lines[start:number - 1]) + "\n")
            start = None


def files(root: Path, *globs: str) -> list[Path]:
    """Relative to the root."""
    return sorted({path.relative_to(root) for glob in globs for path in root.glob(glob)})


def pages(root: Path = ROOT) -> list[Page]:
    """README.md and the files beside it first."""
    return [Page(path, (root / path).read_text()) for path in sorted(files(root, *TEXT), key=lambda path: (len(path.parts), path))]


# --- Comments of the source ------------------------------------------------------------------------

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


# --- HTML ------------------------------------------------------------------------------------------

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 64em; margin: 0 auto; padding: 1em 2em 4em; color: #222; background: #fff; }
nav { border-bottom: 1px solid #ccc; padding-bottom: .5em; margin-bottom: 1em; font-size: 90%; }
pre { background: #f4f4f4; padding: .7em; overflow-x: auto; line-height: 1.3; }
code { background: #f4f4f4; } pre code { background: none; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #ccc; padding: .25em .6em; text-align: left; vertical-align: top; }
section { border-top: 1px solid #ccc; margin-top: 1.5em; } img { max-width: 100%; } h2 code { font-weight: normal; }
"""


def document(path: Path, title: str, body: str) -> str:
    up = "../" * (len(path.parts) - 1)
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{html.escape(title)} - PeerDMA</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="{up}style.css"></head>
<body><nav><a href="{up}index.html">PeerDMA</a></nav>
{body}
</body></html>
"""


def tool(*command: str, given: str | None = None) -> str:
    """The output of a tool; any message of it is a failure."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"error: {' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout


class Site:
    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.titles: dict[str, list[tuple[str, Path]]] = {}

    def write(self, path: Path, title: str, body: str, chapter: str = "") -> None:
        if chapter:
            self.titles.setdefault(chapter, []).append((title, path))
        (self.out / path).parent.mkdir(parents=True, exist_ok=True)
        (self.out / path).write_text(document(path, title, body))

    def relink(self, page: Path, body: str) -> str:
        """Links to pages and headers lead to their HTML; other files of the tree are copied."""
        def changed(found: re.Match[str]) -> str:
            target, _, anchor = html.unescape(found[2]).partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return found[0]
            there = Path(os.path.normpath(page.parent / target))
            if (self.root / there).is_dir():
                there, target = there / "README.md", target.rstrip("/") + "/README.md"
            if there.suffix == ".md":
                target = target[:-3] + ".html"
            elif (self.out / f"{there}.html").is_file():
                target += ".html"
            elif there.parts[0] != ".." and (self.root / there).is_file():
                (self.out / there).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / there, self.out / there)
            return f'{found[1]}="{html.escape(target + ("#" + anchor if anchor else ""))}"'
        return re.sub(r'\b(href|src)="([^"]*)"', changed, body)

    def pages(self) -> None:
        found = pages(self.root)
        with ThreadPoolExecutor(2) as pool:
            bodies = list(pool.map(lambda page: tool("pandoc", "--fail-if-warnings", "--from=gfm", "--to=html5", "--wrap=none",
                                                     "--no-highlight", given=page.text), found))
        for page, body in zip(found, bodies):
            self.write(page.path.with_suffix(".html"), page.title, self.relink(page.path, body), "Pages")

    def manual(self) -> None:
        paths = files(self.root, *MANUAL)
        ours = {path.name for path in paths}

        def beside(link: re.Match[str]) -> str:  # pages of ours are in the same folder, others at Debian
            return link[0] if link[1] in ours else f'href="https://manpages.debian.org/{link[1]}"'

        for path in paths:
            tool("mandoc", "-T", "lint", "-W", "warning", str(self.root / path))
            body = tool("mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", str(self.root / path))
            self.write(Path("man") / f"{path.name}.html", f"{path.stem}({path.suffix[1:]})",
                       re.sub(r'href="([\w-]+\.\d)\.html"', beside, body), "Manual pages")

    def source(self) -> list[str]:
        faults = []
        for path in files(self.root, *HEADERS):
            found = list(comments(self.root, path))
            faults += [fault for comment in found for fault in faults_of(comment)]
            if found:
                body = f"<h1>{path}</h1>\n" + "\n".join(map(section, found))
                self.write(Path(f"{path}.html"), str(path), body, "Headers" if path.parts[0] == "include" else "The module's source")
        return faults

    def picture(self) -> None:
        (self.out / PICTURE).parent.mkdir(parents=True, exist_ok=True)
        (self.out / PICTURE).with_suffix(".svg").write_text(tool("dot", "-Tsvg", str(self.root / PICTURE)))

    def index(self) -> None:
        picture = Path(PICTURE).with_suffix(".svg")
        lists = "\n".join(f"<h2>{chapter}</h2>\n<ul>" + "".join(
            f'<li><a href="{path}">{html.escape(title)}</a></li>\n' for title, path in self.titles[chapter]) + "</ul>"
            for chapter in CHAPTERS)
        self.write(Path("index.html"), "Documentation", f'<h1>PeerDMA</h1>\n<p><img src="{picture}" alt="how it works"></p>\n{lists}')
        (self.out / "style.css").write_text(STYLE)


def section(comment: Comment) -> str:
    if comment.kind == "doc":
        return f"<section><h2>{html.escape(comment.brief)}</h2>\n<pre>{html.escape(comment.body)}</pre></section>"
    return (f'<section id="{html.escape(comment.name)}"><h2><code>{html.escape(comment.name)}</code></h2>\n'
            f"<p>{html.escape(comment.brief)}</p>\n<pre>{html.escape(comment.declaration)}</pre>\n"
            + (f"<pre>{html.escape(comment.body)}</pre>" if comment.body else "") + "</section>")


class Links(html.parser.HTMLParser):
    """The anchors and the links of one file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(out: Path) -> tuple[list[str], set[str]]:
    """Broken links, and external links, which are not checked."""
    files = {path: Links(path.read_text()) for path in sorted(out.rglob("*.html"))}
    faults, elsewhere = [], set()
    for path, found in files.items():
        for link in found.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                elsewhere.add(link)
                continue
            there = Path(os.path.normpath(path.parent / target)) if target else path
            name = path.relative_to(out)
            if not there.is_file():
                faults.append(f"{name}: {link} leads nowhere")
            elif anchor and anchor not in (files[there].ids if there in files else ()):
                faults.append(f"{name}: {link}: no such place")
    return faults, elsewhere


def build(out: Path, root: Path = ROOT) -> int:
    made = (out / "index.html").is_file() and (out / "elsewhere.txt").is_file()
    if out.exists() and any(out.iterdir()) and not made:
        print(f"error: {out} has something else in it, and would be emptied", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    site = Site(root, out)
    site.picture()
    faults = site.source()
    site.manual()
    site.pages()
    site.index()
    broken, elsewhere = broken_links(out)
    (out / "elsewhere.txt").write_text("".join(f"{link}\n" for link in sorted(elsewhere)))
    for fault in faults + broken:
        print(f"error: {fault}", file=sys.stderr)
    if faults or broken:
        return 1
    print(f"{out}/index.html: {sum(map(len, site.titles.values()))} pages; links to other places, which were not looked at: "
          f"{len(elsewhere)}, in elsewhere.txt")
    return 0


def named_block(name: str) -> str:
    found = [block.text for page in pages() for block in page.blocks() if block.tag in (f"file: {name}", f"checked: {name}")]
    if len(found) != 1:
        raise SystemExit(f"error: {len(found)} blocks are called {name}")
    return found[0]


def examples(root: Path = ROOT) -> list[tuple[Path, int, str, str]]:
    """(page, line, tag, text) of the EXAMPLES of manual pages: .\\" TAG stands before each of them."""
    found = []
    for path in files(root, *MANUAL):
        whole = (root / path).read_text()
        before, _, text = whole.partition(".Sh EXAMPLES\n")
        text = text[:text.find("\n.Sh ") + 1]
        for match in re.finditer(r'(?:^\.\\" (.*)\n)?(?:^\.Bd -literal.*\n((?:(?!\.Ed).*\n)*)\.Ed|^\.Dl (.*))$', text, re.M):
            tag, literal, line = (part or "" for part in match.groups())
            number = before.count("\n") + 1 + text.count("\n", 0, match.start()) + 1
            found.append((path, number, tag, literal or line + "\n"))
    return found


def unprompted(text: str) -> str:
    """Without the prompts of a manual page's example."""
    return re.sub(r"^[$#] ", "", text, flags=re.M)


def scripts_of(where: str, out: Path) -> int:
    """Writes blocks with the tag "run: WHERE" to NUMBER-PAGE-LINE.sh, in the order of the page; the first line is the
    tag. Returns their number."""
    found = [(block.page.stem, block.line, block.tag, block.text) for page in pages() for block in page.blocks()]
    found += [(path.name, line, tag, unprompted(text)) for path, line, tag, text in examples()]
    found = [entry for entry in found if re.match(rf"run: {where}\b", entry[2])]
    for number, (page, line, tag, text) in enumerate(found):
        (out / f"{number:02}-{page}-{line}.sh").write_text(f"# {tag}\n{text}")
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help="the HTML of all, to this folder")
    what.add_argument("--block", metavar="NAME", help='the block that a page calls by that name, "file: NAME" or "checked: NAME"')
    what.add_argument("--guest", type=Path, metavar="FOLDER", help='each block that is "run: guest", as a script')
    what.add_argument("--pair", type=Path, metavar="FOLDER", help='each that is "run: pair"')
    what.add_argument("--chroot", type=Path, metavar="FOLDER", help='each that is "run: chroot"')
    asked = parser.parse_args()
    if asked.folder:
        return build(asked.folder.resolve())
    if asked.block:
        sys.stdout.write(named_block(asked.block))
    for where in ("guest", "pair", "chroot"):
        if out := getattr(asked, where):
            scripts_of(where, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
