#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The manual pages describe each function, request, parameter, tracepoint and file. completion.sh checks the
command's own page."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "scripts"), str(Path(__file__).resolve().parents[1])]
import manpages  # noqa: E402
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PAGES = manpages.manual(ROOT)
OVERVIEWS = set(manpages.OVERVIEWS.values())
ALSO = {"peerdma_ioctl", "peerdma", "libpeerdma", "peerdma_cufile", "peerdma_verbs", "libpeerdma-verbs"}  # names of no function
HEADERS = {name: re.sub(r"/\*.*?\*/", "", (ROOT / "include" / name).read_text(), flags=re.S)
           for name in ("peerdma.h", "peerdma_verbs.h", "cufile.h", "peerdma_cufile.h")}
UAPI = (ROOT / "include/uapi/peerdma.h").read_text()
REQUESTS = re.findall(r"#define (PEERDMA_\w+) _IO\(", UAPI)


def section(page: str, name: str) -> str:
    found = re.search(rf"^\.Sh {name}\n(.*?)(?=^\.Sh |\Z)", PAGES[page], re.M | re.S)
    assert found, f"{page} has no {name}"
    return found[1]


def names(page: str) -> list[str]:
    return re.findall(r"^\.Nm (\S+)", section(page, "NAME"), re.M)


def functions() -> dict[str, list[str]]:
    """The functions that the maps export, with their declared parameters."""
    declared = {}
    for text in HEADERS.values():
        for name, parameters in re.findall(r"^(?!#|\t|static)[\w \*]*?[ \*]((?:peerdma_|cuFile)\w+)\(([^;{]*?)\);", text, re.M):
            declared[name] = [" ".join(part.split()) for part in parameters.split(",")]
    exported = set()
    for path in (ROOT / "user").glob("*/*.map"):
        for line in path.read_text().partition("local:")[0].splitlines():
            if found := re.match(r"\t(\w+)(\*?);", line):
                exported |= {name for name in declared if name == found[1] or found[2] and name.startswith(found[1])} or {found[1]}
    return {name: declared.get(name, []) for name in sorted(exported)}


def each_function_is_named_declared_and_described() -> None:
    found = functions()
    assert found  # whose pages are not in it: no_page_has_what_is_not_there()
    for name, parameters in found.items():
        pages = [page for page in PAGES if name in names(page)]
        assert len(pages) == 1, f"{name} is in {pages}"
        synopsis = re.search(rf"^\.Fo {name}\n((?:\.Fa .*\n)+)\.Fc$", section(pages[0], "SYNOPSIS"), re.M)
        assert synopsis, f"{pages[0]}: no synopsis of {name}"
        shown = [word.strip('"') for word in re.findall(r"^\.Fa (.*)$", synopsis[1], re.M)]
        assert parameters == shown, f"{pages[0]}: {name}: {parameters} is {shown}"
        if pages[0] == "cufile.3":
            assert re.search(rf"^\.Fn {name}\b", section(pages[0], "DESCRIPTION"), re.M), f"{pages[0]}: {name} is not described"


def each_function_of_ours_has_a_page_of_its_own() -> None:
    """With all parameters in it, and one overview lists it."""
    ours = {name: parameters for name, parameters in functions().items() if name.startswith("peerdma_")}
    assert ours
    for name, parameters in ours.items():
        page = f"{name}.3"
        assert page in PAGES and names(page) == [name], name
        assert sum(f".It Xr {name} 3\n" in PAGES[overview] for overview in OVERVIEWS) == 1, f"{name} is not in one overview"
        described = re.findall(r'^\.It Fa "(\w+)"$', section(page, "DESCRIPTION"), re.M)
        assert described == [] if parameters == ["void"] else sorted(described) == sorted(
            re.findall(r"\w+$", parameter)[0] for parameter in parameters), f"{page}: {described}"


GOOD_HEADER = """/**
 * peerdma_one - does it
 * @flags: 0 or 1
 *
 * It does.
 * Return: 0 or -errno.
 *   -EINVAL a flag is not known
 * Since 0.1. Source: x.
 */
PEERDMA_API int peerdma_one(uint64_t flags);

/**
 * peerdma_two - does it, too
 * @flags: as peerdma_one()
 *
 * It does.
 * Return: 0 or -errno.
 *   -EINVAL as peerdma_one()
 * Since 0.1. Source: x.
 */
PEERDMA_API int peerdma_two(uint64_t flags);
"""


