#!/usr/bin/python3
# SPDX-License-Identifier: MIT
# tier: check
"""peerdma check on recorded machines that this test makes: a good one, and variants with one fault each.

What only the module or the running machine can tell (whether the node opens, providers, routes) is tested by
check_test.cpp and the guest test check.sh.
"""
from __future__ import annotations

import json
import os
import re
import resource as limit
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "docs"), str(HERE.parents[1]), str(HERE.parents[3] / "qemu")]
import lab  # noqa: E402
import reasons  # noqa: E402
import tap  # noqa: E402

BUILD = Path(os.environ.get("PEERDMA_BUILD") or HERE.parents[3] / "build")
TOOL = BUILD / "bin/peerdma"
K = f"{lab.NEWEST}.13"
PORT, UP, DOWN, DOWN2 = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
DRIVE, GPU = "0000:03:00.0", "0000:04:00.0"
GIB = 1 << 30
# Flags of include/linux/ioport.h: memory; memory, 64-bit and prefetchable.
MEM, WIDE = 0x40200, 0x14220C
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MEMTYPES = "sys/kernel/debug/x86/pat_memtype_list"
DEP = f"lib/modules/{K}/modules.dep"
CONFIG = f"boot/config-{K}"
OPTIONS = "CONFIG_ZONE_DEVICE=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_IO_URING=y\nCONFIG_MODULE_SIG=y\nCONFIG_SECURITY_LOCKDOWN_LSM=y\n"
HEADERS = f"/usr/src/linux-headers-{K}"
# A kernel with all modules installed.
ALL = {DEP: "updates/dkms/peerdma_nfs.ko: updates/dkms/peerdma_rdma.ko updates/dkms/peerdma.ko\n"
            "updates/dkms/peerdma_nvidia.ko: updates/dkms/peerdma.ko\nupdates/dkms/peerdma_rdma.ko: updates/dkms/peerdma.ko\n"
            "updates/dkms/peerdma.ko:\n"}
SIGNATURE = "~Module signature appended~\n"

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nNAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n'

Files = dict[str, Any]  # by path: text, bytes, a link's target, or another kind of node


class Link(str):
    pass


class Sparse(int):
    """A file of this size without data."""


class Node(str):
    """A node that is not a regular file: fifo, socket, device or folder."""

    def make(self, path: Path) -> None:
        if self == "fifo":
            os.mkfifo(path)
        elif self == "socket":
            # Through a short name: socket paths are limited to 108 bytes.
            there = os.open(path.parent, os.O_PATH)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{there}/{path.name}")
            os.close(there)
        elif self == "device":
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        else:
            path.mkdir()


def config_space(acs: int | None = None) -> bytes:
    """4096 bytes with, if given, an ACS capability with this control register behind another capability."""
    space = bytearray(4096)
    # ID, version, offset of the next one.
    struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | (0x140 << 20 if acs is not None else 0))
    if acs is not None:
        struct.pack_into("<IHH", space, 0x140, 0x000D | 1 << 16, 0x005F, acs)
    return bytes(space)


def resource(size: int, flags: int = WIDE, bar: int = 2) -> str:
    lines = [f"{0:#018x} {0:#018x} {0:#018x}"] * 7
    lines[0] = f"{0xFEBD1000:#018x} {0xFEBD1FFF:#018x} {MEM:#018x}"
    if size:
        lines[bar] = f"{0x3800000000:#018x} {0x3800000000 + size - 1:#018x} {flags:#018x}"
    return "\n".join(lines) + "\n"


def memtypes(*ranges: tuple[int, int, str]) -> str:
    return "PAT memtype list:\n" + "".join(f"PAT: [mem {start:#018x}-{end:#018x}] {kind}\n" for start, end, kind in ranges)


class Tree:
    """A machine: the content of its files."""

    def __init__(self) -> None:
        self.files: Files = {}
        self.where: dict[str, str] = {}

    def function(self, pci: str, above: str, code: str, **more: Any) -> None:
        self.where[pci] = f"{self.where.get(above, 'sys/devices/pci0000:00')}/{pci}"
        self.files[f"sys/bus/pci/devices/{pci}"] = Link("../../../../" + self.where[pci])
        for name, text in ({"class": code, "config": config_space(), "resource": resource(0)} | more).items():
            self.set(pci, name, text)

    def set(self, pci: str, name: str, text: Any) -> None:
        self.files[f"{self.where[pci]}/{name}"] = text

    def disk(self, name: str, home: str, number: int, **more: str) -> None:
        """Adds a device folder below /sys/devices with these files."""
        self.files[f"sys/class/block/{name}"] = Link(f"../../../{home}/{name}")
        if "partition" not in more:
            self.files[f"sys/block/{name}"] = Link(f"../../{home}/{name}")
        self.files[f"sys/dev/block/259:{number}"] = Link(f"../../../{home}/{name}")
        for key, text in ({"size": "2048\n"} | more).items():
            self.files[f"{home}/{name}/{key}"] = text

    def drive(self, number: int, home: str, transport: str = "pcie", disk: str = "", minor: int = 0) -> None:
        home = f"{home}/nvme/nvme{number}"
        self.files[f"{home}/transport"] = transport + "\n"
        self.disk(disk or f"nvme{number}n1", home, minor, device=Link(".."))


def good() -> Tree:
    tree = Tree()
    for pci, above in ((PORT, ""), (UP, PORT), (DOWN, UP), (DOWN2, UP)):
        tree.function(pci, above, "0x060400\n", config=config_space(0 if pci in (DOWN, DOWN2) else None))
    tree.function(DRIVE, DOWN, "0x010802\n", resource=resource(16384, MEM))
    tree.function(GPU, DOWN2, "0x030200\n", resource=resource(16 * GIB))
    tree.set(GPU, "resource2_resize", f"{0x7F00:016x}\n")
    tree.set(DRIVE, "driver", Link("../../../../../../../bus/pci/drivers/nvme"))
    tree.drive(0, tree.where[DRIVE])
    home = tree.where[DRIVE] + "/nvme/nvme0/nvme0n1"
    tree.disk("nvme0n1p1", home, 1, partition="1\n")
    tree.files |= {
        "etc/os-release": DEBIAN,
        "proc/sys/kernel/osrelease": K + "\n",
        "proc/sys/kernel/io_uring_disabled": "0\n",
        "proc/cmdline": "quiet\n",
        "proc/cpuinfo": "vendor_id\t: GenuineIntel\ncpu family\t: 6\n",
        "proc/self/status": "Name:\tpeerdma\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
        "proc/self/limits": limits("8388608", "1024"),
        "proc/self/uid_map": "         0          0 4294967295\n",
        "proc/self/cgroup": "0::/user.slice/mine\n",
        "proc/self/mountinfo": mounts("36 1 259:1 / /mnt/my\\040disk rw shared:1 - ext4 /dev/nvme0n1p1 rw"),
        CONFIG: OPTIONS,
        f"lib/modules/{K}/build": Link(HEADERS),
        f"{HEADERS[1:]}/Makefile": "",
        DEP: "kernel/a.ko:\nupdates/dkms/peerdma.ko:\nupdates/dkms/z.ko: kernel/a.ko\n",
        f"lib/modules/{K}/updates/dkms/peerdma.ko": "ELF",
        "sys/module/peerdma/parameters/user_max": "0\n",
        "sys/module/module/parameters/sig_enforce": "N\n",
        "sys/module/nvme_core/parameters/multipath": "Y\n",
        MEMTYPES: memtypes((0xFEBD1000, 0xFEBD2000, "uncached-minus")),
        "sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
        "dev/peerdma": "",
        "dev/nvme0n1": "",
    }
    return tree


def limits(memlock: str, nofile: str) -> str:
    head = "Limit                     Soft Limit           Hard Limit           Units     \n"
    return head + f"Max open files            {nofile:21}1048576              files     \n" \
                  f"Max locked memory         {memlock:21}8388608              bytes     \n"


def mounts(*lines: str) -> str:
    return "\n".join(("22 1 0:21 / / rw - rootfs rootfs rw",) + lines) + "\n"


def record(tree: Tree, folder: Path) -> None:
    for name, what in tree.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, Link):
            path.symlink_to(what)
        elif isinstance(what, Sparse):
            with path.open("wb") as file:
                file.truncate(what)
        elif isinstance(what, Node):
            what.make(path)
        else:
            path.write_bytes(what if isinstance(what, bytes) else what.encode())


# The possible first lines.
HEADLINES = ("ready for direct I/O", "works, bounced: ", "cannot work here: ", "cannot work here yet: ")

# The library's text for each reason, by name.
WORDS = {reasons.reason_of("name")(number): reasons.reason_of("text")(number) for number in range(128)}


