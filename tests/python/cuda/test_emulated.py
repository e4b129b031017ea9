"""The CUDA sources on the CPU: index arithmetic lane by lane, and the whole library over an emulated runtime.

Needs a C++ compiler and no GPU; what only a GPU can show is in `tests/python/gpu`. Each program is also built
from sources with one planted fault, and must then fail: what finds nothing is known to find something.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from faults import LANE_FAULTS, ORDER_FAULTS

CXX = os.environ.get("CXX") or shutil.which("c++")
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]

pytestmark = pytest.mark.skipif(
    CXX is None, reason="no C++ compiler: the CUDA sources were not tested at all"
)


@pytest.fixture(scope="module")
def sources(root: Path) -> Path:
    return root / "cuda" / "src"


def compile_cxx(root: Path, cuda: Path, inputs: list[Path], output: Path, *options: str) -> None:
    folders = [root / "tests/cuda/emulated", root / "cuda/include", cuda, root / "tests/cuda"]
    includes = [f"-I{folder}" for folder in folders]
    languages = [["-x", "none" if file.suffix == ".o" else "c++", file] for file in inputs]
    command = [
        CXX,
        *FLAGS,
        *options,
        *includes,
        "-o",
        output,
        *(part for group in languages for part in group),
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(program: Path, cases: int, seed: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, str(cases), str(seed)], capture_output=True, text=True, check=False, timeout=120
    )


def mutant(sources: Path, folder: Path, file: str, there: str, instead: str) -> Path:
    """The sources with one fault in them, or the test is out of date."""
    copy = folder / "src"
    shutil.copytree(sources, copy)
    text = (copy / file).read_text()
    assert text.count(there) == 1, f"{file} has no single {there!r}: plant the fault elsewhere"
    (copy / file).write_text(text.replace(there, instead))
    return copy


def test_lanes_move_each_byte_once(root: Path, sources: Path, tmp_path: Path) -> None:
    program = tmp_path / "lanes"
    compile_cxx(root, sources, [root / "tests/cuda/lanes.cpp"], program, "-O1", *SANITIZE)
    done = run(program, 600, 1)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("file", "there", "instead"), LANE_FAULTS, ids=itertools.count())
def test_a_planted_fault_in_the_arithmetic_is_found(
    root: Path, sources: Path, tmp_path: Path, file: str, there: str, instead: str
) -> None:
    faulty, program = mutant(sources, tmp_path, file, there, instead), tmp_path / "lanes"
    compile_cxx(root, faulty, [root / "tests/cuda/lanes.cpp"], program, "-Wno-error")
    done = run(program, 600, 1)
    assert "FAILED" in done.stdout, f"{instead!r} for {there!r} was not found"


@pytest.fixture(scope="module")
def world(root: Path, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What the library's tests have in common, compiled once."""
    folder = tmp_path_factory.mktemp("world")
    objects = [folder / "runtime.o", folder / "scenario.o"]
    inputs = [root / "tests/cuda/emulated/runtime.cpp", root / "tests/cuda/scenario.cpp"]
    for source, target in zip(inputs, objects, strict=True):
        compile_cxx(root, sources, [source], target, "-c", "-O1")
    return objects


def test_transfers_beside_a_model_in_any_order(root: Path, sources: Path, tmp_path: Path) -> None:
    program = tmp_path / "scenario"
    inputs = [root / "tests/cuda/emulated/runtime.cpp", root / "tests/cuda/scenario.cpp"]
    compile_cxx(root, sources, [sources / "hicache_cuda.cu", *inputs], program, "-O1", *SANITIZE)
    done = run(program, 150, 1)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("file", "there", "instead"), ORDER_FAULTS, ids=itertools.count())
def test_a_planted_fault_in_the_library_is_found(
    root: Path, sources: Path, world: list[Path], tmp_path: Path, file: str, there: str, instead: str
) -> None:
    faulty, program = mutant(sources, tmp_path, file, there, instead), tmp_path / "scenario"
    compile_cxx(root, faulty, [faulty / "hicache_cuda.cu", *world], program, "-Wno-error", "-w")
    done = run(program, 1000, 1)
    assert done.returncode != 0, f"{instead!r} for {there!r} was not found"
