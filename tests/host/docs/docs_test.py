#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The pages of the documentation name only what exists, and each of their commands is run or has a reason why not."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "scripts"), str(Path(__file__).resolve().parents[2]),
                str(Path(__file__).resolve().parents[1])]
import docs  # noqa: E402
import run  # noqa: E402
import tap  # noqa: E402

ROOT = docs.ROOT
PAGES = docs.pages()
BLOCKS = [block for page in PAGES for block in page.blocks()]
SILENT = ("text", "c", "diff")  # blocks without commands
TAGS = {"sh": r"run: host(, kernels)?|run: guest(, published|, status \d+)*|run: pair(, storage|, status \d+)*|run: chroot(, status \d+)?|run: by \S+|not run: .{10,}", "cpp": r"file: \S+\.cpp",
        "json": r"checked: \w+", "yaml": r"checked: \w+"}
COMMAND = re.compile(r"\s*(?:\$ |# )?(?:sudo|make|peerdma|modprobe|insmod|rmmod|apt(?:-get)?|podman|docker|nvme|mount) [a-z-]")
HEADER = (ROOT / "include/uapi/peerdma.h").read_text()


def words(page: docs.Page) -> list[str]:
    """The words in backquotes, which may go on in the next line of a paragraph or of an item, but not of a table."""
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:\||- ))", page.prose)
    return [" ".join(word.split()) for part in parts for word in re.findall(r"(?<!`)`([^`]+)`(?!`)", part)]


def each(kind: str) -> list[docs.Block]:
    found = [block for block in BLOCKS if block.tag == kind or block.tag.startswith((kind + " ", kind + ","))]
    assert found, f"no block is \"{kind}\""
    return found


# --- Blocks ------------------------------------------------------------------------------------------

def fault_of(block: docs.Block) -> str:
    """The fault of a block's tag, or "". An unknown or missing language is a fault, too."""
    if block.language in SILENT:
        good = not block.tag
    else:
        good = block.language in TAGS and bool(re.fullmatch(TAGS[block.language], block.tag))
    return "" if good else f"{block.place}: {block.language!r} {block.tag!r}"


def loose_fences(page: docs.Page) -> list[str]:
    """Fences that docs.Page does not recognize: inside a line, made of tildes, or unclosed."""
    lines = [line for line in page.text.splitlines() if re.match(r"\s*(?:```|~~~)", line)]
    return [f"{page.path}: {line}" for line in lines if not line.startswith("```")] + (
        [f"{page.path}: a block without an end"] if len(lines) % 2 else [])


def each_block_says_what_becomes_of_it() -> None:
    assert BLOCKS and 2 * len(BLOCKS) == sum(len(re.findall("^```", page.text, re.M)) for page in PAGES)
    faults = [fault for block in BLOCKS if (fault := fault_of(block))] + [fence for page in PAGES for fence in loose_fences(page)]
    assert not faults, "\n".join(faults)


def a_block_that_says_nothing_is_a_fault() -> None:
    def faults(text: str) -> int:
        page = docs.Page(Path("x.md"), text)
        return len(loose_fences(page)) + sum(bool(fault_of(block)) for block in page.blocks())
    body = "peerdma check\n```\n"
    assert not faults("<!-- run: host -->\n```sh\n" + body) and not faults("```text\n" + body)
    for fence in ("```\n", "```bash\n", "```sh\n", "<!-- run: host -->\n```\n", "<!-- run: host -->\n```text\n", "  ```sh\n"):
        assert faults(fence + body), fence
    assert faults("~~~\nmake\n~~~\n") and faults("```text\n") == 1


def no_command_is_hidden_in_what_nobody_runs() -> None:
    for block in BLOCKS:
        if block.language == "text":
            found = [line for line in block.text.splitlines() if COMMAND.match(line)]
            assert not found, f"{block.place}: {found}"


def what_another_file_runs_is_there() -> None:
    for block in each("run: by"):
        text = (ROOT / block.tag.removeprefix("run: by ")).read_text()
        for line in block.text.splitlines():
            assert re.search(rf"^\s*{re.escape(line)}(?![\w-])", text, re.M), f"{block.place}: {line}"


