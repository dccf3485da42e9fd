# SPDX-License-Identifier: MIT
"""Selects the tests that changed files can affect: `make check CHANGED=1`.

A file without a rule affects everything, so a missing rule costs time but never a test.
"""
from __future__ import annotations

import functools
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# Tests that read the guest tests' headers and texts.
READERS = "host:compat|docs_test|tiers_test|mutants_test|changed_test|lab_test|lab_random|setup_test"

# The first rule whose pattern matches a file's path decides. Words: host:REGEX and guest:REGEX select tests by name,
# group:NAME by group; uses:NAME guest tests and runs that must fail that name the program, or another that names it, and
# those that carry them; carries:NAME those that run the guest test on a remote drive; sources:NAME those that source the file, and
# those that carry them; meta the runs of the lab that must fail; power the cut of the guest's power. What a script sources counts as
# its own text. A host test selects those that import it, too. No words: no test reads the file.
RULES: list[tuple[str, tuple[str, ...]]] = [
    (r"\.gitignore", ()),
    (r"\.editorconfig", ("host:hook_test",)),
    (r"\.dockerignore", ("host:setup_test",)),
    (r"LICENSE.*|Documentation/.*\.(?:svg|dot|png)", ("host:docs_test|results_test",)),
    # Guest tests compile the examples; some of them do so for RDMA.
    (r"Documentation/examples/.*", ("host:.*", "guest:docs.*", "guest:example", "group:rdma")),
    (r"(?:README|CHANGELOG|SECURITY)\.md|Documentation/.*|scripts/(?:docs|manpages|comments)\..*", ("host:.*", "guest:docs.*")),
    (r"scripts/(?:format\.sh|hooks\.sh|pre-commit\.sh|spdx\.sh|compile_commands\.py|Containerfile)|\.clang-format", ("host:.*",)),
    (r"kernel/.*", ("host:.*", "guest:.*", "meta", "power")),
    (r"user/cufile/.*", ("host:.*", "group:cufile", "group:cli", "group:rdma")),
    (r"user/verbs/.*", ("host:.*", "group:rdma")),
    (r"user/view/.*", ("host:.*", "guest:.*", "meta", "power")),
    (r"user/viewd/.*", ("host:.*", "group:view")),
    # lib.sh publishes a GPU by the command, for each test, and so does what must fail.
    (r"user/tools/.*", ("host:.*", "guest:.*", "meta", "power")),
    (r"tests/fuzz(?:/|\.py).*", ("host:.*", "group:fuzz", "guest:fabric_fuzz|card_fuzz")),
    (r"tests/mutants/.*|tests/(?:mutants|mutation)\.py", ("host:mutants_test|lab_test|docs_test",)),
    (r"tests/meta/.*", ("meta", "host:changed_test|lab_test|tiers_test|docs_test")),
    # cufile_ways runs these in a guest as well.
    (r"tests/host/cufile/(?:cufile_ways\.py|random_bytes\.hpp|conformance/.*)", ("host:.*", "guest:cufile_ways|card_cufile_ways")),
    # lab_test looks for names of kernels in all tests, docs_test for names that pages have, changed_test for which tests read a file,
    # tiers_test for the tiers.
    (r"tests/host/(?:.*/)?([a-z_0-9]+)\.(?:sh|py)", ("host:{1}|lab_test|docs_test|changed_test|tiers_test",)),
    (r"tests/host/.*", ("host:.*",)),
    (r"tests/guest/(?!lib\.)([a-z_0-9]+)\.sh", ("sources:{1}", READERS)),
    (r"tests/guest/.*/([a-z_0-9]+)\.sh", ("guest:{1}", "carries:{1}", READERS)),
    (r"tests/guest/(?:.*/)?([a-z_0-9]+)\.(?:cpp|py)", ("uses:{1}", "host:lab_test|docs_test|changed_test|compile_commands_test")),
    # The witness of the demos runs it on the host.
    (r"tests/tools/(pattern)\.cpp", ("uses:{1}", "host:lab_test|docs_test|changed_test|compile_commands_test|demo.*")),
    (r"tests/tools/(?:.*/)?([a-z_0-9]+)\.cpp", ("uses:{1}", "host:lab_test|docs_test|changed_test|compile_commands_test")),
]
# What a script sources, or executes.
SOURCE = re.compile(r'^\s*(?:\. )?"\$LAB_ROOT/(tests/[^"$*]+\.sh)"', re.M)
PEER = re.compile(r"^# peer: (\w+)", re.M)  # what runs in the second guest


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text()


@functools.cache
def sourced(root: Path, script: Path) -> frozenset[Path]:
    """The script, what it sources, and what that sources."""
    found: set[Path] = set()
    added = {script}
    while added:
        found |= added
        named = {name for path in added for name in SOURCE.findall(text_of(path))}
        named |= {f"tests/peer/{name}.sh" for path in added for name in PEER.findall(text_of(path))}
        added = {root / name for name in named} - found
    return frozenset(found)


def names(root: Path, script: Path, program: str) -> bool:
    """Whether a line other than a comment names the program."""
    line = re.compile(rf"^(?!\s*#).*\b{re.escape(program)}\b", re.M)
    return any(program in text_of(path) and line.search(text_of(path)) for path in sourced(root, script))


def carries(root: Path, script: Path, test: str) -> bool:
    """Whether the script runs the other test with `carried`, by its name or in a loop over names, or sources it."""
    runs = re.compile(rf"^\s*(?:carried|for name in)\b.*\s{re.escape(test)}(?:[\s;]|$)", re.M)
    files = sourced(root, script)
    return any(path.stem == test for path in files) or any(test in text_of(path) and runs.search(text_of(path))
                                                           and re.search(r"^\s*carried\b", text_of(path), re.M) for path in files)