def limited() -> None:
    """Limits the command's memory, so that no record can exhaust it."""
    limit.setrlimit(limit.RLIMIT_AS, (1 << 29, 1 << 29))


class Seen:
    """The output of peerdma check for a machine."""

    states: dict[str, set[str]] = {}  # of all machines

    def __init__(self, tree: Tree, *targets: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="check-tree-"))
        try:
            record(tree, folder)
            words = [TOOL, "check", "--root", folder, *targets]
            how: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 60, "preexec_fn": limited}
            done = subprocess.run([*words, "--json"], **how)
            shown, all_of_it = subprocess.run(words, **how), subprocess.run([*words, "--verbose"], **how)
        finally:
            shutil.rmtree(folder)
        self.summary, self.text = shown.stdout, all_of_it.stdout
        assert shown.returncode == all_of_it.returncode == done.returncode and not shown.stderr + all_of_it.stderr, (shown, all_of_it)
        assert done.returncode in (0, 1) and not done.stderr, done
        self.status, self.json = done.returncode, json.loads(done.stdout)
        assert self.json["ok"] is True and self.json["ready"] is (self.status == 0)
        self.items = self.json["items"]
        for item in self.items:
            assert list(item) == ["id", "about", "state", "found", "why", "change", "undo"], item
            assert item["found"] and item["why"], item
            # Reasons appear with the library's text.
            for name in re.findall(r"\b([A-Z][A-Z_]+): ", item["found"]):
                assert name not in WORDS or f"{name}: {WORDS[name]}" in item["found"], item
            assert (item["state"] == "good") == (not item["change"]) == (not item["undo"]), item
            Seen.states.setdefault(item["id"], set()).add(item["state"])
        self.commands = "\n".join(item["change"] + "\n" + item["undo"] for item in self.items)
        assert (self.status == 1) == any(item["state"] == "bad" for item in self.items)
        self.headline = self.summary.split("\n")[0]
        self.one_screen()

    def one_screen(self) -> None:
        """Holds for any machine: bad items come first, omissions are counted, and --verbose prints everything."""
        lines = self.summary.splitlines()
        assert 2 <= len(lines) <= 24 and max(map(len, lines)) <= 100, self.summary
        assert self.headline.startswith(HEADLINES) and self.text.startswith(self.headline + "\n"), self.summary
        assert lines[-1].endswith("peerdma check --verbose"), self.summary
        states = [line[:5].strip() for line in lines[1:] if line.startswith(("bad ", "warn "))]
        assert states == sorted(states), self.summary
        bad = [item for item in self.items if item["state"] == "bad"]
        if not self.headline.startswith("cannot work here: no GPU"):
            for item in bad:
                assert re.search(rf"^bad  {item['id']} .* -> \S", self.summary, re.M) or " more that are bad or warn\n" in self.summary, self.summary
            for word, state in (("not known", "unknown"), ("good", "good")):
                if any(item["state"] == state for item in self.items if state == "unknown"):
                    assert re.search(rf"^{word}: ", self.summary, re.M), self.summary
        for item in self.items:
            for key in ("found", "why", "change", "undo"):
                assert item[key].replace("\\", "\\\\") in self.text, (key, item)

    def item(self, name: str) -> dict[str, Any]:
        found = [item for item in self.items if item["id"] == name]
        assert len(found) == 1, (name, found)
        return found[0]

    def is_(self, name: str, state: str, found: str = "", change: str = "", undo: str = "") -> None:
        item = self.item(name)
        assert item["state"] == state and found in item["found"] and change in item["change"] and undo in item["undo"], item


def look(*targets: str, drop: tuple[str, ...] = (), **files: Any) -> Seen:
    """The good machine with other files; "__" in a name stands for "/"."""
    tree = good()
    tree.files |= {name.replace("__", "/"): what for name, what in files.items()}
    return without(tree, drop, *targets)


def without(tree: Tree, drop: tuple[str, ...], *targets: str) -> Seen:
    tree.files = {name: what for name, what in tree.files.items() if not name.startswith(drop)} if drop else tree.files
    return Seen(tree, *targets)


def with_files(files: Files, *targets: str, drop: tuple[str, ...] = ()) -> Seen:
    tree = good()
    tree.files |= files
    return without(tree, drop, *targets)


# No disks at all.
NO_DISKS = ("sys/block", "sys/class/block")


# --- The machines

def a_good_host() -> None:
    seen = look()
    assert seen.status == 0, seen.text
    for item in seen.items:
        # A record cannot tell what only the module knows.
        want = "unknown" if item["id"] in ("node", "providers", "route") else "good"
        assert item["state"] == want, item
    seen.is_("disks", "good", "nvme0n1")
    seen.is_("bar", "good", "BAR 2, 16 GiB, 64-bit, prefetchable, resized to all")
    seen.is_("driver", "good", "none is bound")
    seen.is_("memtype", "good", "BAR 2: not mapped")
    seen.is_("acs", "good", "does not redirect")
    seen.is_("bridge", "good", "a switch is above both")
    seen.is_("iommu", "good", "off")
    assert len([item for item in seen.items if item["about"] == GPU]) == 3
    # One aligned line for good items.
    assert "\ngood     disks      nvme0n1\n" in seen.text and seen.text.endswith("\nready\n"), seen.text


def headlines() -> None:
    """The headline tells whether direct I/O works, I/O is bounced, or neither, and why."""
    ready = "ready for direct I/O, as far as is known; not known: "
    assert look().headline == ready + "node, providers, route", look().summary
    assert look(drop=("boot/",)).headline == ready + "config, node, providers, route"
    off = {CONFIG: "# CONFIG_PCI_P2PDMA is not set\nCONFIG_ZONE_DEVICE=y\nCONFIG_IO_URING=y\n"}
    assert with_files(off).headline == f"cannot work here: CONFIG_PCI_P2PDMA=y missing in /{CONFIG}"
    # The root cause comes first, not its consequences.
    seen = with_files(off, drop=("sys/module/peerdma", "dev/peerdma"))
    assert seen.headline == f"cannot work here: CONFIG_PCI_P2PDMA=y missing in /{CONFIG}", seen.summary
    assert look(drop=("sys/module/peerdma", "dev/peerdma")).headline == "cannot work here yet: peerdma is not loaded"
    old = {"proc/sys/kernel/osrelease": "5.14.0-570.el9_6.x86_64\n", "etc/os-release": release("rhel", "9.6", "fedora")}
    seen = with_files(old)
    assert seen.headline == "cannot work here: 5.14.0-570.el9_6.x86_64, older than any that the module was built for", seen.summary
    assert f"upgrade to release 10, or build {lab.NEWEST}" in seen.summary, seen.summary
    assert with_files({}, drop=NO_DISKS).headline == "cannot work here: no NVMe disk, by PCI or over RDMA"
    seen = look("0000:05:00.0")
    assert seen.headline == "cannot work here: 0000:05:00.0: there is no such function", seen.summary
    # CUDA memory can be bounced whatever is missing; AMD memory cannot.
    free = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"}
    assert bound("nvidia", free).headline == f"works, bounced: {GPU}: BAR 1 is not static and 2 more"
    assert bound("nvidia", free | off).headline == f"works, bounced: CONFIG_PCI_P2PDMA=y missing in /{CONFIG}"
    assert bound("amdgpu", {}).headline == f"cannot work here: {GPU}: amdgpu does not publish its BAR"
    published = {f"{good().where[GPU]}/p2pmem/size": "17179869184\n"}
    assert bound("amdgpu", published).headline == ready + "node, providers, route"
    # What affects only partial blocks is no obstacle.
    seen = look(proc__self__limits=limits("4095", "1024"))
    assert seen.headline.startswith("ready for direct I/O, but for memlock: ") and seen.status == 1, seen.summary


def without_a_gpu() -> None:
    """The headline reports it, and no advice concerns the kernel."""
    tree = good()
    tree.files = {name: what for name, what in tree.files.items() if GPU not in name}
    tree.files[CONFIG] = "# CONFIG_PCI_P2PDMA is not set\n"
    seen = without(tree, ("sys/module/peerdma", "dev/peerdma"))
    assert seen.status == 1 and seen.headline == "cannot work here: no GPU, and no other device whose memory could be published", seen.summary
    assert len(seen.summary.splitlines()) == 3 and "-> name the device: peerdma check ADDRESS" in seen.summary, seen.summary
    for word in ("kernel", "CONFIG", "boot", "modprobe"):
        assert word not in seen.summary, seen.summary
    # In a container this cannot be known.
    assert not look(drop=("sys/",)).headline.startswith("cannot work here: no GPU")