def the_reason_why_something_is_not_run_names_what_exists() -> None:
    for block in each("not run:"):
        for name in re.findall(r"\b(?:tests|scripts|qemu)/[\w./]+\w", block.tag):
            assert (ROOT / name).exists(), f"{block.place}: {name}"


def a_folder_like_the_tree(folder: Path) -> None:
    for entry in ROOT.iterdir():
        if entry.name not in (".git", "build"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(run.lab.BUILD)


# The reader's own programs: one loads libcufile.so.0 by name, the other has it preloaded.
READERS_OWN = {
    "Documentation/cufile.md": {"my_program.py": "libcufile.so.0", "my_program": None},
}
CUFILE_PROGRAM = """#!/usr/bin/python3
import ctypes
driver_open = ctypes.CDLL({name!r}).cuFileDriverOpen
driver_open.restype = ctypes.c_uint64
assert driver_open() == 0
assert "{library}" in open("/proc/self/maps").read()
"""


def the_readers_own(page: Path, folder: Path) -> None:
    for name, library in READERS_OWN.get(str(page), {}).items():
        (folder / name).write_text(CUFILE_PROGRAM.format(name=library, library=run.lab.BUILD / "lib/libcufile.so.0"))
        (folder / name).chmod(0o755)


def cached(kernels: set[str]) -> bool:
    return all(subprocess.run([ROOT / "qemu/kernel.sh", "have", k], capture_output=True).returncode == 0 for k in kernels)


def what_is_for_the_host_is_run() -> None:
    have_kernels, left_out = cached(set(run.lab.KERNELS)), []
    for page in {block.page for block in each("run: host")}:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            a_folder_like_the_tree(folder)
            the_readers_own(page, folder)
            for block in BLOCKS:
                if block.page != page:
                    continue
                if block.tag.startswith("file: "):
                    (folder / block.tag.removeprefix("file: ")).write_text(block.text)
                elif block.tag == "run: host, kernels" and not have_kernels:
                    left_out.append(block.place)
                elif block.tag.startswith("run: host"):
                    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=folder, text=True, timeout=200,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    assert done.returncode == 0, f"{block.place}: status {done.returncode}\n{done.stdout}"
    if left_out:
        raise tap.Skip(f"all but {', '.join(left_out)}, which need each kernel in the cache")


def what_is_for_a_guest_or_a_chroot_is_given_to_the_test_that_runs_it() -> None:
    typed = (ROOT / "tests/guest/typed.sh").read_text()
    assert 'docs.py" "--$1" ' in typed
    for where, by, how in (("guest", "tests/guest/docs/docs.sh", "like_the_tree guest"), ("pair", "tests/guest/docs/docs_pair.sh", "like_the_tree pair"),
                           ("pair", "tests/peer/bare.sh", "like_the_tree pair"), ("chroot", "tests/packages.sh", 'docs.py" --chroot ')):
        assert how in (ROOT / by).read_text(), f"{by} runs nothing"
        wanted = [f"# {block.tag}\n{block.text}" for block in each(f"run: {where}")]
        wanted += [f"# {tag}\n{docs.unprompted(text)}" for _, _, tag, text in docs.examples() if re.match(rf"run: {where}\b", tag)]
        with tempfile.TemporaryDirectory() as name:
            assert docs.scripts_of(where, Path(name)) == len(wanted)
            assert [script.read_text() for script in sorted(Path(name).iterdir())] == wanted


def the_pod_is_run() -> None:
    """tests/guest/docs/oci.py runs it; it supports only what this pod uses."""
    assert [block.language for block in each("checked: pod")] == ["yaml"]
    assert "docs.py\" --block pod " in (ROOT / "tests/guest/docs/docs.sh").read_text()


def the_cdi_file_is_one() -> None:
    """Per SPEC.md of cncf-tags/container-device-interface: names, types, and the version with additionalGids."""
    def edits(found: dict) -> None:
        assert set(found) <= {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "intelRdt"} and found, found
        for node in found.get("deviceNodes", []):
            assert set(node) <= {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}, node
            assert node["path"].startswith("/") and set(node.get("permissions", "")) <= set("rwm")
        assert all(type(gid) is int and 0 < gid < 1 << 32 for gid in found.get("additionalGids", []))

    for block in each("checked: CDI"):
        spec = json.loads(block.text)
        assert set(spec) <= {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}, spec
        assert tuple(map(int, spec["cdiVersion"].split("."))) >= (0, 7, 0), "additionalGids came with 0.7.0"
        vendor, _, kind = spec["kind"].partition("/")
        assert re.fullmatch(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?", vendor) and re.fullmatch(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?", kind)
        assert spec["devices"], "one at least"
        for device in spec["devices"]:
            assert set(device) <= {"name", "annotations", "containerEdits"} and re.fullmatch(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", device["name"])
            edits(device["containerEdits"])
        edits(spec["containerEdits"])
        rule = (ROOT / "scripts/60-peerdma.rules").read_text()
        nodes = [node["path"] for device in spec["devices"] for node in device["containerEdits"].get("deviceNodes", [])]
        assert [f"/dev/{name}" for name in re.findall(r'KERNEL=="(\w+)"', rule)] == nodes, nodes


# --- Examples of manual pages -------------------------------------------------------------------------

def examples() -> list[tuple[str, str, str]]:
    """(page, tag, text)"""
    return [(name, tag, text) for name, _, tag, text in docs.examples()]


def each_example_of_a_manual_page_says_what_becomes_of_it() -> None:
    known = r"run: host|run: guest(, published)?|compiled|file: \S+|not run: .{10,}"
    assert examples()
    for page, tag, text in examples():
        assert re.fullmatch(known, tag), f"{page}: {tag!r}: {text}"
        for name in re.findall(r"\b(?:tests|scripts|qemu)/[\w./]+\w", tag):
            assert (ROOT / name).exists(), f"{page}: {name}"
    # An example that is not run here is run in a guest, with names that exist there.
    for page, tag, text in examples():
        if tag.startswith("not run: ") and "peerdma " in text:
            assert re.search(r"tests/guest/\w+/\w+\.sh", tag), f"{page}: {tag}: nothing runs anything like it"


# Examples may use these without declaring them.
EXAMPLE = """#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <peerdma.h>
int example(struct peerdma_device *device, struct peerdma_file *file, struct peerdma_buf *buf, struct peerdma_view *view,
	    void *memory, uint32_t provider_id) {
"""


def examples_of_manual_pages_are_run() -> None:
    """In a folder with the page's files. Rules are read from a file there, since tests do not write to /etc."""
    done = 0
    for page in dict.fromkeys(page for page, _, _ in examples()):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "peerdma").write_text(f'#!/bin/sh\nexec {run.lab.BUILD}/bin/peerdma "$@" "$PWD/rules"\n')
            (folder / "peerdma").chmod(0o755)
            for _, tag, text in [example for example in examples() if example[0] == page]:
                if tag.startswith("file: "):
                    (folder / tag.removeprefix("file: ")).write_text(text)
                    command = ["./peerdma", "rules", "check"]
                elif tag == "compiled":
                    (folder / "a.c").write_text(f"{EXAMPLE}{{\n{text}}}\nreturn 0;\n}}\n")
                    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized",
                               "-Wno-unused", "-fsyntax-only", f"-I{ROOT}/include", "a.c"]
                elif tag == "run: host":
                    command = ["bash", "-euo", "pipefail", "-c", docs.unprompted(text)]
                else:
                    continue
                done += 1
                ended = subprocess.run(command, cwd=folder, env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                assert ended.returncode == 0, f"{page}: status {ended.returncode}\n{text}{ended.stdout}"
                assert "rules explain" not in text or re.match(r"(allow|deny|prefer): \S*/rules:\d+: ", ended.stdout), ended.stdout
    assert done


# --- Names in pages ---------------------------------------------------------------------------------

def slug(heading: str) -> str:
    """The anchor that GitHub derives from a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def each_link_leads_somewhere() -> None:
    headings = {page.path: page.headings() for page in PAGES}
    for page in PAGES:
        for _, link in page.links():
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = Path(os.path.normpath(page.path.parent / target)) if target else page.path
            assert (ROOT / there).exists(), f"{page.path}: {link}"
            assert not anchor or anchor in map(slug, headings.get(there, [])), f"{page.path}: {link}"


def each_section_that_is_spoken_of_is_there() -> None:
    """References such as [limits.md](limits.md), "Waiting"; and "Limits", below."""
    headings = {page.path: page.headings() for page in PAGES}
    missing = []
    for page in PAGES:
        references = re.findall(r"\]\(([^)\s#]+\.md)\)(?:\s+\([^)]*\))?,\s+((?:\"[^\"]+\"(?:\s+and\s+)?)+)", page.prose)
        assert len(references) == len(re.findall(r'\.md\S*?\)(?:\s+\([^)]*\))?,\s+"', page.prose)), f"{page.path}: {references}"
        for target, quoted in references:
            there = Path(os.path.normpath(page.path.parent / target))
            for section in re.findall(r'"([^"]+)"', quoted):
                section = " ".join(section.split())
                # Bold words at the start of a paragraph count as a heading.
                text = " ".join((ROOT / there).read_text().split())
                if section not in headings[there] and f"**{section}" not in text:
                    missing.append(f"{page.path}: {there} has no \"{section}\"")
    assert not missing, missing


def each_file_that_is_named_is_there() -> None:
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build", ".git"}
    for page in PAGES:
        for word in words(page):
            if re.fullmatch(r"[\w.-]+/[\w./*{},-]*", word) and word.split("/")[0] in tops and not word.startswith("include/linux"):
                names = [word]
                if found := re.fullmatch(r"(.*)\{(.*)\}(.*)", word):
                    names = [found[1] + part + found[3] for part in found[2].split(",")]
                for name in names:
                    name = re.sub(r"\b(?:SCRIPT|NAME|KERNEL|TEST|K)\b", "*", name)  # a placeholder for one of many
                    assert list(ROOT.glob(name.rstrip("/"))), f"{page.path}: {name}"


def each_target_of_make_is_there_with_its_variables() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())  # type: ignore[index]
    variables = set(re.findall(r"\b([A-Z]+)=", makefile)) | {"KEEP_SOURCE", "REPEAT"}
    topologies, groups = {path.stem for path in (ROOT / "qemu/topo").glob("*.args")}, {"host", "meta"}
    for test in run.guest_tests():
        groups |= set(test.words("group"))
    lines = [(page.path, word) for page in PAGES for word in words(page)]
    lines += [(block.place, line) for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
    named = {"clean"}  # make help is enough
    for place, line in lines:
        if not (found := re.match(r"(?:sudo )?make ((?:[A-Za-z_=/.\"* -]|[0-9:,])+)", line)) or " -C " in line or "KDIR=" in line:
            continue
        for word in found[1].split():
            name, equals, value = word.partition("=")
            if not equals:
                if re.fullmatch(r"[a-z][a-z_.-]*", word):
                    named.add(word)
                    assert word in targets, f"{place}: make {word}"
                continue
            assert name in variables, f"{place}: {name}="
            assert name != "T" or value in topologies | {"..."}, f"{place}: T={value}"
            assert name != "GROUP" or value in groups | {"..."}, f"{place}: GROUP={value}"
            assert name != "K" or value in (*run.lab.KERNELS, ""), f"{place}: K={value}"
    assert named == targets, f"on no page: {targets - named}"


def each_subcommand_and_option_is_described_by_the_manual_page() -> None:
    page = (ROOT / "Documentation/man/peerdma.1").read_text()
    known = set(re.findall(r"^\.It Cm (\w+)$", page, re.M))
    pages = {name: (ROOT / f"Documentation/man/{name}.1").read_text() for name in ("peerdma", "peerdma-view")}
    options, view_options = ({"--" + name for name in re.findall(r"Fl -([\w-]+)", pages[name])} for name in pages)
    views = set(re.findall(r"^\.It Cm (\w+)$", pages["peerdma-view"], re.M))
    assert {"check", "cp"} <= known and "--json" in options and {"publish", "ls"} <= views and "--codec" in view_options
    uses = [(page.path, word) for page in PAGES for word in words(page)]
    uses += [(block.place, line) for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
    uses += [(name, line) for name, tag, text in examples() if tag != "compiled" for line in text.splitlines()]
    named = {"completion", "help"}  # which need no words
    for place, text in uses:
        for name, rest in re.findall(r"(?:^|[ /])peerdma ([a-z]+)\b([^#\n|;]*)", text):
            if name in ("is", "and") or re.match(r"(?:sudo )?(?:modprobe|rmmod|usermod)|modinfo", text):
                continue
            named.add(name)
            assert name in known, f"{place}: peerdma {name}"
            if name == "view" and (found := re.match(r" ([a-z]+)", rest)):
                assert found[1] in views, f"{place}: peerdma view {found[1]}"
            for option in re.findall(r" (--[a-z-]+)", rest.split(" -- ")[0]):
                assert option in (view_options if name == "view" else options), f"{place}: peerdma {name} {option}"
    assert named == known, f"on no page: {known - named}"


def each_name_of_ours_is_in_the_source() -> None:
    """PEERDMA_*, peerdma_*() and the parameters peerdma*.NAME."""
    source = "\n".join(path.read_text() for top in ("include", "kernel", "user", "scripts", "qemu", "tests/tools", "tests/host")
                       for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".h", ".hpp", ".c", ".cpp", ".sh", ".map", ".py", ".service"))
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for word in re.findall(r"\bPEERDMA_[A-Z_]+[A-Z]\b", page.text):
            assert re.search(rf"\b{word}", source + makefile), f"{page.path}: {word}"
        for word in re.findall(r"`(peerdma_\w+)\(\)?", page.text):
            assert re.search(rf"\b{word}\b", source), f"{page.path}: {word}()"
        for module, name in re.findall(r"`(peerdma(?:_\w+)?)\.(\w+)(?:=\w+)?`", page.text):
            if name not in ("ko", "h", "hpp", "conf"):
                assert re.search(rf"module_param\w*\({name},", source), f"{page.path}: {module}.{name}"


def the_reasons_of_the_table_are_those_of_the_header() -> None:
    wanted = {int(number): name for name, number in re.findall(r"PEERDMA_REASON_(\w+) = (\d+)", HEADER)}
    table = {int(number): name for number, name in
             re.findall(r"^\| (\d+) \| `(\w+)` \|", (ROOT / "Documentation/routes.md").read_text(), re.M)}
    assert wanted and table == wanted, set(table.items()) ^ set(wanted.items())
    # Other pages omit the prefix and may omit the errno.
    cells = [cell for page in PAGES for _, cell in column(page, "reason")]
    found = [word for cell in cells for word in re.findall(r"`([A-Z]+_?[A-Z_]*[A-Z])`", cell)]
    assert found and not [word for word in found if word not in set(wanted.values()) | {"ENODEV"}], found


def the_ioctls_of_the_table_are_those_of_the_header() -> None:
    wanted = {name: int(number) for name, number in re.findall(r"#define (PEERDMA_\w+) _IO\(PEERDMA_IOC_TYPE, (\d+)\)", HEADER)}
    text = (ROOT / "Documentation/uapi.md").read_text()
    table = {name: int(number) for name, number in re.findall(r"^\| `(PEERDMA_\w+)` \| (\d+) \|", text, re.M)}
    assert table == {name: number for name, number in wanted.items() if "URING" not in name}, table
    assert all(f"`{name}`" in text for name in wanted), wanted


def tables(page: docs.Page) -> list[list[list[str]]]:
    """The tables as rows of cells, the header first."""
    found = re.findall(r"(?:^\|.*\n)+", page.prose + "\n", re.M)
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if not re.match(r"\|[-:| ]+\|$", line)]
            for text in found]


def column(page: docs.Page, name: str) -> list[tuple[list[str], str]]:
    """(row, cell) of the column with this header, in each table that has it."""
    return [(row, row[table[0].index(name)]) for table in tables(page) if name in table[0] for row in table[1:] if len(row) == len(table[0])]


def the_tests_that_are_said_to_prove_something_are_there() -> None:
    """Tests named in columns "tested", in rows with a column "real device", and in testing.md's table of tests and
    groups."""
    tests = {test.name: test for test in run.guest_tests()}
    named = {name for page in PAGES for _, cell in column(page, "tested") for name in re.findall(r"`(\w+)`", cell)}
    named |= {name for page in PAGES for row, _ in column(page, "real device") for cell in row[1:] for name in re.findall(r"`([a-z_]+)`", cell)} - {"edu"}  # QEMU's device
    assert named and named <= set(tests), named - set(tests)
    rows = [(re.findall(r"`(\w+)`", re.sub(r"\(.*\)", "", row[0])), re.findall(r"`(\w+)`", cell))
            for page in PAGES if page.path.name == "testing.md" for row, cell in column(page, "group")]
    listed = {name: groups for names, groups in rows for name in names}
    assert set(tests) | {"powercut"} == set(listed), set(tests) ^ set(listed)
    for name, groups in listed.items():
        assert name not in tests or tests[name].words("group") == groups, name


def unsourced(text: str) -> list[str]:
    """Table rows without a link in the column "source", or with a name in "by" that is not an item of peerdma check."""
    items = set(re.findall(r'\.id = "(\w+)"', "".join(path.read_text() for path in (ROOT / "user/tools/check").glob("*.cpp"))))
    faults, before = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells or set(cells) == {"---"}:
            continue
        if "needed" in cells:
            faults += [] if cells == ["needed", "source", "by"] else [line]
            before = ""
            continue
        # "The same" refers to the row before.
        before = before if cells[1] in ("the same", "as above") else cells[1]
        if not re.search(r"\]\(\S+\)", before) or not set(re.findall(r"\w+", cells[2])) <= items:
            faults.append(line)
    return faults


def what_hardware_needs_has_a_source() -> None:
    text = (ROOT / "Documentation/hardware.md").read_text()
    assert text.count("| needed | source | by |") == len(re.findall(r"^\|---", text, re.M)) > 0
    assert not unsourced(text), "\n".join(unsourced(text))
    head = "| needed | source | by |\n|---|---|---|\n"
    link = head + "| a | [b](c) | `bar` |\n"
    assert not unsourced(link + "| d | the same | |\n") and unsourced(head + "| d | the same | |\n")
    assert unsourced(link + "| d | somebody said so | |\n") and unsourced(link + "| d | [b](c) | `nothing` |\n")


def each_picture_is_what_its_source_says() -> None:
    def said(svg: str) -> list[str]:
        return sorted(re.findall(r"<(?:text|title)\b[^>]*>([^<]*)<", svg))
    pictures = docs.files(ROOT, "Documentation/**/*.dot")
    assert pictures
    for picture in pictures:
        drawn = subprocess.run(["dot", "-Tsvg", ROOT / picture], check=True, capture_output=True, text=True).stdout
        assert said(drawn) == said((ROOT / picture).with_suffix(".svg").read_text()), f"dot -Tsvg -O {picture}"


# --- make docs itself ---------------------------------------------------------------------------------

def comments_fit_what_they_describe() -> None:
    found = [comment for path in docs.files(ROOT, *docs.HEADERS) for comment in docs.comments(ROOT, path)]
    faults = [fault for comment in found for fault in docs.faults_of(comment)]
    begun = sum((ROOT / path).read_text().count("/**\n") for path in docs.files(ROOT, *docs.HEADERS))
    assert 0 < begun <= len(found) and not faults, "\n".join([f"{begun} comments, {len(found)} seen", *faults])


def a_comment_that_does_not_fit_is_a_fault() -> None:
    good = "/**\n * f - does it\n * @a: one      @b: two\n */\nint f(int a, struct x *b);\n"
    spoiled = {"f is not what follows": good.replace("int f(", "int g("), "has no @c": good.replace("@b", "@c"),
               "does not describe @b": good.replace("      @b: two", ""), "is not \"name": good.replace("f - does it", "does it")}
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "include").mkdir()
        path = Path("include/x.h")
        for want, text in {"": good, **spoiled}.items():
            (Path(name) / path).write_text(text)
            faults = [fault for comment in docs.comments(Path(name), path) for fault in docs.faults_of(comment)]
            assert any(want in fault for fault in faults) if want else not faults, (want, faults)


def a_link_that_leads_nowhere_is_a_fault() -> None:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        (out / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there">b</a><a href="https://example.org/">c</a>')
        (out / "b.html").write_text('<h1 id="there">B</h1><a href="a.html">a</a><a href="#there">b</a>')
        assert docs.broken_links(out) == ([], {"https://example.org/"})
        (out / "b.html").write_text('<h1 id="elsewhere">B</h1><a href="c.html">a</a>')
        faults, _ = docs.broken_links(out)
        assert len(faults) == 2 and "a.html: b.html#there" in faults[0] and "b.html: c.html" in faults[1], faults


def what_a_browser_would_load_from_elsewhere_is_a_fault() -> None:
    for name, text in (("a.html", '<script src="https://example.org/a.js"></script>'), ("a.html", '<img src="//example.org/a.png">'),
                       ("a.html", '<link rel="stylesheet" href="https://example.org/a.css">'),
                       ("a.css", "@font-face { src: url(https://example.org/a.woff); }"), ("a.css", '@import "https://example.org/b.css";')):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_text(text)
            faults, _ = docs.broken_links(Path(folder))
            assert len(faults) == 1 and "loaded from elsewhere" in faults[0], (text, faults)


def each_page_is_on_a_shelf() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = docs.Source(ROOT, Path(folder))
        source.shelves()
        assert not [fault for fault in source.faults if "shelf" in fault], source.faults
        source.pages[Path("Documentation/new.md")] = docs.Page(Path("Documentation/new.md"), "# New")
        source.shelves()
        assert "Documentation/new.md: Documentation/README.md has it on no shelf" in source.faults, source.faults


def an_option_is_not_taken_for_a_folder() -> None:
    """Regression: docs.py --help wrote the HTML of all pages into a folder of that name."""
    with tempfile.TemporaryDirectory() as name:
        for option, status in {"--help": 0, "--bogus": 2}.items():
            done = subprocess.run([ROOT / "scripts/docs.py", option], cwd=name, text=True, timeout=200, capture_output=True)
            assert (done.returncode, "usage:" in done.stdout + done.stderr, list(Path(name).iterdir())) == (status, True, []), option


if __name__ == "__main__":
    sys.exit(tap.run([
        each_block_says_what_becomes_of_it, a_block_that_says_nothing_is_a_fault, no_command_is_hidden_in_what_nobody_runs,
        what_another_file_runs_is_there, the_reason_why_something_is_not_run_names_what_exists, what_is_for_the_host_is_run,
        what_is_for_a_guest_or_a_chroot_is_given_to_the_test_that_runs_it, the_cdi_file_is_one, the_pod_is_run,
        each_example_of_a_manual_page_says_what_becomes_of_it, examples_of_manual_pages_are_run, each_link_leads_somewhere,
        each_section_that_is_spoken_of_is_there, each_file_that_is_named_is_there, each_target_of_make_is_there_with_its_variables,
        each_subcommand_and_option_is_described_by_the_manual_page, each_name_of_ours_is_in_the_source,
        the_reasons_of_the_table_are_those_of_the_header, the_ioctls_of_the_table_are_those_of_the_header,
        the_tests_that_are_said_to_prove_something_are_there, what_hardware_needs_has_a_source,
        each_picture_is_what_its_source_says, comments_fit_what_they_describe,
        a_comment_that_does_not_fit_is_a_fault, a_link_that_leads_nowhere_is_a_fault,
        what_a_browser_would_load_from_elsewhere_is_a_fault, each_page_is_on_a_shelf, an_option_is_not_taken_for_a_folder]))
