#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""tests/gpu/abi.hpp covers all of include/cufile.h, and abi.cpp accepts our header."""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tap  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "include/cufile.h").read_text(), flags=re.S)
LIST = (ROOT / "tests/gpu/abi.hpp").read_text()


def each_enum_is_in_it_with_all_its_values() -> None:
    enums = {name: body for body, name in re.findall(r"^typedef enum \w+ \{(.*?)\} (\w+);", HEADER, re.S | re.M)}
    assert enums.pop("CUresult"), "of the CUDA driver"
    assert enums and len(enums) + 1 == HEADER.count("typedef enum "), enums
    for name, body in enums.items():
        assert f"SIZE({name}, " in LIST, name
        for value in re.findall(r"\b(CU_?FILE_\w+)", body):
            assert f"IS({value}, " in LIST, f"{name}: {value}"


def each_struct_is_in_it_with_all_its_members() -> None:
    structs = re.findall(r"^typedef struct \w+ \{\n(.*?)^\} (\w+);", HEADER, re.S | re.M)
    assert structs and len(structs) == len(re.findall(r"^typedef struct \w+ \{", HEADER, re.M)), structs
    for body, name in structs:
        assert f"SIZE({name}, " in LIST, name
        members = re.findall(r"(?:\(\*|[ *])(\w+)(?:\)\(.*|\[\w+\])?;$", body, re.M)
        assert members, name
        for member in members:
            assert re.search(rf"AT\({name}, (?:\w+\.)*{member}, ", LIST), f"{name}.{member}"


def each_flag_is_in_it() -> None:
    flags = re.findall(r"^#define (CU_?FILE_(?:P2P_FLAG|RDMA|STREAM|GPU)_\w+)", HEADER, re.M)
    assert flags
    for flag in flags:
        assert f"IS({flag}, " in LIST, flag


def abi(*options: str, header: str = (ROOT / "include/cufile.h").read_text()) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as tmp:
        Path(tmp, "cufile.h").write_text(header)
        subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{tmp}", "-DPEERDMA_CUFILE_NO_CUDA_H", *options,
                        f"{ROOT}/tests/gpu/abi.cpp", "-o", f"{tmp}/abi"], check=True)
        return subprocess.run([f"{tmp}/abi"], capture_output=True, text=True)


def abi_finds_our_header_to_be_so_as_old_and_as_new() -> None:
    said = [abi(), abi("-DCUFILE_ABI=1190")]
    assert not any(one.returncode for one in said), said
    numbers = [int(one.stdout.split()[0]) for one in said]
    assert 0 < numbers[0] < numbers[1] == len(re.findall(r"^(?:SIZE|AT|IS)\(", LIST, re.M)), said


def abi_sees_another_number() -> None:
    said = abi(header=(ROOT / "include/cufile.h").read_text().replace("CUFILE_WRITE = 1", "CUFILE_WRITE = 2"))
    assert said.returncode == 1 and "CUFILE_WRITE is 2, not 1\n" in said.stdout, said


if __name__ == "__main__":
    sys.exit(tap.run([each_enum_is_in_it_with_all_its_values, each_struct_is_in_it_with_all_its_members, each_flag_is_in_it,
                      abi_finds_our_header_to_be_so_as_old_and_as_new, abi_sees_another_number]))
