#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# tier: check
"""scripts/hooks.sh and scripts/pre-commit.sh, the git hook that `make hooks` offers, in a repository of their own. What .editorconfig
says of each kind of file."""
from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve()
while not (ROOT / "qemu/lab.py").exists():
    ROOT = ROOT.parent
sys.path[:0] = [str(ROOT / "tests/host")]
import tap  # noqa: E402

FILES = ("scripts/common.sh", "scripts/hooks.sh", "scripts/pre-commit.sh", "scripts/spdx.sh", "scripts/format.sh", "qemu/kernel.sh", "qemu/kernels.tbl", "qemu/kernel.config", ".clang-format")
SPDX = "// SPDX-License-Identifier: MIT\n"


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | tap.WITHOUT_GITCONFIG
        for name in FILES:
            if (ROOT / name).exists():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, root / name)
        self.git("init", "-q")

    def git(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=self.root, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def offer(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["scripts/hooks.sh"], cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def stage(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
        self.git("add", name)


@contextlib.contextmanager
def with_hook() -> Iterator[Repository]:
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder))
        assert repository.offer().returncode == 0
        yield repository


def needs(command: str) -> None:
    if not shutil.which(command):
        raise tap.Skip(f"no {command}")


def what_is_good_is_committed() -> None:
    with with_hook() as repository:
        repository.stage("a.cpp", SPDX + "int a();\n")
        # An abbreviation that lint knows.
        repository.stage("b.sh", "#!/bin/sh\n# SPDX-License-Identifier: MIT\necho 'put the inout of nd'\n")
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0, done.stdout
        assert repository.git("rev-parse", "HEAD").returncode == 0


def refuses(name: str, text: str, says: str) -> None:
    with with_hook() as repository:
        repository.stage(name, text)
        done = repository.git("commit", "-qm", "x")
        assert done.returncode and says in done.stdout, done.stdout
        assert repository.git("rev-parse", "HEAD").returncode
        assert repository.git("commit", "-q", "--no-verify", "-m", "x").returncode == 0


def a_file_without_a_license_is_refused() -> None:
    refuses("a.py", "x = 1\n", "a.py: no SPDX line")
    refuses("kernel/.clang-format", "DisableFormat: true\n", "kernel/.clang-format: no SPDX line")
    refuses("a.conf", "x = 1\n", "a.conf: no SPDX line")


def wrong_syntax_is_refused() -> None:
    refuses("a.py", "# SPDX-License-Identifier: MIT\nx = = 1\n", "python: syntax")


def an_unused_import_is_refused() -> None:
    needs("pyflakes3")
    refuses("a.py", "# SPDX-License-Identifier: MIT\nimport os\n", "python: pyflakes")


def a_program_that_is_missing_is_named() -> None:
    with with_hook() as repository, tempfile.TemporaryDirectory() as programs:
        for folder in repository.env["PATH"].split(":"):
            for program in Path(folder).glob("*"):
                if program.name != "pyflakes3" and not (Path(programs) / program.name).is_symlink():
                    (Path(programs) / program.name).symlink_to(program)
        repository.env["PATH"] = programs
        repository.stage("a.py", "# SPDX-License-Identifier: MIT\nimport os\n")
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0 and "pyflakes: not checked, as pyflakes3 is not installed" in done.stdout, done.stdout


def many_scripts_are_checked_on_all_cpus() -> None:
    with with_hook() as repository:
        programs, seen = repository.root / ".git/programs", repository.root / ".git/seen"
        # It succeeds once another one runs beside it.
        waits = 'touch "$SEEN/$$"; for _ in {1..100}; do set -- "$SEEN"/*; [ $# -lt 2 ] || exit 0; sleep 0.1; done; exit 1'
        programs.mkdir()
        seen.mkdir()
        for name, text in {"nproc": "echo 2", "shellcheck": waits}.items():
            (programs / name).write_text(f"#!/bin/bash\n{text}\n")
            (programs / name).chmod(0o755)
        repository.env |= {"PATH": f"{programs}:{repository.env['PATH']}", "SEEN": str(seen)}
        for number in range(8):
            repository.stage(f"{number}.sh", "# SPDX-License-Identifier: MIT\n")
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0, done.stdout


def a_format_of_its_own_is_refused() -> None:
    needs("clang-format")
    refuses("a.cpp", SPDX + "int   a( );\n", "clang-format")
    refuses("include/a.h", SPDX + "int   a( );\n", "clang-format")


def another_version_of_the_formatter_is_named() -> None:
    with with_hook() as repository:
        other = repository.root / ".git/programs/clang-format"
        other.parent.mkdir()
        other.write_text("#!/bin/sh\n[ $1 = --version ] && echo clang-format version 19.1.7\n")
        other.chmod(0o755)
        repository.env["PATH"] = f"{other.parent}:{repository.env['PATH']}"
        repository.stage("a.cpp", SPDX + "int   a( );\n")
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0 and "clang-format: not checked, as it is not version 14" in done.stdout, done.stdout


def what_differs_is_formatted() -> None:
    needs("clang-format")
    with with_hook() as repository:
        repository.env["PEERDMA_CACHE"] = str(repository.root / ".cache")
        for name in ("kept.cpp", "changed.cpp", "staged.hpp", "new.cpp", "kernel/a.c"):
            repository.stage(name, SPDX + "int   a( );\n")
        repository.git("reset", "-q", "new.cpp", "staged.hpp", "kernel/a.c")
        repository.git("commit", "-q", "--no-verify", "-m", "x")
        repository.stage("staged.hpp", SPDX + "int   b( );\n")
        (repository.root / "changed.cpp").write_text(SPDX + "int   b( );\n")

        def formatted() -> tuple[int, str, list[str]]:
            done = subprocess.run(["scripts/format.sh"], cwd=repository.root, env=repository.env, capture_output=True, text=True)
            names = (path.relative_to(repository.root) for path in repository.root.rglob("*.*pp"))
            return done.returncode, done.stderr, sorted(str(name) for name in names if "  " not in (repository.root / name).read_text())
        status, said, names = formatted()
        assert status and "the cache has no kernel" in said, said
        (repository.root / "kernel/a.c").unlink()
        assert formatted()[0] == 0
        assert names == formatted()[2] == ["changed.cpp", "new.cpp", "staged.hpp"], names


def the_format_of_the_kernel_is_that_of_a_cached_one() -> None:
    needs("clang-format")
    text = SPDX + "int f(int x)\n{\n    return x;\n}\n"
    with with_hook() as repository:
        cache = repository.root / ".cache"
        repository.env["PEERDMA_CACHE"] = str(cache)
        repository.stage("kernel/a.c", text)
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0 and f"not checked, as {cache} has no kernel" in done.stdout, done.stdout
        def cached(kernel: str) -> None:
            style = cache / f"kernels/{kernel}/build/.clang-format"
            style.parent.mkdir(parents=True)
            style.write_text("BasedOnStyle: LLVM\nColumnLimit: 80\nIndentWidth: 8\nUseTab: Always\nBreakBeforeBraces: Linux\n")
        newest = subprocess.run(["bash", "-c", ". scripts/common.sh && newest_kernel"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        # What make lint does not use: a tree of somebody's own, and a kernel whose build did not end.
        cached("99.0-rc1-plain-0")
        cached(f"{newest}.1-plain-0.new")
        repository.stage("kernel/b.c", text)
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0 and "not checked" in done.stdout, done.stdout
        cached(f"{newest}.1-plain-0")
        repository.stage("kernel/c.c", text)
        done = repository.git("commit", "-qm", "x")
        assert done.returncode and "the kernel's style" in done.stdout, done.stdout


def a_spelling_mistake_is_refused() -> None:
    needs("codespell")
    refuses("a.md", "It is " + "rec" + "ieved.\n", "codespell")


def what_is_staged_counts() -> None:
    with with_hook() as repository:
        repository.stage("a.py", "# SPDX-License-Identifier: MIT\nx = = 1\n")
        (repository.root / "a.py").write_text("# SPDX-License-Identifier: MIT\nx = 1\n")
        assert "python: syntax" in repository.git("commit", "-qm", "x").stdout
        repository.git("add", "a.py")
        (repository.root / "a.py").write_text("x = = 1\n")
        done = repository.git("commit", "-qm", "x")
        assert done.returncode == 0, done.stdout


def another_hook_is_kept() -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder))
        hook = repository.root / ".git/hooks/pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        done = repository.offer()
        assert done.returncode and "another hook is there" in done.stdout, done.stdout
        assert hook.read_text() == "#!/bin/sh\n"
        # One that does what the message says.
        hook.write_text("#!/bin/sh\nmine\nexec scripts/pre-commit.sh\n")
        assert repository.offer().returncode and "mine" in hook.read_text()


def the_hooks_of_other_repositories_are_kept() -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as others:
        repository = Repository(Path(folder))
        repository.git("config", "core.hooksPath", others)
        done = repository.offer()
        assert done.returncode and "outside this clone" in done.stdout, done.stdout
        assert not list(Path(others).iterdir())
        repository.git("config", "core.hooksPath", ".hooks")
        assert repository.offer().returncode == 0 and (repository.root / ".hooks/pre-commit").exists()


def where_the_script_is_not_everything_is_committed() -> None:
    with with_hook() as repository:
        assert repository.offer().returncode == 0  # ours, once more
        (repository.root / "scripts/pre-commit.sh").unlink()
        repository.stage("a.py", "x = 1\n")
        assert repository.git("commit", "-qm", "x").returncode == 0


def regex_of(glob: str) -> str:
    """A section's name of .editorconfig as a regular expression of paths, by EditorConfig's specification 0.17: one with a "/" is
    relative to the file's folder, and "*" matches no "/"."""
    assert not re.search(r"[\[\]!\\]|\.\.", glob), f"{glob}: not known here"
    found, depth = "" if "/" in glob else "(?:.*/)?", 0
    for token in re.findall(r"\*\*|.", glob.removeprefix("/")):
        depth += (token == "{") - (token == "}")
        found += {"**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")", ",": "|" if depth else ","}.get(token, re.escape(token))
    return found


def properties(path: str) -> dict[str, str]:
    """Those that an editor gets for the file: of a later section before an earlier one's."""
    found: dict[str, str] = {}
    applies = True
    for line in (ROOT / ".editorconfig").read_text().splitlines():
        if section := re.fullmatch(r"\[(.*)\]", line):
            applies = bool(re.fullmatch(regex_of(section[1]), path))
        elif applies and (pair := re.fullmatch(r"(\w+) = (\S+)", line)):
            found[pair[1]] = pair[2]
        else:
            assert not applies or not line or line.startswith("#"), line
    return found


def an_editor_is_told_how_each_kind_of_file_is_written() -> None:
    tabs, spaces, as_it_is = {"indent_style": "tab", "indent_size": "8"}, {"indent_style": "space", "indent_size": "4"}, {
        name: "unset" for name in ("charset", "end_of_line", "insert_final_newline", "trim_trailing_whitespace")}
    for glob, wanted in (("kernel/io/io.c", tabs), ("include/uapi/peerdma.h", tabs), ("user/lib/*.cpp", tabs), ("user/lib/*.hpp", tabs), ("tests/*/lib.sh", tabs),
                         (".ci/run", tabs), ("Makefile", {"indent_style": "tab"}), ("kernel/Kbuild", {"indent_style": "tab"}), ("qemu/lab.py", spaces),
                         ("tests/mutants/*.mutant", as_it_is), ("Documentation/upstream/**/*.patch", as_it_is), ("tests/fuzz/corpus/*", as_it_is),
                         ("tests/fuzz/user/corpus/*/*", as_it_is), ("Documentation/testing.md", {"charset": "utf-8", "trim_trailing_whitespace": "true"})):
        paths = [str(path.relative_to(ROOT)) for path in ROOT.glob(glob) if path.is_file()]
        assert paths, glob
        for path in paths:
            assert wanted.items() <= properties(path).items(), (path, properties(path))
    assert "indent_style" not in properties("Documentation/testing.md")


if __name__ == "__main__":
    sys.exit(tap.run([what_is_good_is_committed, a_file_without_a_license_is_refused, wrong_syntax_is_refused, an_unused_import_is_refused,
                      a_program_that_is_missing_is_named, many_scripts_are_checked_on_all_cpus, a_format_of_its_own_is_refused,
                      another_version_of_the_formatter_is_named, what_differs_is_formatted,
                      the_format_of_the_kernel_is_that_of_a_cached_one,
                      a_spelling_mistake_is_refused, what_is_staged_counts, another_hook_is_kept,
                      the_hooks_of_other_repositories_are_kept, where_the_script_is_not_everything_is_committed,
                      an_editor_is_told_how_each_kind_of_file_is_written]))
