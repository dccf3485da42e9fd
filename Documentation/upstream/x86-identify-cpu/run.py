#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""run.py BZIMAGE SYMBOLS [on|off]: lets the tick come while identify_cpu() has no capabilities.

BZIMAGE: a kernel with CONFIG_KASAN (generic) and CONFIG_RANDOMIZE_BASE off. SYMBOLS: its System.map, or its
/proc/kallsyms. on, off: whether QEMU's CPU has LA57. QEMU's debugger stub steps through get_cpu_cap() slowly.
Exits with 0 if KASAN complained.
"""
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 400


class Stub:
    """QEMU's end of the remote protocol."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(100):
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                subprocess.run(["sleep", "0.1"], check=True)
        self.file = self.socket.makefile("rb")

    def ask(self, packet: str) -> str:
        self.socket.sendall(f"${packet}#{sum(packet.encode()) & 255:02x}".encode())
        while self.file.read(1) != b"$":
            pass
        answer = b""
        while (byte := self.file.read(1)) != b"#":
            answer += byte
        self.file.read(2)
        self.socket.sendall(b"+")
        return answer.decode()


def main() -> int:
    image, symbols, la57 = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "on"
    # The second time that it is entered is identify_cpu()'s: the first was the early one, before any interrupt.
    address = next(line.split()[0] for line in symbols.read_text().splitlines() if line.split()[2] == "get_cpu_cap")
    with tempfile.TemporaryDirectory() as folder:
        stub, log = Path(folder) / "gdb", Path(folder) / "console"
        qemu = subprocess.Popen(["qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", f"max,la57={la57}", "-m", "512",
                                 "-nodefaults", "-display", "none", "-no-reboot", "-S", "-serial", f"file:{log}",
                                 "-gdb", f"unix:{stub},server,nowait", "-kernel", image,
                                 "-append", "console=ttyS0 earlyprintk=serial panic=-1"])
        try:
            gdb = Stub(stub)
            for _ in range(2):
                gdb.ask("s")
                gdb.ask(f"Z1,{address},1")
                gdb.ask("c")
                gdb.ask(f"z1,{address},1")
            gdb.ask("Qqemu.sstep=1")  # from now on interrupts and timers go on
            for _ in range(STEPS):
                gdb.ask("s")
            gdb.ask("D")
            try:
                qemu.wait(20)
            except subprocess.TimeoutExpired:
                pass
        finally:
            qemu.kill()
            qemu.wait()
        console = log.read_text(errors="replace")
    report = [line for line in console.splitlines() if "KASAN" in line]
    print("\n".join(report[:3]) or "KASAN has nothing to say")
    return not report


if __name__ == "__main__":
    sys.exit(main())