def a_page_that_lacks_something_is_not_made() -> None:
    """A comment that is spoiled is a fault with its place; an overview that does not list a function is one, too."""
    spoiled = {"does not describe @flags": (" * @flags: 0 or 1\n", ""),
               "no paragraph says what it does": (" * It does.\n", ""),
               'no "Since"': (" * Since 0.1. Source: x.\n", ""),
               'no "Return"': (" * Return: 0 or -errno.\n *   -EINVAL a flag is not known\n", ""),
               "-EINVALID is not an errno": ("-EINVAL a flag", "-EINVALID a flag"),
               "no other function peerdma_on()": ("@flags: as peerdma_one()", "@flags: as peerdma_on()"),
               "peerdma_one() does not describe -EPIPE": ("-EINVAL as peerdma_one()", "-EPIPE as peerdma_one()"),
               "does not list each function once: ['peerdma_three']": (
                   GOOD_HEADER, GOOD_HEADER + "\n/**\n * peerdma_three - x\n *\n * X.\n * Return: 0.\n * Since 0.1. Source: x.\n */\n"
                   "PEERDMA_API int peerdma_three(void);\n")}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in (*manpages.OVERVIEWS, manpages.UAPI):
            (root / "include" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "include" / name).write_text("")
        header, overview = root / "include/peerdma.h", root / "Documentation/man" / manpages.OVERVIEWS["peerdma.h"]
        overview.parent.mkdir(parents=True)
        overview.write_text('.Dd $Mdocdate$\n.Dt PEERDMA 3\n.Os\n.Sh DESCRIPTION\n.\\" functions: peerdma_one peerdma_two\n')
        header.write_text(GOOD_HEADER)
        assert set(manpages.manual(root)) == {"peerdma_one.3", "peerdma_two.3", overview.name}
        for want, (old, new) in spoiled.items():
            header.write_text(GOOD_HEADER.replace(old, new, 1))
            try:
                manpages.manual(root)
            except manpages.Fault as fault:
                assert want in str(fault) and str(fault).startswith(("include/peerdma.h:", f"{overview.name} ")), fault
            else:
                raise AssertionError(f"made without a fault: {want}")


def the_command_leaves_no_stale_pages() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "peerdma_gone.3").write_text("old")
        (Path(folder) / "other.txt").write_text("kept")
        subprocess.run([ROOT / "scripts/manpages.py", folder], check=True)
        assert {path.name for path in Path(folder).iterdir()} == set(PAGES) | {"other.txt"}


def mandoc_has_no_complaint() -> None:
    if not shutil.which("mandoc"):
        raise tap.Skip("no mandoc")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *manpages.write(Path(folder))], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def a_literal_line_fits_a_terminal() -> None:
    for page, text in PAGES.items():
        if page.removesuffix(".3") in functions():
            for block in re.findall(r"^\.Bd -literal.*\n((?:(?!\.Ed).*\n)*)", text, re.M):
                assert all(len(line) <= 76 for line in block.splitlines()), f"{page}: {block}"


def no_page_has_what_is_not_there() -> None:
    known = set(functions()) | set(REQUESTS)
    for page in PAGES:
        if page.endswith((".2", ".3")):
            assert set(names(page)) - ALSO <= known, set(names(page)) - known


def each_request_is_there_with_its_struct() -> None:
    structs: dict[str, str] = {}
    for struct, text in re.findall(r"^ \* (struct \w+) - (.*?)\n \* @", UAPI, re.M | re.S):
        for name in re.findall(r"\b(PEERDMA_\w+)\b", text):
            structs[name] = struct
    structs["PEERDMA_FILE_REMOVE"] = "struct peerdma_destroy"  # according to its number
    assert set(REQUESTS) <= set(names("peerdma_ioctl.2"))
    shown = {}
    for line in re.findall(r"^\.It Dv (.*)$", section("peerdma_ioctl.2", "DESCRIPTION"), re.M):
        requests, _, struct = line.partition(" , Vt ")
        shown |= {name: struct for name in requests.split(" , ")}
    assert shown == {name: structs[name] for name in REQUESTS}, shown.items() ^ structs.items()


def each_errno_of_the_header_is_in_the_page() -> None:
    table = UAPI.partition("* ========== ====")[2].partition("* ========== ====")[0]
    wanted = re.findall(r"^ \* (E[A-Z0-9]+) ", table, re.M)
    shown = re.findall(r"^\.It Bq Er (\w+)$", section("peerdma_ioctl.2", "ERRORS"), re.M)
    # ENOSPC is returned by pwrite(2).
    assert wanted and set(wanted) - {"ENOSPC"} == set(shown), set(wanted) ^ set(shown)


