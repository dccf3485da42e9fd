#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""make docs: the documentation as HTML, in build/docs.

Sphinx makes it, of the pages (Markdown, by MyST), of the manual pages (by manpages.py and mandoc), of the pictures (by dot), and of the comments
of the headers and of the module. The side bar's shelves are those of Documentation/README.md. Nothing is loaded from another host.
A warning of any of these tools, a comment that does not fit what it describes, a link that leads nowhere and a page on no shelf
are failures.
What the pages are made of (blocks, headings, links) is also what tests/host/docs/docs_test.py and tests/guest/docs/docs.sh look at.
"""
from __future__ import annotations

import argparse
import html.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import manpages
from comments import Comment, comments, faults_of

ROOT = Path(__file__).resolve().parent.parent
TEXT = ("*.md", "Documentation/**/*.md", "tests/*/*.md")
HEADERS = ("include/*.h", "include/*.hpp", "include/uapi/*.h", "kernel/**/*.[ch]")


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


def manual(root: Path = ROOT) -> dict[str, str]:
    """The manual pages, by name: those of manpages.py and those of Debian's packages."""
    return manpages.manual(root) | {path.name: (root / path).read_text() for path in files(root, "scripts/debian/*.1")}


def pages(root: Path = ROOT) -> list[Page]:
    """README.md and the files beside it first."""
    return [Page(path, (root / path).read_text()) for path in sorted(files(root, *TEXT), key=lambda path: (len(path.parts), path))]


# --- HTML ------------------------------------------------------------------------------------------

SHELVES = Path("Documentation/README.md")  # one heading and one list of links a shelf
CONF = """
project = "PeerDMA"
author = ""
extensions = ["myst_parser"]
myst_heading_anchors = 6
root_doc = "index"
exclude_patterns = ["**.html"]
highlight_language = "none"
html_theme = "furo"
html_title = "PeerDMA"
html_static_path = ["_static"]
html_css_files = ["peerdma.css"]
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
"""
STYLE = """
article table { font-size: 90%; }
article img { background: #fff; border-radius: .3em; max-width: 100%; }
.manual-text table { border: 0; } .manual-text td { border: 0; vertical-align: top; padding: .1em .6em .1em 0; }
.manual-text a.permalink { color: inherit; text-decoration: none; }
.manual-text table.head, .manual-text table.foot { width: 100%; }
.manual-text h1, .manual-text h2 { font-size: 1.3em; margin-top: 1.5em; }
.manual-text { overflow-x: auto; }
"""


