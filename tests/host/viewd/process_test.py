#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""peerdma-viewd as a process, without ublk: what it tells the service manager, SIGHUP, its end, and the command with it."""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("PEERDMA_BUILD") or ROOT / "build").resolve()


class Service:
    """The process, with its folders and a socket of the service manager's in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "views.d").mkdir()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.settimeout(60)
        self.manager.bind(str(folder / "notify"))
        self.errors = (folder / "stderr").open("w")

    def begin(self) -> None:
        self.process = subprocess.Popen(
            [BUILD / "bin/peerdma-viewd", "--folder", self.folder / "state", "--conf-dir", self.folder / "views.d",
             "--socket", self.folder / "socket", "--threads", "1"],
            env=os.environ | {"NOTIFY_SOCKET": str(self.folder / "notify")}, stderr=self.errors)

    def told(self) -> str:
        return self.manager.recv(4096).decode()

    def define(self, name: str, text: str) -> Path:
        (self.folder / "views.d" / name).write_text(text)
        return self.folder / "views.d" / name

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([BUILD / "bin/peerdma", "view", words[0], "--socket", self.folder / "socket", *words[1:]],
                              capture_output=True, text=True, timeout=60)

    def said(self) -> str:
        return (self.folder / "stderr").read_text()


@contextlib.contextmanager
def service() -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as name:
        one = Service(Path(name))
        try:
            yield one
        finally:
            if hasattr(one, "process"):
                one.process.kill()
                one.process.wait()
            one.errors.close()
            one.manager.close()


def it_is_ready_when_its_socket_answers() -> None:
    with service() as one:
        one.begin()
        assert one.told() == "READY=1"
        listed = one.ask("ls")
        assert (listed.returncode, listed.stdout) == (0, "no view is published\n"), listed
        one.process.send_signal(signal.SIGTERM)
        assert one.told() == "STOPPING=1"
        assert one.process.wait(60) == 0
        assert not (one.folder / "socket").exists()


def it_reads_definitions_again_upon_a_signal() -> None:
    with service() as one:
        bad = one.define("bad.conf", "file = /a\ncodec = u33\n")
        one.begin()
        assert one.told() == "READY=1"
        assert f"peerdma-viewd: {bad}:2: codec = u33: unknown" in one.said(), one.said()
        bad.unlink()
        tokens = one.folder / "tokens"
        tokens.write_bytes(struct.pack("<3I", 1, 2, 3))
        good = one.define("good.conf", f"file = {tokens}\ncodec = u32\n")
        one.process.send_signal(signal.SIGHUP)
        assert one.told().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert one.told() == "READY=1"
        listed = one.ask("ls").stdout
        assert "bad" not in listed and str(good) in listed, listed


def a_view_that_gets_no_device_fails_with_the_reason() -> None:
    if Path("/dev/ublk-control").exists():
        raise tap.Skip("this machine has ublk")
    with service() as one:
        one.begin()
        one.told()
        tokens = one.folder / "tokens"
        tokens.write_bytes(struct.pack("<3I", 1, 2, 3))
        failed = one.ask("publish", "v", str(tokens), "--codec", "u32", "--wait")
        assert failed.returncode == 1 and "/dev/ublk-control (is the module ublk_drv loaded?)" in failed.stderr, failed
        assert one.ask("withdraw", "v").returncode == 0
        assert [path.name for path in (one.folder / "state").iterdir()] == [".remainder"]


def a_second_one_does_not_take_its_socket() -> None:
    with service() as one:
        one.begin()
        one.told()
        second = subprocess.run([BUILD / "bin/peerdma-viewd", "--folder", one.folder / "other", "--socket", one.folder / "socket"],
                                capture_output=True, text=True, timeout=60)
        assert second.returncode == 1 and second.stderr == f"peerdma-viewd: {one.folder}/socket: another service is running\n", second
        assert one.ask("ls").returncode == 0


def wrong_words_end_with_2_before_anything_is_made() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([BUILD / "bin/peerdma-viewd", "--folder", folder / "state", "--socket", folder / "socket", *words],
                                  capture_output=True, text=True, timeout=60)

        for words, why in ((("--what",), "The following argument was not expected: --what"),
                           (("word",), "The following argument was not expected: word"),
                           (("--memory", "1"), "--memory: Value 1 not in range 2 to 1048576"),
                           (("--port", "ib:x:1"), "port ib:x:1: expected TRANSPORT:ADDRESS:PORT, for example rdma:192.168.1.1:4420")):
            refused = run(*words)
            assert (refused.returncode, refused.stdout, refused.stderr) == (
                2, "", f"peerdma-viewd: {why}; see peerdma-viewd --help\n"), refused
        assert list(folder.iterdir()) == []
        shown = run("--help")
        assert shown.returncode == 0 and "--decompress-memory" in shown.stdout and shown.stderr == "", shown


if __name__ == "__main__":
    sys.exit(tap.run([it_is_ready_when_its_socket_answers, it_reads_definitions_again_upon_a_signal,
                      a_view_that_gets_no_device_fails_with_the_reason, a_second_one_does_not_take_its_socket,
                      wrong_words_end_with_2_before_anything_is_made]))