def eight_of_each(spoil: Any = None) -> Tree:
    """As many drives and GPUs as a GPU server has, all below separate switches."""
    tree = good()
    tree.files = {name: what for name, what in tree.files.items() if GPU not in name and DRIVE not in name and "nvme0n1" not in name}
    for n in range(8):
        port, switch = f"0000:{n + 1}0:01.0", f"0000:{n + 1}1:00.0"
        drive, gpu = f"0000:{n + 1}2:00.0", f"0000:{n + 1}3:00.0"
        tree.function(port, "", "0x060400\n")
        tree.function(switch, port, "0x060400\n")
        tree.function(drive, switch, "0x010802\n", resource=resource(16384, MEM))
        tree.function(gpu, switch, "0x030200\n", resource=resource(128 * GIB))
        tree.set(gpu, "resource2_resize", f"{0x3FF00:016x}\n")
        tree.set(gpu, "driver", Link("../" * tree.where[gpu].count("/") + "bus/pci/drivers/nvidia"))
        tree.drive(n, tree.where[drive], minor=n)
        if spoil:
            spoil(tree, n, drive, gpu)
    return tree


def many_of_one_kind_are_one_line() -> None:
    tree = eight_of_each()
    tree.files["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
    seen = Seen(tree)
    assert len([item for item in seen.items if item["id"] == "driver"]) == 8
    assert re.findall(r"^warn driver .*", seen.summary, re.M) == [
        "warn driver     0000:13:00.0 +7: BAR 1 is not static and 2 more -> option of nvidia, see --verbose"], seen.summary


def the_largest_machine_fits_one_screen() -> None:
    """Each device has its own fault, and all other items are bad, too."""
    def spoil(tree: Tree, n: int, drive: str, gpu: str) -> None:
        tree.set(gpu, "resource", resource((1 << 20) << n % 3) if n % 2 else resource((256 << 20) + (n << 21)))
        tree.set(gpu, "driver", Link("../" * tree.where[gpu].count("/") + f"bus/pci/drivers/driver-of-a-long-name-{n}"))
        tree.files[f"sys/kernel/iommu_groups/{n}/type"] = "DMA\n"
        tree.set(drive, "iommu_group", Link("../" * tree.where[drive].count("/") + f"kernel/iommu_groups/{n}"))
    tree = eight_of_each(spoil)
    tree.files |= {"sys/class/iommu/dmar0/x": "", CONFIG: "CONFIG_MODULE_SIG=y\n", "etc/os-release": release("debian", "12", "", "Debian GNU/Linux"),
                   "proc/sys/kernel/osrelease": "5.10.0-a-release-of-a-very-long-name-that-some-builder-has-chosen-amd64\n",
                   "proc/self/limits": limits("0", "16"), "proc/sys/kernel/io_uring_disabled": "2\n", "proc/self/uid_map": "0 1000 1\n",
                   ".dockerenv": "", "sys/kernel/security/lockdown": "none [integrity] confidentiality\n",
                   MEMTYPES: memtypes((0x3800000000, 0x3800001000, "write-combining"))}
    for n in range(40):
        tree.disk(f"md{n}", "sys/devices/virtual/block", 100 + n)
    seen = without(tree, ("sys/module/peerdma", "dev/peerdma", "lib/"))
    assert len(seen.summary.splitlines()) <= 24 < sum(item["state"] in ("bad", "warn") for item in seen.items), seen.summary
    assert re.search(r"^     \d+ more that are bad or warn$", seen.summary, re.M), seen.summary


def a_pair_that_is_named() -> None:
    for target in ("/mnt/my disk/file", "/mnt/my disk", "/dev/nvme0n1"):
        seen = look(target, "04:00.0")
        seen.is_("filesystem", "good", "block" if target.startswith("/dev") else "ext4")
        seen.is_("disks", "good", f"nvme0n1 (pcie) below {target}")
        seen.is_("bridge", "good", "a switch is above both")
    seen = look("/elsewhere/file")
    seen.is_("filesystem", "bad", "rootfs")
    seen = look("0000:05:00.0")
    seen.is_("driver", "bad", "no such function")


def how_it_is_asked() -> None:
    def status(*words: str) -> int:
        return subprocess.run([TOOL, "check", *words], capture_output=True, check=False).returncode
    assert status("04:00.0", "05:00.0") == 2
    assert status("/a", "/b") == 2
    assert status("/a", "04:00.0", "/b") == 2
    assert status("--what") == 2
    assert status("--root", "/nonexistent") == 1
    assert status("/nonexistent/file") == 1


def kernels() -> None:
    states = {f"{k}{end}": state for k in lab.KERNELS for end, state in ((".1", "good"), (".95+deb13", "good"), ("0.1", "warn"))}
    states |= {"6.99.1": "warn", "6.1.0-30": "warn", "7.3.4+deb13-amd64": "warn", "5.15.1": "bad", "strange": "unknown"}
    for release, state in states.items():
        seen = look(proc__sys__kernel__osrelease=release + "\n")
        seen.is_("kernel", state, release)
        assert set(re.findall(r"\d+\.\d+", seen.item("kernel")["why"].partition(";")[0])) == set(lab.KERNELS), seen.item("kernel")
        # A kernel that the module merely compiles for is never advised.
        change = seen.item("kernel")["change"]
        assert "trixie-backports linux-image-amd64" not in change and ("snapshot.debian.org" in change) == (state in ("warn", "bad")), change
        assert ("compiles for" in seen.item("kernel")["found"]) == release.startswith(("6.1.", "7.3.")), seen.item("kernel")
        assert ("peerdma selftest" in change) == (state == "warn"), change


def p2pdma_off() -> None:
    seen = with_files({CONFIG: "# CONFIG_PCI_P2PDMA is not set\nCONFIG_ZONE_DEVICE=y\nCONFIG_IO_URING=y\n"})
    seen.is_("config", "bad", "CONFIG_PCI_P2PDMA=y missing", "linux-image-" + lab.NEWEST.replace(".", "[.]") + "[.]")
    assert seen.status == 1 and seen.text.endswith("\nnot ready\n") and f"           change  boot a {lab.NEWEST} of Debian 13's: apt install" in seen.text
    with_files({CONFIG: "CONFIG_PCI_P2PDMA=y\nCONFIG_ZONE_DEVICE=y\n"}).is_("config", "warn", "no rings")
    look(drop=("boot/",)).is_("config", "unknown")


def the_module() -> None:
    gone = ("sys/module/peerdma", "dev/peerdma")
    look(drop=gone).is_("module", "bad", "not loaded", "modprobe peerdma")
    look(drop=gone + ("lib/",)).is_("module", "bad", "not loaded", "insmod")
    # Another module of ours does not count.
    with_files({DEP: "updates/dkms/peerdma_rdma.ko: updates/dkms/peerdma.ko\n"}, drop=gone).is_("module", "bad", "not loaded", "insmod peerdma.ko")
    seen = look(drop=gone)
    seen.is_("node", "bad", "ENOENT", "load the module")
    seen.is_("bridge", "good")


def headers() -> None:
    gone = ("sys/module/peerdma", "dev/peerdma")
    build, none = f"lib/modules/{K}/build", {DEP: "kernel/a.ko:\n"}
    seen = with_files(none, drop=gone)
    seen.is_("headers", "good", HEADERS)
    # A dangling link of a removed package, and no link.
    for drop in (gone + (HEADERS[1:],), gone + (build,)):
        seen = with_files(none, drop=drop)
        seen.is_("headers", "bad", f"/lib/modules/{K}/build", f"apt install linux-headers-{K}", f"apt purge linux-headers-{K}")
        assert "KDIR=" in seen.item("headers")["change"]
    # A folder instead of the link.
    tree = good()
    del tree.files[build]
    tree.files |= none | {build + "/Makefile": ""}
    without(tree, gone + (HEADERS[1:],)).is_("headers", "good", f"/lib/modules/{K}/build")
    # With a module present no headers are needed.
    look(drop=gone + (build,)).is_("headers", "good", "peerdma is installed")
    with_files(none, drop=(build,)).is_("headers", "good", "peerdma is loaded")
    with_files(none, drop=gone + (build, "sys/")).is_("headers", "unknown", "not known without /sys")


def secure_boot() -> None:
    absent = ("sys/module/peerdma/",)
    on: Files = {SECURE_BOOT: b"\x06\0\0\0\x01", "sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}
    module = f"lib/modules/{K}/updates/dkms/peerdma.ko"
    with_files(on).is_("signing", "good", "Secure Boot on, lockdown integrity, sig_enforce off: it let the module in")
    with_files(on, drop=absent).is_("signing", "bad", "has no signature", "mokutil --import", "mokutil --delete")
    with_files(on | {module: "ELF" + SIGNATURE}, drop=absent).is_("signing", "warn", "signed; whether", "modprobe peerdma")
    # The module itself is examined, not a module that depends on it.
    with_files(on | ALL | {module: "ELF" + SIGNATURE}, drop=absent).is_("signing", "warn", "signed; whether", "modprobe peerdma")
    with_files(on, drop=absent + ("lib/",)).is_("signing", "bad", "not installed")
    with_files(on | {DEP: "updates/dkms/peerdma.ko.xz:\n"}, drop=absent).is_("signing", "unknown", "peerdma.ko.xz")
    with_files({SECURE_BOOT: b"\x06\0\0\0\x01"}, drop=absent + ("sys/kernel/security",)).is_("signing", "unknown", change="mount -t securityfs")
    with_files({"sys/module/module/parameters/sig_enforce": "Y\n"}, drop=absent).is_("signing", "bad", "sig_enforce on")
    with_files({SECURE_BOOT: b"\x06\0\0\0\0"}, drop=absent).is_("signing", "good", "Secure Boot off")
    look(drop=absent).is_("signing", "good", "Secure Boot unknown, lockdown none, sig_enforce off")
    # What cannot be read is not reported as off: EFI without its variables, and a container that hides even the
    # presence of EFI.
    hidden = absent + ("sys/kernel/security",)
    for more in ({}, {"sys/firmware/efi/efivars/x": ""}, {SECURE_BOOT: b"\x06\0\0\0\0"}):
        with_files(more, drop=hidden).is_("signing", "unknown", "lockdown unknown", "mount -t securityfs", "umount")
    blind = absent + ("sys/module/module",)
    look(drop=blind).is_("signing", "unknown", "sig_enforce unknown", "on the host itself", "it changes nothing")
    look(drop=blind + ("boot/",)).is_("signing", "unknown", "sig_enforce unknown")
    # Except for a kernel that was built without the feature.
    with_files({CONFIG: OPTIONS.replace("CONFIG_MODULE_SIG=y\n", "")}, drop=blind + hidden).is_("signing", "good", f"without CONFIG_MODULE_SIG in /{CONFIG}")
    with_files({CONFIG: OPTIONS.replace("CONFIG_SECURITY_LOCKDOWN_LSM=y\n", "")}, drop=hidden).is_("signing", "good", "lockdown none")
    with_files({CONFIG: OPTIONS.replace("CONFIG_SECURITY_LOCKDOWN_LSM=y\n", "")}, drop=blind + hidden).is_("signing", "unknown")


def iommu(kind: str) -> Tree:
    tree = good()
    tree.files["sys/class/iommu/dmar0/x"] = ""
    for number, pci in enumerate((DRIVE, GPU)):
        tree.files[f"sys/kernel/iommu_groups/{number}/type"] = kind + "\n"
        up = "../" * (tree.where[pci].count("/"))
        tree.set(pci, "iommu_group", Link(f"{up}kernel/iommu_groups/{number}"))
    # A function that is not part of the check.
    tree.files["sys/kernel/iommu_groups/7/type"] = "DMA\n"
    return tree


def iommu_translated() -> None:
    Seen(iommu("DMA-FQ")).is_("iommu", "warn", "translated: dmar0 on, 2 of 2 functions", "iommu=pt", "take iommu=pt out")
    Seen(iommu("identity")).is_("iommu", "good", "passthrough: dmar0 on, none of 2 functions")
    tree = iommu("identity")
    without(tree, ("sys/kernel/iommu_groups",)).is_("iommu", "unknown")


def acs_on() -> None:
    for bit in (0x4, 0x8, 0x20):
        tree = good()
        tree.set(DOWN, "config", config_space(bit))
        seen = Seen(tree)
        seen.is_("acs", "warn", f"redirects at {DOWN}", f"pci=disable_acs_redir={DOWN} ", f"take pci=disable_acs_redir={DOWN} out")
        seen.is_("bridge", "unknown", "through the module only")
    tree.set(DOWN2, "config", config_space(bit))
    seen = Seen(tree)
    assert f"disable_acs_redir={DOWN2};{DOWN}" in seen.item("acs")["change"].replace(f"{DOWN};{DOWN2}", f"{DOWN2};{DOWN}")
    # Other ACS bits do no harm: source validation, upstream forwarding.
    tree = good()
    tree.set(DOWN, "config", config_space(0x1 | 0x10))
    Seen(tree).is_("acs", "good")
    # Above the switch it does not matter.
    tree.set(PORT, "config", config_space(0x4))
    Seen(tree).is_("acs", "good")
    # Users other than root can read 64 bytes only.
    tree.set(DOWN, "config", bytes(64))
    seen = Seen(tree)
    seen.is_("acs", "unknown", DOWN, "as root")
    seen.is_("bridge", "unknown")
    # A cyclic chain of capabilities.
    loop = bytearray(config_space(0x4))
    struct.pack_into("<I", loop, 0x100, 0x0001 | 2 << 16 | 0x100 << 20)
    tree.set(DOWN, "config", bytes(loop))
    Seen(tree).is_("acs", "good")


def two_root_ports() -> None:
    tree = good()
    tree.function("0000:00:02.0", "", "0x060400\n", config=config_space(0x4))
    tree.function("0000:05:00.0", "0000:00:02.0", "0x120000\n", resource=resource(GIB))
    seen = Seen(tree, "0000:05:00.0")
    seen.is_("acs", "good", "no switch in common")
    seen.is_("bridge", "unknown")
    tree.files["proc/cpuinfo"] = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\n"
    Seen(tree, "0000:05:00.0").is_("bridge", "good", "Zen")
    tree.files["proc/cpuinfo"] = "vendor_id\t: AuthenticAMD\ncpu family\t: 21\n"
    Seen(tree, "0000:05:00.0").is_("bridge", "unknown")


def small_bar() -> None:
    def gpu(text: str, resize: str = "") -> Seen:
        tree = good()
        tree.set(GPU, "resource", text)
        tree.files.pop(tree.where[GPU] + "/resource2_resize")
        if resize:
            tree.set(GPU, "resource2_resize", resize)
        return Seen(tree, GPU)
    mib = 1 << 20
    gpu(resource(256 * mib), f"{0x7F00:016x}\n").is_("bar", "warn", "256 MiB, 64-bit, prefetchable, of 16 GiB",
        f"echo 14 >/sys/bus/pci/devices/{GPU}/resource2_resize", "echo 8 >")
    gpu(resource(256 * mib)).is_("bar", "warn", "a window", "Resizable BAR")
    gpu(resource(512 * mib)).is_("bar", "good", "not resizable")
    gpu(resource(mib)).is_("bar", "bad", "too small")
    gpu(resource(GIB, MEM)).is_("bar", "bad", "no BAR is 64-bit and prefetchable", "Above 4G Decoding")
    gpu("").is_("bar", "bad", "no memory BAR")
    tree = good()
    tree.set(GPU, "resource", resource(0))
    Seen(tree).is_("bar", "bad", "no device of class", "peerdma check ADDRESS")


def bound(driver: str, files: Files) -> Seen:
    tree = good()
    tree.files |= files
    tree.set(GPU, "driver", Link("../" * tree.where[GPU].count("/") + "bus/pci/drivers/" + driver))
    return Seen(tree)


def nvidia() -> None:
    version, params = "proc/driver/nvidia/version", "proc/driver/nvidia/params"
    proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025\n"
    free = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
    keys = 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1"\n'
    option = 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;RmForceDisableIomapWC=1"'
    p2pmem = {f"{good().where[GPU]}/p2pmem/size": "17179869184\n"}
    uvm: Files = {"sys/module/nvidia_uvm/x": ""}

    def ours(persistent: str, callback: str) -> Files:
        where = "sys/module/peerdma_nvidia/parameters/"
        return {where + "persistent": persistent + "\n", where + "callback": callback + "\n"}

    def of(files: Files, state: str, found: str = "", change: str = "", undo: str = "") -> dict[str, Any]:
        seen = bound("nvidia", {version: free, params: 'RegistryDwords: ""\n'} | ALL | files)
        seen.is_("driver", state, found, change, undo)
        # The GPU belongs to its driver: nothing may advise unbinding it.
        assert f"publish {GPU}" not in seen.text and "publish ADDRESS" not in seen.text and "--force" not in seen.text, seen.text
        return seen.item("driver")

    bound("nvidia", {version: proprietary}).is_("driver", "bad", "proprietary", "nvidia-open", "cuda-drivers")
    bound("nvidia", {}).is_("driver", "unknown", "cannot be read")
    # All that is missing is listed at once, each with its undo.
    item = of({}, "warn", "BAR 1 is not fixed and uncombined, nvidia-uvm is not loaded, peerdma_nvidia is not loaded", option,
              "rm /etc/modprobe.d/nvidia-peerdma.conf")
    assert "modprobe nvidia-uvm" in item["change"] and "modprobe peerdma_nvidia" in item["change"], item
    assert "rmmod nvidia_uvm" in item["undo"] and "rmmod peerdma_nvidia" in item["undo"], item
    item = of({params: keys} | ours("Y", "N"), "warn", "nvidia-uvm is not loaded", "modprobe nvidia-uvm, of CUDA 12.8", "rmmod nvidia_uvm")
    assert "options nvidia" not in item["change"] and "peerdma_nvidia is not loaded" not in item["found"], item
    of({params: keys} | uvm | ours("Y", "N"), "warn", "has not published BAR 1", "CUDA 12.8 (570)", "the old driver")
    of(p2pmem, "warn", "17179869184 of its BAR are published; peerdma_nvidia is not loaded", "modprobe peerdma_nvidia", "rmmod peerdma_nvidia")
    of(p2pmem | {DEP: ""}, "warn", "peerdma_nvidia is not loaded", "insmod peerdma_nvidia.ko; make module builds it", "rmmod peerdma_nvidia")
    of(p2pmem | ours("N", "N"), "warn", "may register nothing", "echo Y >/sys/module/peerdma_nvidia/parameters/persistent", "echo N")
    of(p2pmem | ours("N", "Y"), "good", "persistent=N, callback=Y: its memory can be registered, which was never tried")
    of(p2pmem | ours("Y", "N"), "good", "persistent=Y, callback=N: its memory")
    # With an unbound device present, publishing is good advice.
    tree = good()
    tree.set(GPU, "driver", Link("../" * tree.where[GPU].count("/") + "bus/pci/drivers/nvidia"))
    tree.function("0000:05:00.0", DOWN2, "0x120000\n", resource=resource(GIB))
    assert "peerdma publish ADDRESS" in Seen(tree).item("route")["change"]


def other_drivers() -> None:
    pcie_p2p = "sys/module/amdgpu/parameters/pcie_p2p"
    p2pmem = {f"{good().where[GPU]}/p2pmem/size": "17179869184\n"}
    bound("amdgpu", {pcie_p2p: "N\n"}).is_("driver", "bad", "pcie_p2p=N", "options amdgpu pcie_p2p=1")
    seen = bound("amdgpu", {pcie_p2p: "Y\n"})
    seen.is_("driver", "warn", "amdgpu, pcie_p2p=Y does not publish its BAR", "apt install amdgpu-dkms", "apt purge amdgpu-dkms")
    seen.is_("route", "unknown", change="peerdma_buf_from_dmabuf()", undo="end the program")
    assert "--force" not in seen.text and "peerdma publish" not in seen.text, seen.text
    bound("amdgpu", p2pmem | {"sys/module/peerdma/parameters/revocable_imports": "N\n"}).is_(
        "driver", "good", "17179869184 of its BAR are published: a dma-buf of its memory can be imported, which was never tried on "
        "a GPU, revocable_imports=N")
    bound("xe", {"sys/module/xe/parameters/vram_bar_size": "0\n"}).is_("driver", "warn", "xe, vram_bar_size=0 does not publish", "another device")
    bound("i915", p2pmem).is_("driver", "good", "can be imported")
    bound("vfio-pci", {}).is_("driver", "warn", "vfio-pci has it, and does not share it", f"publish {GPU} --force", "drivers_probe")
    bound("peerdma", {}).is_("driver", "good", "peerdma")


def memory_types() -> None:
    start, end = 0x3800000000, 0x3800000000 + 16 * GIB
    some = memtypes((0, 4096, "write-back"), (start - 8192, start, "write-combining"), (start, start + 4096, "uncached-minus"),
                    (end - 4096, end, "uncached"), (end, end + 4096, "write-back"))
    look(**{MEMTYPES.replace("/", "__"): some}).is_("memtype", "good", "BAR 2: uncached-minus, uncached")
    combined = {MEMTYPES: memtypes((start - 4096, start + 4096, "write-combining"))}
    bound("nvidia", combined).is_("memtype", "warn", "write-combining: VENDOR_WC", "RmForceDisableIomapWC=1", "rm /etc/modprobe.d")
    bound("amdgpu", combined).is_("memtype", "warn", "write-combining, by amdgpu: VENDOR_WC", "with another device", "changes nothing")
    bound("vfio-pci", combined).is_("memtype", "warn", "BAR 2: write-combining, by vfio-pci",
                                    f"echo {GPU} >/sys/bus/pci/drivers/vfio-pci/unbind", "drivers_probe")
    with_files({MEMTYPES: memtypes((end - 4096, end, "write-back"))}).is_("memtype", "warn", "write-back, by no driver", "sysfb_init", "update-grub")
    look(drop=(MEMTYPES,)).is_("memtype", "unknown", "pat_memtype_list cannot be read (ENOENT)", "mount -t debugfs", "umount")


def multipath(transport: str) -> Tree:
    """A drive with two paths, one over PCI."""
    tree = good()
    tree.files = {name: what for name, what in tree.files.items() if "nvme0n1" not in name}
    tree.disk("nvme1n1", "sys/devices/virtual/nvme-subsystem/nvme-subsys1", 5)
    tree.drive(1, tree.where[DRIVE], disk="nvme1c1n1", minor=6)
    tree.drive(2, "sys/devices/virtual/nvme-fabrics/ctl", transport, "nvme1c2n1", 7)
    return tree


def nvme_multipath() -> None:
    seen = Seen(multipath("tcp"))
    seen.is_("multipath", "bad", "nvme1c2n1 (tcp) cannot", "multipath=N", "nvme connect")
    seen.is_("disks", "good", "nvme1n1")
    seen = Seen(multipath("pcie"))
    seen.is_("multipath", "good", "nvme1c1n1 (pcie), nvme1c2n1 (pcie): each is asked")
    tree = multipath("pcie")
    tree.files["dev/nvme1n1"] = ""
    Seen(tree, "/dev/nvme1n1").is_("disks", "good", "nvme1c1n1 (pcie), nvme1c2n1 (pcie) below")
    look(sys__module__nvme_core__parameters__multipath="N\n").is_("multipath", "good", "off")


def rdma() -> None:
    tree = multipath("rdma")
    software = {"sys/class/infiniband/rxe0/parent": "eth0\n"}
    module = {"sys/module/peerdma_rdma/parameters/allow_software": "N\n"}
    Seen(tree).is_("rdma", "bad", "nvme1c2n1 is over RDMA", "insmod peerdma_rdma.ko; make module builds it", "rmmod peerdma_rdma")
    tree.files |= ALL
    Seen(tree).is_("rdma", "bad", "nvme1c2n1 is over RDMA", "modprobe peerdma_rdma", "rmmod peerdma_rdma")
    tree.files |= software | module
    Seen(tree).is_("rdma", "warn", "rxe0 (software)")
    tree.files["sys/class/infiniband/mlx5_0/device"] = Link("../../../devices/pci0000:00/0000:00:09.0")
    Seen(tree).is_("rdma", "good", "mlx5_0 (0000:00:09.0)")
    with_files(software).is_("rdma", "good", "no disk here needs one")


def stacked(name: str, files: Files, path: str = "/mnt/x/f") -> Seen:
    tree = good()
    home = "sys/devices/virtual/block"
    tree.disk(name, home, 9)
    tree.files |= {f"{home}/{name}/{key}": text for key, text in files.items()}
    tree.files[f"{home}/{name}/slaves/nvme0n1p1"] = Link("x")
    tree.files["proc/self/mountinfo"] = mounts("37 1 259:9 / /mnt/x rw - xfs /dev/whatever rw")
    return Seen(tree, *([path] if path else []))


def stacks() -> None:
    seen = stacked("md0", {"md/level": "raid0\n"})
    seen.is_("stack", "good", "md0 is md raid0")
    seen.is_("disks", "good", "nvme0n1 (pcie)")
    seen.is_("acs", "good", "does not redirect")
    stacked("md0", {"md/level": "raid5\n"}).is_("stack", "bad", "raid5", "raid0, raid1", "move it back")
    stacked("md0", {"md/level": "raid5\n"}, "").is_("stack", "warn", "raid5")
    stacked("dm-0", {"dm/uuid": "LVM-x\n", "dm/name": "v-l\n"}).is_("stack", "unknown", "dm-0 (v-l) is dm of LVM", "dmsetup table")
    stacked("dm-0", {"dm/uuid": "CRYPT-LUKS2-x\n", "dm/name": "c\n"}).is_("stack", "bad", "CRYPT")
    stacked("bcache0", {}).is_("stack", "bad", "bcache0")
    tree = good()
    tree.disk("sda", "sys/devices/pci0000:00/0000:00:1f.2/ata1", 8)
    tree.files["dev/sda"] = ""
    Seen(tree, "/dev/sda").is_("disks", "bad", "sda cannot", "NVMe")
    look(drop=NO_DISKS).is_("disks", "bad", "no NVMe disk")


def only_shares() -> None:
    """A machine with remote storage only."""
    def mounted(*lines: str) -> Seen:
        return with_files({"proc/self/mountinfo": mounts(*lines)}, drop=NO_DISKS)
    tcp = "37 1 0:40 / /mnt/tcp rw - nfs4 server:/x rw,proto=tcp"
    for line in (tcp, "37 1 0:40 / /mnt/x rw - fuse server:/x rw,proto=rdma"):
        mounted(line).is_("disks", "bad", "no NVMe disk")
    for proto in ("rdma", "rdma6"):
        seen = mounted(tcp, f"38 1 0:41 / /mnt/my\\040share rw - nfs4 server:/x rw,proto={proto}")
        seen.is_("disks", "warn", "no NVMe disk, by PCI or over RDMA; NFS over RDMA at /mnt/my share", "peerdma check '/mnt/my share'")
        assert seen.status == 0, seen.text


def filesystems() -> None:
    def on(line: str, more: Files | None = None) -> Seen:
        return with_files({"proc/self/mountinfo": mounts("37 1 259:1 / /mnt/x rw - " + line)} | (more or {}), "/mnt/x/f")
    on("xfs /dev/nvme0n1p1 rw").is_("filesystem", "good", "xfs")
    on("ext4 /dev/nvme0n1p1 rw,data=journal").is_("filesystem", "bad", "data=journal", "/etc/fstab")
    on("ext4 /dev/nvme0n1p1 rw,dax=always").is_("filesystem", "bad", "dax=always")
    on("btrfs /dev/nvme0n1p1 rw").is_("filesystem", "bad", "btrfs", "ext4 or xfs")
    on("overlay overlay rw,lowerdir=/a").is_("filesystem", "bad", "overlay", "--volume")
    on("nfs4 server:/x rw,proto=tcp").is_("filesystem", "bad", "other than RDMA", "-o rdma")
    on("nfs4 server:/x rw,proto=udp6").is_("filesystem", "bad", "other than RDMA", "-o rdma")
    for proto in ("rdma", "rdma6"):  # over IPv4 and IPv6
        share = f"nfs4 server:/x rw,proto={proto}"
        on(share).is_("filesystem", "bad", "not loaded", "insmod peerdma_nfs.ko; make module builds it", "rmmod peerdma_nfs")
        on(share, ALL).is_("filesystem", "bad", "not loaded", "modprobe peerdma_nfs", "rmmod peerdma_nfs")
        nfs: Files = {"sys/module/peerdma_nfs/x": "", "proc/sys/sunrpc/rdma_max_inline_read": "4096\n"}
        on(share, nfs).is_("filesystem", "good", "nfs4 over RDMA")
        nfs["proc/sys/sunrpc/rdma_max_inline_write"] = "8192\n"
        on(share, nfs).is_("filesystem", "warn", "nfs4 over RDMA; sunrpc.rdma_max_inline_write=8192, above 4096: ",
                           "sysctl sunrpc.rdma_max_inline_write=4096; umount", "sysctl sunrpc.rdma_max_inline_write=8192; umount")
        on(share).is_("rdma", "bad", "/mnt/x/f is over RDMA", "insmod peerdma_rdma.ko")
        on(share, ALL).is_("rdma", "bad", "/mnt/x/f is over RDMA", "modprobe peerdma_rdma")
    with_files({"proc/self/mountinfo": mounts("37 1 0:40 / /mnt/x rw - nfs server:/x rw,proto=rdma"),
                "sys/module/peerdma_nfs/x": ""}, "/mnt/x").is_("filesystem", "good", "nfs over RDMA")
    on("nfs4 server:/x rw,proto=tcp").is_("rdma", "good", "no disk here needs one")
    look("/x", drop=("proc/self/mountinfo",)).is_("filesystem", "unknown")
    # The deepest mount counts, and the last of two on the same directory.
    lines = mounts("37 1 259:1 / /mnt rw - btrfs /dev/nvme0n1p1 rw", "38 1 259:1 / /mnt/x rw - btrfs /dev/nvme0n1p1 rw",
                   "39 1 259:1 / /mnt/x rw - ext4 /dev/nvme0n1p1 rw", "40 1 259:1 / /mnt/xy rw - btrfs /dev/nvme0n1p1 rw")
    with_files({"proc/self/mountinfo": lines}, "/mnt/x/f").is_("filesystem", "good", "ext4")


def a_container() -> None:
    docker: Files = {".dockerenv": ""}
    with_files(docker).is_("container", "good", "docker")
    seen = with_files(docker | {"proc/self/uid_map": "0 100000 65536\n"}, drop=("dev/peerdma",))
    seen.is_("container", "warn", "in a container of docker, in a user namespace", "on the host")
    seen.is_("node", "bad", "ENOENT", "--device /dev/peerdma", "without")
    seen = look(drop=("sys/",))
    seen.is_("container", "warn", "without /sys", "--volume /sys:/sys:ro")
    for name in ("module", "signing", "bar", "disks", "stack", "multipath", "rdma", "iommu", "acs", "quota"):
        seen.is_(name, "unknown", "not known without /sys")
    seen = look("0000:04:00.0", drop=("sys/",))
    seen.is_("driver", "unknown", "not known without /sys")
    seen.is_("memtype", "unknown", "not known without /sys")
    look(drop=("proc/self/uid_map",)).is_("container", "unknown")


def io_uring() -> None:
    status = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n"
    look(proc__self__status=status).is_("uring", "unknown", "seccomp", "--security-opt")
    off = {"proc/sys/kernel/io_uring_disabled": "2\n"}
    with_files(off).is_("uring", "warn", "io_uring_disabled=2", "sysctl -w kernel.io_uring_disabled=0", "disabled=2")
    with_files({"proc/sys/kernel/io_uring_disabled": "1\n"}).is_("uring", "warn", "io_uring_disabled=1")
    look(drop=("proc/sys/kernel/io_uring",)).is_("uring", "unknown")


def resource_limits() -> None:
    def limited(memlock: str, nofile: str = "1024", **files: Any) -> Seen:
        return look(proc__self__limits=limits(memlock, nofile), **files)
    limited("unlimited", "unlimited").is_("memlock", "good", "unlimited")
    limited("65536").is_("memlock", "good", "64 KiB")
    limited("65535").is_("memlock", "warn", change="* - memlock", undo="rm /etc/security/limits.d")
    limited("4095").is_("memlock", "bad")
    # CAP_IPC_LOCK.
    limited("0", proc__self__status="CapEff:\t0000000000004000\n").is_("memlock", "good", "right to exceed")
    limited("65536", "1023").is_("nofile", "warn", "1023", "* - nofile")
    seen = look(drop=("proc/self/limits",))
    seen.is_("memlock", "unknown")
    seen.is_("nofile", "unknown")
    look(sys__module__peerdma__parameters__user_max="4096\n").is_("quota", "warn", "4096 bytes for each user", "echo 0 >", "echo 4096 >")
    # A limit of a parent group on one of our regions.
    seen = with_files({"sys/fs/cgroup/user.slice/dmem.max": f"drm/x 5\npeerdma/{GPU} 1048576\n",
                       "sys/fs/cgroup/user.slice/mine/dmem.max": f"peerdma/{GPU} max\n"})
    seen.is_("quota", "warn", f"peerdma/{GPU} 1048576 in /sys/fs/cgroup/user.slice/dmem.max")
    with_files({"sys/fs/cgroup/user.slice/dmem.max": "drm/x 5\n"}).is_("quota", "good")

# --- Distributions

def release(ident: str, version: str = "", like: str = "", name: str = "") -> str:
    return f'NAME="{name or ident.title()}"\nID={ident}\nID_LIKE="{like}"\n' + (f'VERSION_ID="{version}"\n' if version else "")


# Commands of each family of distributions; they must not be advised to others.
COMMANDS = {"debian": ("apt ", "apt-cache", "update-grub", "update-initramfs -u", "bindeb-pkg", "linux-headers-" + K, ".deb"),
            "redhat": ("dnf ", "grubby", "dracut -f", "binrpm-pkg", "kernel-devel-" + K),
            "suse": ("zypper ", "grub2-mkconfig", "dracut -f", "binrpm-pkg", "kernel-default-devel"),
            "arch": ("pacman ", "grub-mkconfig", "mkinitcpio -P", "pacman -S linux-headers"),
            "": ()}
# os-release, family, and advice about kernels.
DISTRIBUTIONS = (
    (DEBIAN, "debian", f"boot a {lab.NEWEST} of Debian 13's"),
    (release("debian", "12", name="Debian GNU/Linux"), "debian", "upgrade to Debian 13"),
    (release("debian", name="Debian GNU/Linux"), "debian", "snapshot.debian.org"),
    (release("raspbian", "13", "debian"), "debian", "no kernel of Raspbian"),
    (release("ubuntu", "24.04", "debian"), "debian", "apt install linux-generic-hwe-24.04"),
    (release("ubuntu", "25.10", "debian"), "debian", "no kernel of Ubuntu"),
    (release("linuxmint", "22.1", "ubuntu debian"), "debian", "no kernel of Linuxmint"),
    (release("pop", "22.04", '"ubuntu debian"'.strip('"')), "debian", "no kernel of Pop"),
    (release("rhel", "9.4", "fedora", "Red Hat Enterprise Linux"), "redhat", "all kernels of Red Hat Enterprise Linux 9.4 are older than 6.1"),
    (release("rhel", "10.1", "fedora", "Red Hat Enterprise Linux"), "redhat", "no kernel of Red Hat Enterprise Linux"),
    (release("rocky", "9.5", "rhel centos fedora", "Rocky Linux"), "redhat", "all kernels of Rocky Linux 9.5 are older"),
    (release("almalinux", "8.10", "rhel centos fedora", "AlmaLinux"), "redhat", "all kernels of AlmaLinux 8.10 are older"),
    (release("centos", "9", "rhel fedora", "CentOS Stream"), "redhat", "all kernels of CentOS Stream 9 are older"),
    (release("fedora", "43", name="Fedora Linux"), "redhat", "no kernel of Fedora Linux"),
    (release("amzn", "2023", "fedora", "Amazon Linux"), "redhat", "no kernel of Amazon Linux"),
    (release("sles", "15.6", "suse", "SLES"), "suse", "no kernel of SLES"),
    (release("opensuse-tumbleweed", "20261101", "opensuse suse", "openSUSE Tumbleweed"), "suse", "no kernel of openSUSE"),
    (release("arch", name="Arch Linux"), "arch", "no kernel of Arch Linux"),
    (release("manjaro", "", "arch", "Manjaro Linux"), "arch", "no kernel of Manjaro"),
    (release("nixos", "25.11", name="NixOS"), "", "no kernel of NixOS"),
    ("", "", f"build {lab.OLDEST} or {lab.NEWEST}"),
)


def spoiled(files: Files) -> Seen:
    """A machine with nearly every fault that distribution commands can fix."""
    tree = iommu("DMA")
    tree.set(DOWN, "config", config_space(0x4))
    tree.set(GPU, "driver", Link("../" * tree.where[GPU].count("/") + "bus/pci/drivers/nvidia"))
    tree.files |= {CONFIG: "CONFIG_ZONE_DEVICE=y\nCONFIG_MODULE_SIG=y\n", "proc/sys/kernel/io_uring_disabled": "0\n",
                   "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n",
                   "sys/kernel/security/lockdown": "none [integrity] confidentiality\n", DEP: "kernel/a.ko:\n"} | files
    return without(tree, ("sys/module/peerdma/", "dev/peerdma", f"lib/modules/{K}/build", HEADERS[1:]))


def each_distribution_gets_its_own_commands() -> None:
    for text, family, kernel in DISTRIBUTIONS:
        seen = spoiled({"etc/os-release": text})
        seen.is_("config", "bad", "CONFIG_PCI_P2PDMA=y", kernel)
        for other, words in COMMANDS.items():
            for word in words:
                if word in COMMANDS[family] or (not family and word in ("update-initramfs -u", "dracut -f", "mkinitcpio -P")):
                    continue
                assert word not in seen.commands, (text, word, seen.commands)
        for word in ("update-initramfs -u", "dracut -f", "mkinitcpio -P"):
            said = word in seen.item("driver")["change"], word in seen.item("driver")["undo"]
            assert said == ((word in COMMANDS[family] or not family),) * 2, (text, word, seen.item("driver"))
        # Only Debian itself is offered Debian's kernels.
        own = text == DEBIAN or "ID=debian" in text
        assert ("snapshot.debian.org" in seen.commands or "upgrade to Debian" in seen.commands) == own, (text, seen.commands)
        seen.is_("iommu", "warn", "", "iommu=pt", "iommu=pt")
        seen.is_("acs", "warn", "", f"pci=disable_acs_redir={DOWN}")
        seen.is_("headers", "bad")
        assert not seen.item("headers")["change"].startswith("Debian")


def the_commands_of_each_family() -> None:
    def of(text: str) -> Seen:
        return spoiled({"etc/os-release": text})
    seen = of(release("rhel", "10.1", "fedora"))
    seen.is_("headers", "bad", "", f"dnf install kernel-devel-{K}", f"dnf remove kernel-devel-{K}")
    seen.is_("iommu", "warn", "", "grubby --update-kernel=ALL --args='iommu=pt'", "--remove-args='iommu=pt'")
    seen.is_("driver", "warn", "", "dracut -f --regenerate-all", "rm /etc/modprobe.d/nvidia-peerdma.conf; dracut -f")
    seen.is_("signing", "bad", "", f"/lib/modules/{K}/build/scripts/sign-file", "mokutil --delete")
    seen = of(release("ubuntu", "24.04", "debian"))
    seen.is_("headers", "bad", "", f"apt install linux-headers-{K}")
    seen.is_("iommu", "warn", "", "update-grub", "update-grub")
    seen.is_("driver", "warn", "", "update-initramfs -u -k all", "update-initramfs -u -k all")
    seen.is_("signing", "bad", "", "/var/lib/shim-signed/mok/MOK.der", "/var/lib/shim-signed/mok/MOK.der")
    of(release("arch")).is_("headers", "bad", "", "pacman -S linux-headers")
    of(release("sles", "16.0", "suse")).is_("iommu", "warn", "", "grub2-mkconfig -o /boot/grub2/grub.cfg")
    of("").is_("iommu", "warn", "", "where the boot loader has it")
    # The alternative os-release path, quoting, and the key configured for DKMS.
    seen = spoiled({"etc/os-release": Link("../usr/lib/os-release"), "usr/lib/os-release": "ID='ubuntu'\nVERSION_ID=24.04\n",
                    "etc/dkms/framework.conf": 'mok_certificate="/etc/keys/mine.der"\n'})
    seen.is_("signing", "bad", "", "mokutil --import /etc/keys/mine.der")
    tree = good()
    del tree.files["etc/os-release"]
    tree.files |= {"usr/lib/os-release": "ID=fedora\n", CONFIG: ""}
    without(tree, ()).is_("config", "unknown")
    # The installed tool makes the initramfs; image-based systems get no package commands.
    seen = spoiled({"etc/os-release": release("arch"), "usr/bin/dracut": ""})
    seen.is_("driver", "warn", "", "dracut -f")
    assert "mkinitcpio" not in seen.commands
    seen = spoiled({"etc/os-release": release("fedora", "43"), "run/ostree-booted": ""})
    assert "dnf " not in seen.commands and "grubby" not in seen.commands, seen.commands


def the_page_names_the_commands_that_are_printed() -> None:
    page = (HERE.parents[3] / "Documentation/packages.md").read_text().partition("## Other distributions")[2]
    rows = [line.split("|")[1:-1] for line in page.splitlines() if re.match(r"\| [A-Z]", line)]
    assert rows and len(rows) == len(re.findall(r"^\|", page, re.M)) - 2, rows  # its head
    for row in rows:
        seen = 0
        for ident in re.findall(r"`([a-z-]+)`", row[0]):
            said = spoiled({"etc/os-release": release(ident, "13" if ident == "debian" else "")})
            for command in re.findall(r"`([^`]+)`", row[2] + row[3] + row[4]):
                assert command.replace("RELEASE", K) in said.commands, (ident, command, said.commands)
                seen += 1
        assert seen, row


def options_of_modules_reach_the_initramfs() -> None:
    """Every advice that puts options into modprobe.d."""
    seen = [spoiled({}), bound("amdgpu", {"sys/module/amdgpu/parameters/pcie_p2p": "N\n"}), Seen(multipath("tcp")),
            bound("nvidia", {MEMTYPES: memtypes((0x3800000000, 0x3800001000, "write-combining"))})]
    options = [item for one in seen for item in one.items if "modprobe.d" in item["change"]]
    assert {item["id"] for item in options} == {"driver", "multipath", "memtype"}, options
    for item in options:
        assert re.search(r"update-initramfs -u.*reboot", item["change"]) and re.search(r"rm .*update-initramfs -u.*reboot", item["undo"]), item
    # Built-in code does not read modprobe.d.
    tree = multipath("tcp")
    tree.files[f"lib/modules/{K}/modules.builtin"] = "kernel/drivers/nvme/host/nvme-core.ko\n"
    item = Seen(tree).item("multipath")
    assert "nvme_core.multipath=N" in item["change"] and "modprobe.d" not in item["change"] + item["undo"], item


def who_builds_a_kernel() -> None:
    """Versions that the module was tested on, built from other sources."""
    for name, who in (("6.12.0-124.8.1.el10_1.x86_64", "Red Hat's"), ("7.2.4-200.fc45.x86_64", "Fedora's"),
                      ("7.2.0-9-generic", "Ubuntu's"), ("6.12.0-160000.5-default", "SUSE's"), ("7.2.3-arch1-1", "Arch's")):
        seen = with_files({"proc/sys/kernel/osrelease": name + "\n"})
        seen.is_("kernel", "warn", f"{name}, a kernel of {who}, on which PeerDMA was not tried", "peerdma selftest")
    # If the module was not run on any kernel of the distribution either, another kernel is suggested as such, not as
    # tested.
    seen = with_files({"proc/sys/kernel/osrelease": "7.2.0-9-generic\n", "etc/os-release": release("ubuntu", "24.04", "debian")})
    seen.is_("kernel", "warn", "", "on this one; for another kernel: PeerDMA was run on no kernel of Ubuntu")


def how_a_module_gets_in() -> None:
    """insmod is advised only for self-built modules; packages and DKMS install where modprobe looks."""
    gone = ("sys/module/peerdma", "dev/peerdma")
    for files in ({}, {DEP: ""} | {"var/lib/dkms/peerdma/0.2.0/source/dkms.conf": ""}):
        seen = with_files(files, drop=gone)
        assert "insmod" not in seen.commands, seen.commands
        seen.is_("module", "bad", "", "modprobe peerdma")
        seen.is_("node", "bad", "", "modprobe peerdma")
    seen.is_("module", "bad", "", f"dkms install --force peerdma/0.2.0 -k {K}")
    tree = multipath("rdma")
    tree.files["var/lib/dkms/peerdma/0.2.0/source/dkms.conf"] = ""
    Seen(tree).is_("rdma", "bad", "", "where the kernel has RDMA; modprobe peerdma_rdma")
    on: Files = {SECURE_BOOT: b"\x06\0\0\0\x01", "sys/kernel/security/lockdown": "none [integrity] confidentiality\n"}
    with_files(on | {DEP: "", "var/lib/dkms/peerdma/0.2.0/source/dkms.conf": ""}, drop=gone).is_(
        "signing", "bad", "not built for this kernel", "dkms install --force peerdma/0.2.0")


# --- Malformed records

def kinds() -> dict[str, Any]:
    """Kinds of nodes in place of a file."""
    made: dict[str, Any] = {"fifo": Node("fifo"), "socket": Node("socket"), "folder": Node("folder"), "huge": Sparse(3 << 30),
                            "loop": Link("loop-a"), "itself": None}
    if os.geteuid() == 0:
        made["device"] = Node("device")
    return made


def odd(tree: Tree, names: list[str], kind: str, what: Any) -> Tree:
    for name in names:
        tree.files[name] = Link(name.rpartition("/")[2]) if kind == "itself" else what
        if kind == "loop":
            tree.files[name.rpartition("/")[0] + "/loop-a"] = Link("loop-b")
            tree.files[name.rpartition("/")[0] + "/loop-b"] = Link("loop-a")
    return tree


def nothing_in_a_record_hangs_or_fills_the_memory() -> None:
    plain = [name for name, what in good().files.items() if not isinstance(what, Link) and not name.startswith("dev/")]
    for kind, what in kinds().items():
        seen = Seen(odd(good(), plain, kind, what))
        seen.is_("files", "unknown", "/proc/cpuinfo: ", "record them again")
        assert seen.item("files")["found"].count(": it") > 20, seen.item("files")
    # Folders as well.
    for kind, what in kinds().items():
        if kind == "folder":
            continue
        tree = good()
        tree.files = {name: of for name, of in tree.files.items() if not name.startswith("sys/block/")}
        Seen(odd(tree, ["sys/block"], kind, what)).is_("files", "unknown", "/sys/block: it")


def what_is_not_read_is_named() -> None:
    want = {"fifo": "not a regular file", "socket": "not a regular file", "device": "not a regular file", "folder": "a directory",
            "huge": "too large", "loop": "are a loop", "itself": "are a loop"}
    for kind, what in kinds().items():
        Seen(odd(good(), [CONFIG], kind, what)).is_("files", "unknown", f"not read: /{CONFIG}: ")
        assert want[kind] in Seen(odd(good(), [CONFIG], kind, what)).item("files")["found"], kind
    assert not [item for item in look().items if item["id"] == "files"]


def links_stay_in_the_record() -> None:
    with tempfile.TemporaryDirectory() as outside:
        config = Path(outside, "config")
        config.write_text(OPTIONS)
        for target in (str(config), "../" * 40 + str(config)[1:]):
            seen = with_files({CONFIG: Link(target)})
            seen.is_("config", "unknown")
            assert outside not in seen.text
    # Links are resolved within the record's root, as on the machine.
    with_files({CONFIG: Link("/srv/../../etc/config"), "etc/config": OPTIONS}).is_("config", "good")
    with_files({"boot": Link("/mnt/boot"), "mnt/boot/config-" + K: OPTIONS}, drop=("boot/",)).is_("config", "good")


def what_a_file_says_has_bounds() -> None:
    packer = zlib.compressobj(1, wbits=31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(700)) + packer.flush()
    with_files({"proc/config.gz": bomb}).is_("config", "good", "/boot/config-")
    for group in ("0::relative\n", "0::" + "/x" * 100000 + "\n", "0::/../..\n", "0::\n"):
        with_files({"proc/self/cgroup": group}).is_("quota", "good")
    # A cyclic stack of disks.
    tree = good()
    home, disks = "sys/devices/virtual/block", [f"dm-{n}" for n in range(30)]
    for number, disk in enumerate(disks):
        tree.disk(disk, home, 20 + number)
        for other in disks:
            tree.files[f"{home}/{disk}/slaves/{other}"] = Link(f"../../{other}")
    tree.files["dev/dm-0"] = ""
    Seen(tree, "/dev/dm-0").is_("stack", "unknown", "dm-0")


def every_state_was_seen() -> None:
    live = {"node": {"unknown", "bad"}, "providers": {"unknown"}, "route": {"unknown"}}
    want = live | {
        "kernel": {"good", "warn", "bad", "unknown"}, "config": {"good", "warn", "bad", "unknown"},
        "headers": {"good", "bad", "unknown"}, "signing": {"good", "warn", "bad", "unknown"}, "module": {"good", "bad", "unknown"},
        "container": {"good", "warn", "unknown"}, "bar": {"good", "warn", "bad", "unknown"},
        "driver": {"good", "warn", "bad", "unknown"}, "memtype": {"good", "warn", "unknown"}, "filesystem": {"good", "warn", "bad", "unknown"},
        "disks": {"good", "warn", "bad", "unknown"}, "stack": {"good", "warn", "bad", "unknown"},
        "multipath": {"good", "bad", "unknown"}, "rdma": {"good", "warn", "bad", "unknown"},
        "iommu": {"good", "warn", "unknown"}, "acs": {"good", "warn", "unknown"}, "bridge": {"good", "unknown"},
        "memlock": {"good", "warn", "bad", "unknown"}, "nofile": {"good", "warn", "unknown"},
        "quota": {"good", "warn", "unknown"}, "uring": {"good", "warn", "unknown"}, "files": {"unknown"},
    }
    assert Seen.states == want, {name: (Seen.states.get(name), want.get(name)) for name in set(want) | set(Seen.states)
                                 if Seen.states.get(name) != want.get(name)}


if __name__ == "__main__":
    sys.exit(tap.run([a_good_host, headlines, without_a_gpu, many_of_one_kind_are_one_line,
                      the_largest_machine_fits_one_screen, a_pair_that_is_named, how_it_is_asked, kernels, p2pdma_off, the_module, headers, secure_boot,
                      iommu_translated, acs_on, two_root_ports, small_bar, nvidia, other_drivers, memory_types, nvme_multipath, rdma, stacks,
                      only_shares, filesystems, a_container, io_uring, resource_limits, each_distribution_gets_its_own_commands,
                      the_commands_of_each_family, the_page_names_the_commands_that_are_printed, options_of_modules_reach_the_initramfs, who_builds_a_kernel, how_a_module_gets_in,
                      nothing_in_a_record_hangs_or_fills_the_memory, what_is_not_read_is_named, links_stay_in_the_record,
                      what_a_file_says_has_bounds, every_state_was_seen]))