def parameters() -> dict[tuple[str, str], str]:
    """Parameters of loadable modules and of built-in code."""
    built = {}
    for path in (ROOT / "kernel").rglob("*.c"):
        text = path.read_text()
        for name in re.findall(r"^module_param(?:_cb)?\((\w+),", text, re.M):
            module = f"peerdma_{path.stem}" if path.stem in ("rdma", "nfs", "nvidia") else "peerdma"
            value = re.search(rf"^static (\S.*?) {name}(?: = (\w+))?;", text, re.M)
            assert value, name
            built[module, name] = {"true": "Y", "false": "N", None: "N" if value[1] == "bool" else "0"}.get(value[2], value[2])
    return built


def each_parameter_is_there_with_its_default() -> None:
    built, shown = parameters(), {}
    for name, module, value in re.findall(r"^\.It Cm (\w+) No of Nm (\w+) , default Cm (\w+)$", section("peerdma.4", "MODULE PARAMETERS"), re.M):
        shown[module, name] = value
    assert built and shown == built, shown.items() ^ built.items()


def the_file_for_modprobe_has_each_parameter() -> None:
    lines = re.findall(r"^#options (\w+) (\w+)=(\w+)$", (ROOT / "scripts/peerdma.modprobe").read_text(), re.M)
    shown = {(module, name): value for module, name, value in lines}
    assert shown == parameters(), shown.items() ^ parameters().items()


def each_module_is_there() -> None:
    modules = set(re.findall(r"^obj-.*[:+]= (peerdma\w*)\.o$", (ROOT / "kernel/Kbuild").read_text(), re.M))
    assert set(names("peerdma.4")) == modules, modules


def each_file_and_tracepoint_is_there() -> None:
    files = section("peerdma.4", "FILES")
    events = re.findall(r"TRACE_EVENT\(\s*(\w+)", (ROOT / "kernel/trace.h").read_text())
    assert events and set(events) == set(re.findall(r"\bpeerdma_\w+", files)), events
    debugfs = re.findall(r'debugfs_create_file\("(\w+)"', "".join(path.read_text() for path in (ROOT / "kernel").rglob("*.c")))
    assert debugfs and set(debugfs) == set(re.findall(r"debug/peerdma/(\w+)", files)), debugfs
    assert ".It Pa /dev/peerdma\n" in files


def pages_speak_of_pages_that_are_there() -> None:
    ours = set(PAGES) | {path.name for path in (ROOT / "scripts/debian").glob("*.1")}
    for page, text in PAGES.items():
        for name, number in re.findall(r"^\.Xr (\S+) (\d)", text, re.M):
            assert not name.startswith(("peerdma", "cufile")) or f"{name}.{number}" in ours, f"{page}: {name}({number})"


def what_is_installed_is_found_by_each_name() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["make", "-s", "-C", ROOT / "user", "install-man", f"DESTDIR={folder}/root", f"BUILD={folder}/build", "PREFIX=/usr"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        lists = " ".join(path.read_text() for path in (ROOT / "scripts/debian").glob("*.install"))
        for page, text in PAGES.items():
            number = page.rpartition(".")[2]
            there = f"usr/share/man/man{number}"
            assert (Path(folder) / "root" / there / page).read_text() == text, page
            assert re.search(rf"\b{there}(?:/{re.escape(page)})?(?:\s|$)", lists), f"no package has {there}/{page}"
            for name in names(page):
                assert (Path(folder) / "root" / there / f"{name}.{number}").is_file(), f"man {number} {name}"


if __name__ == "__main__":
    sys.exit(tap.run([
        each_function_is_named_declared_and_described, each_function_of_ours_has_a_page_of_its_own,
        a_page_that_lacks_something_is_not_made, the_command_leaves_no_stale_pages, mandoc_has_no_complaint, a_literal_line_fits_a_terminal,
        no_page_has_what_is_not_there, each_request_is_there_with_its_struct,
        each_errno_of_the_header_is_in_the_page, each_parameter_is_there_with_its_default,
        the_file_for_modprobe_has_each_parameter, each_module_is_there, each_file_and_tracepoint_is_there, pages_speak_of_pages_that_are_there, what_is_installed_is_found_by_each_name]))