def tool(*command: str) -> str:
    """What it prints; a complaint of it is a failure."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"error: {' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout


def toctree(entries: list[str], caption: str = "") -> str:
    return "\n```{toctree}\n:hidden:\n" + (f":caption: {caption}\n" if caption else "") + "\n" + "".join(
        f"{entry if '<' in entry else '/' + entry}\n" for entry in entries) + "```\n"


class Source:
    """What Sphinx makes HTML of: the pages, one for each manual page, and one for each header and file of the module."""

    def __init__(self, root: Path, out: Path) -> None:
        self.root, self.out = root, out
        self.faults: list[str] = []
        self.pages = {page.path: page for page in pages(root)}
        self.folders: dict[str, list[Path]] = {"Documentation/man": [], "include": [], "kernel": []}

    def write(self, path: Path, text: str) -> None:
        (self.out / path).parent.mkdir(parents=True, exist_ok=True)
        (self.out / path).write_text(text)

    def place(self, there: Path) -> Path | None:
        """What a file or folder of the tree has become."""
        if str(there) in self.folders:
            return there / "index.md"
        if (self.root / there).is_dir() and (self.root / there / "README.md").is_file():
            there /= "README.md"
        if there == Path("README.md"):
            return Path("index.md")
        if there in self.pages:
            return there
        for made in (there.with_name(there.name + ".md"), Path("Documentation/man") / f"{there.name}.md"):
            if (self.out / made).is_file():
                return made
        if there.parts[0] != ".." and (self.root / there).is_file():
            (self.out / there).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / there, self.out / there)
            return there
        return None

    def relink(self, page: Path, text: str) -> str:
        def changed(found: re.Match[str]) -> str:
            target, _, anchor = found[2].partition("#")
            if not target or re.match(r"[a-z]+:", target):
                return found[0]
            there = self.place(Path(os.path.normpath(page.parent / target)))
            if not there:
                self.faults.append(f"{page}: {found[2]} leads nowhere")
                return found[0]
            return f"{found[1]}({os.path.relpath(there, page.parent)}{'#' + anchor if anchor else ''})"
        parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        return "".join(part if part.startswith("```") else re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", changed, part) for part in parts)

    def manual(self) -> None:
        texts = manual(self.root)

        def beside(link: re.Match[str]) -> str:  # pages of ours are in the same folder, others at Debian
            return link[0] if link[1] in texts else f'href="https://manpages.debian.org/{link[1]}"'

        for name, text in texts.items():
            made = Path("Documentation/man") / f"{name}.md"
            self.write(made.with_suffix(""), text)
            tool("mandoc", "-T", "lint", "-W", "warning", str(self.out / made.with_suffix("")))
            body = tool("mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", str(self.out / made.with_suffix("")))
            self.write(made.with_suffix(".html"), re.sub(r'href="([\w-]+\.\d)\.html"', beside, body))
            title, _, number = name.rpartition(".")
            self.write(made, f"# {title}({number})\n\n```{{raw}} html\n:file: {name}.html\n```\n")
            self.folders["Documentation/man"].append(made)

    def source(self) -> None:
        for path in files(self.root, *HEADERS):
            found = list(comments(self.root, path))
            self.faults += [fault for comment in found for fault in faults_of(comment)]
            if found:
                made = Path(f"{path}.md")
                self.write(made, f"# {path}\n\n" + "\n".join(map(section, found)))
                self.folders[path.parts[0]].append(made)

    def indexes(self) -> None:
        for (folder, entries), title in zip(self.folders.items(), ("Manual pages", "Headers", "The module's source")):
            entries.sort(key=lambda path: (path.stem.rpartition(".")[2], path))
            names = [str(entry.relative_to(folder)) for entry in entries]
            self.write(Path(folder) / "index.md", f"# {title}\n\n" + "".join(f"- [{name[:-3]}]({name})\n" for name in names)
                       + toctree([str(entry)[:-3] for entry in entries]))

    def shelves(self) -> str:
        """The side bar. Each page is on a shelf, or below a page that is."""
        trees, seen = "", set()
        for shelf in re.split(r"^## ", self.pages[SHELVES].prose, flags=re.M)[1:]:
            entries = {place: title for title, target in Page(SHELVES, shelf).links()
                       if (place := self.place(Path(os.path.normpath(SHELVES.parent / target)))) and place.suffix == ".md"}
            seen |= set(entries)
            trees += toctree([f"{title} </{str(place)[:-3]}>" for place, title in entries.items()], shelf.splitlines()[0])
        below = {page for page in self.pages if page.name == "README.md" and page.parent.parent / "README.md" in seen}
        self.faults += [f"{page}: {SHELVES} has it on no shelf" for page in set(self.pages) - seen - below - {Path("README.md"), SHELVES}]
        return toctree([f"All pages </{str(SHELVES)[:-3]}>"]) + trees

    def fill(self) -> None:
        for picture in files(self.root, "Documentation/**/*.dot"):
            self.write(picture.with_suffix(".svg"), tool("dot", "-Tsvg", str(self.root / picture)))
        self.source()
        self.manual()
        self.indexes()
        for path, page in self.pages.items():
            children = sorted(other for other in self.pages if other.name == "README.md" and other.parent.parent == path.parent
                              and path.name == "README.md" and len(path.parts) == 3)
            text = self.relink(path, page.text) + (toctree([str(child)[:-3] for child in children]) if children else "")
            self.write(self.place(path) or path, text + (self.shelves() if path == Path("README.md") else ""))
        self.write(Path("conf.py"), CONF)
        self.write(Path("_static/peerdma.css"), STYLE)


def fenced(language: str, text: str) -> str:
    return f"````{language}\n{text}\n````\n" if text.strip() else ""


def section(comment: Comment) -> str:
    if comment.kind == "doc":
        return f"## {comment.brief}\n\n" + fenced("text", comment.body)
    return f"## `{comment.name}`\n\n" + fenced("text", comment.brief) + fenced("c", comment.declaration) + fenced("text", comment.body)


class Links(html.parser.HTMLParser):
    """The anchors and the links of one file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []  # by the browser, without a click
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)
                if name == "src" or tag == "link":
                    self.loaded.append(value)


