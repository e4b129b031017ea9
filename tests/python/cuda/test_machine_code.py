"""The reader of machine code, on listings with one flaw each: it objects to all, and to no sound one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SOUND = ["S2R", "LDC.64", *["LDG.E.NA.128"] * 4, *["STG.E.NA.128"] * 4, "EXIT"]
ROWS = ("rows_kernel", "Word16", "216")


@pytest.fixture(scope="module")
def reader(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("machine_code", root / "tests/cuda/machine_code.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sound_kernel_passes(reader: ModuleType) -> None:
    assert reader.check_kernel("sm_90", ROWS, SOUND) == []
    narrow = [op.replace(".128", "") for op in SOUND]
    assert reader.check_kernel("sm_90", ("any_kernel", "Word4", "216"), narrow) == []


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        ([op.replace("LDG.E.NA.128", "LDG.E.NA.64") for op in SOUND], "accesses of 16 bytes"),
        ([op.replace("STG.E.NA.128", "STG.E.NA") for op in SOUND], "accesses of 16 bytes"),
        ([*SOUND, "STL.64"], "spilled"),
        ([*SOUND, "LDL"], "spilled"),
        ([op for op in SOUND if not op.startswith("STG")], "no global loads"),
        (["LDG.E.NA.128", "STG.E.NA.128"] * 4, "in flight"),
    ],
)
def test_a_flaw_is_named(reader: ModuleType, operations: list[str], complaint: str) -> None:
    problems = reader.check_kernel("sm_90", ROWS, operations)
    assert problems
    assert all(complaint in problem and "sm_90 rows_kernel<Word16, 216>" in problem for problem in problems)


def test_listings_are_understood(reader: ModuleType) -> None:
    symbol = "_ZN7hicache11rows_kernelINS_6Word16ELj216EEEvNS_6LaunchIXT0_EEE"
    listing = f"""
        Function : {symbol}
        /*0000*/                   LDC R1, c[0x0][0x37c] ;        /* 0x0000df00ff017b82 */
        /*0130*/              @!P0 LDG.E.NA.128 R4, desc[UR8][R4.64] ;   /* 0x0 */
        /*0140*/               @P1 BRA 0x90 ;"""
    functions = reader.functions(listing)
    assert functions == {symbol: ["LDC", "LDG.E.NA.128", "BRA"]}
    assert reader.which_kernel(symbol) == ROWS
    assert reader.which_kernel("_Z3fooi") is None


@pytest.mark.parametrize(
    ("report", "problems", "most"),
    [
        (
            "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info : Used 46 registers",
            0,
            46,
        ),
        (
            "8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads\nptxas info : Used 46 registers",
            1,
            46,
        ),
        ("ptxas info : Used 72 registers", 1, 72),
        ("", 1, 0),
    ],
)
def test_ptxas_is_understood(reader: ModuleType, report: str, problems: int, most: int) -> None:
    found, registers = reader.read_ptxas(report)
    assert (len(found), registers) == (problems, most)