def with_those_that_run_it(root: Path, program: str) -> set[str]:
    """The program, and guest programs that name it in a string, as they may execute it."""
    texts = {path.stem: text_of(path) for path in (root / "tests").rglob("*.cpp") if "host" not in path.parts}
    found, added = set(), {program}
    while added:
        found |= added
        added = {name for name, text in texts.items() for other in added if f'"{other}"' in text} - found
    return found


@dataclass
class Affected:
    """What to run; `text` gives the reason."""
    text: str = "everything that the tier has"
    all: bool = True
    hosts: list[str] = field(default_factory=list)   # regular expressions of names
    guests: list[str] = field(default_factory=list)  # likewise
    groups: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)   # guest tests
    scripts: set[Path] = field(default_factory=set)  # of guests, that runs that must fail may execute
    runs_meta: bool = False
    runs_power: bool = False
    root: Path = Path()

    @classmethod
    def everything(cls) -> Affected:
        return cls()

    @classmethod
    def of_changes(cls, root: Path) -> Affected:
        base = upstream(root)
        if not base:
            return cls("everything that the tier has: the branch has no upstream to compare with, or its remote's default branch is not known")
        return cls.of_files(root, changed_files(root, base))

    @classmethod
    def of_files(cls, root: Path, files: list[str]) -> Affected:
        affected = cls(f"what {len(files)} changed files can affect", False, root=root)
        for path in files:
            if not affected.add(path):
                return cls(f"everything that the tier has: {path} may affect all of it")
        return affected

    def add(self, path: str) -> bool:
        """Returns False if the file may affect everything."""
        if path.endswith(".sh"):
            self.scripts.add(self.root / path)
        for pattern, words in RULES:
            if found := re.fullmatch(pattern, path):
                for word in words:
                    kind, _, value = word.partition(":")
                    value = value.replace("{1}", re.escape(found[1]) if found.groups() else "")
                    if "{1}" in word and not self.is_test(kind, found[1]):
                        return False
                    if kind == "host":
                        self.hosts += [value, *(self.importers(found[1]) if "{1}" in word else [])]
                    elif kind == "guest":
                        self.guests.append(value)
                    elif kind == "group":
                        self.groups.add(value)
                    elif kind == "uses":
                        programs = with_those_that_run_it(self.root, found[1])
                        self.programs |= programs
                        self.carried |= {path.stem for path in self.guest_scripts() if any(names(self.root, path, program) for program in programs)}
                    elif kind == "carries":
                        self.carried.add(found[1])
                    elif kind == "sources":
                        those = {script.stem for script in self.guest_scripts() if self.root / path in sourced(self.root, script)}
                        self.guests += map(re.escape, those)
                        self.carried |= those
                    elif kind == "power":
                        self.runs_power = True
                    else:
                        self.runs_meta = True
                return True
        return False

    def importers(self, module: str) -> list[str]:
        """The host tests that import it."""
        return [path.stem for path in (self.root / "tests/host").rglob("*.py")
                if re.search(rf"^\s*(?:from|import) {re.escape(module)}\b", path.read_text(), re.M)]

    def guest_scripts(self) -> list[Path]:
        return [*(self.root / "tests/guest").glob("*/**/*.sh"), *(self.root / "tests/perf").glob("*.sh")]

    def is_test(self, kind: str, name: str) -> bool:
        """Whether name is a test, or, for "uses" and "sources", what a guest test runs or sources; False for a library's file."""
        if kind == "host":
            return any(path.stat().st_mode & 0o100 for path in (self.root / "tests/host").rglob(f"{name}.*"))
        tests = self.guest_scripts()
        if kind in ("guest", "carries"):
            return any(path.stem == name for path in tests)
        if kind == "sources":
            return any(self.root / f"tests/guest/{name}.sh" in sourced(self.root, path) for path in tests)
        return any(names(self.root, path, name) for path in tests)

    def host(self, path: Path) -> bool:
        return self.all or any(re.fullmatch(regex, path.stem) for regex in self.hosts)

    def guest(self, name: str, groups: list[str], path: Path) -> bool:
        if self.all or any(re.fullmatch(regex, name) for regex in self.guests) or self.groups & set(groups):
            return True
        return any(names(self.root, path, program) for program in self.programs) or \
            any(carries(self.root, path, test) for test in self.carried)

    def meta(self, path: Path) -> bool:
        return self.all or self.runs_meta or bool(self.scripts & sourced(self.root, path)) or \
            any(names(self.root, path, program) for program in self.programs)

    @property
    def power(self) -> bool:
        return self.all or self.runs_power


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def upstream(root: Path) -> str:
    """The commit at which the branch left its upstream, or "" if that is not known."""
    try:
        branch = git(root, "symbolic-ref", "HEAD").strip()
        remote, _, there = git(root, "for-each-ref", "--format=%(upstream:remotename) %(upstream:remoteref)", branch).strip().partition(" ")
        if not remote and len(remotes := git(root, "remote").split()) == 1:
            remote, there = remotes[0], branch
        # The branch does not differ from its own pushed copy, and may have none: compare it with the remote's default branch.
        if there == branch:
            default = git(root, "for-each-ref", "--format=%(objectname)", f"refs/remotes/{remote}/HEAD").strip()
            return default and git(root, "merge-base", "HEAD", default).strip()
        return git(root, "merge-base", "HEAD", "@{upstream}").strip()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return ""


def changed_files(root: Path, base: str) -> list[str]:
    """Files changed since the commit, and files that git does not know."""
    names = git(root, "diff", "-z", "--name-only", "--no-renames", base) + git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return sorted(set(filter(None, names.split("\0"))))