def broken_links(out: Path) -> tuple[list[str], set[str]]:
    """Broken links, and external links, which are not checked."""
    files = {path: Links(path.read_text()) for path in sorted(out.rglob("*.html"))}
    faults, elsewhere = [], set()
    for path, found in files.items():
        name = path.relative_to(out)
        faults += [f"{name}: is loaded from elsewhere: {link}" for link in found.loaded if re.match(r"(?:[a-z]+:)?//", link)]
        for link in found.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:|//", target):
                elsewhere.add(link)
                continue
            target = target.partition("?")[0]
            there = Path(os.path.normpath(path.parent / target)) if target else path
            if not there.is_file():
                faults.append(f"{name}: {link} leads nowhere")
            elif anchor and anchor not in (files[there].ids if there in files else ()):
                faults.append(f"{name}: {link}: no such place")
    faults += [f"{path.relative_to(out)}: is loaded from elsewhere: {link}" for path in sorted(out.rglob("*.css"))
               for link in re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", path.read_text())]
    return faults, elsewhere


def build(out: Path, root: Path = ROOT) -> int:
    made = (out / "index.html").is_file() and (out / "elsewhere.txt").is_file()
    if out.exists() and any(out.iterdir()) and not made:
        print(f"error: {out} has something else in it, and would be emptied", file=sys.stderr)
        return 1
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Source(root, Path(folder))
        source.fill()
        done = subprocess.run(["sphinx-build", "-b", "html", "-q", "-W", "--keep-going", "-d", f"{folder}/.doctrees", folder, str(out)],
                              capture_output=True, text=True)
    faults = source.faults + [line.replace(f"{folder}/", "") for line in done.stderr.splitlines()]
    if done.returncode and not faults:
        faults = [f"sphinx-build: status {done.returncode}"]
    broken, elsewhere = broken_links(out)
    (out / "elsewhere.txt").write_text("".join(f"{link}\n" for link in sorted(elsewhere)))
    for fault in faults + broken:
        print(f"error: {fault}", file=sys.stderr)
    if faults or broken:
        return 1
    print(f"{out}/index.html: {len(list(out.rglob('*.html')))} pages; links to other places, which were not looked at: "
          f"{len(elsewhere)}, in elsewhere.txt")
    return 0


def named_block(name: str) -> str:
    found = [block.text for page in pages() for block in page.blocks() if block.tag in (f"file: {name}", f"checked: {name}")]
    if len(found) != 1:
        raise SystemExit(f"error: {len(found)} blocks are called {name}")
    return found[0]


def examples(root: Path = ROOT) -> list[tuple[str, int, str, str]]:
    """(page, line, tag, text) of the EXAMPLES of manual pages: .\\" TAG stands before each of them."""
    found = []
    for name, whole in manual(root).items():
        before, _, text = whole.partition(".Sh EXAMPLES\n")
        text = text[:text.find("\n.Sh ") + 1]
        for match in re.finditer(r'(?:^\.\\" (.*)\n)?(?:^\.Bd -literal.*\n((?:(?!\.Ed).*\n)*)\.Ed|^\.Dl (.*))$', text, re.M):
            tag, literal, line = (part or "" for part in match.groups())
            number = before.count("\n") + 1 + text.count("\n", 0, match.start()) + 1
            found.append((name, number, tag, (literal or line + "\n").replace("\\e", "\\")))
    return found


def unprompted(text: str) -> str:
    """Without the prompts of a manual page's example."""
    return re.sub(r"^[$#] ", "", text, flags=re.M)


def scripts_of(where: str, out: Path) -> int:
    """Writes blocks with the tag "run: WHERE" to NUMBER-PAGE-LINE.sh, in the order of the page; the first line is the
    tag. Returns their number."""
    found = [(block.page.stem, block.line, block.tag, block.text) for page in pages() for block in page.blocks()]
    found += [(name, line, tag, unprompted(text)) for name, line, tag, text in examples()]
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
    try:
        return act(asked)
    except manpages.Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


def act(asked: argparse.Namespace) -> int:
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
