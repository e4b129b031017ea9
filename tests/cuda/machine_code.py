"""Reads what the CUDA compiler made: every kernel for every target, whole vectors, nothing spilled.

Run by `make cuda-check`. Looks at the extension itself (what users get), and at ptxas' own report.
On error: exits with 1 and one line per finding that names kernel, target and what was expected.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sm_80", "sm_90", "sm_100")
#: Name in a mangled symbol, and how its loads and stores are spelled in machine code.
WIDTHS = {"Word16": ".128", "Word8": ".64", "Word4": "", "Word1": ".U8"}
MODES = ("rows_kernel", "any_kernel")
PAGES = ("216", "3584")
#: 65,536 registers for 1024 threads.
MOST_REGISTERS = 64

KERNELS = {(mode, word, pages) for mode in MODES for word in WIDTHS for pages in PAGES}


def which_kernel(symbol: str) -> tuple[str, str, str] | None:
    """(mode, word, pages) of a mangled name."""
    found = re.search(r"(rows_kernel|any_kernel)\w*?(Word\d+)E?Lj(\d+)E", symbol)
    return (found[1], found[2], found[3]) if found else None


def functions(sass: str) -> dict[str, list[str]]:
    """Instructions by function, of one target's listing."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in sass.splitlines():
        if "Function :" in line:
            current = found.setdefault(line.split("Function :")[1].strip(), [])
        elif op := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)", line):
            current.append(op[1])
    return found


def longest_row(operations: list[str], name: str) -> int:
    """Most instructions called `name` without one of the other kind of access between them."""
    best = row = 0
    for operation in operations:
        if operation.startswith(name):
            row += 1
        elif operation.startswith(("LDG", "STG")):
            row = 0
        best = max(best, row)
    return best


def is_wide(operation: str, width: str) -> bool:
    """Whether an access has this width, and no other; 4 bytes are not spelled."""
    return re.findall(r"\.(?:128|64|U8)\b", operation) == ([width] if width else [])


def check_kernel(target: str, kernel: tuple[str, str, str], operations: list[str]) -> list[str]:
    """What is wrong with one kernel's instructions."""
    mode, word, _ = kernel
    where = f"{target} {mode}<{word}, {kernel[2]}>"
    loads = [op for op in operations if op.startswith("LDG")]
    stores = [op for op in operations if op.startswith("STG")]
    problems = []
    if not loads or not stores:
        return [f"{where}: no global loads ({len(loads)}) or stores ({len(stores)})"]
    width = WIDTHS[word]
    problems += [
        f"{where}: {op}, expected accesses of {word[4:]} bytes"
        for op in loads + stores
        if not is_wide(op, width)
    ]
    if local := {op for op in operations if op.startswith(("LDL", "STL"))}:
        problems.append(f"{where}: local memory is used ({', '.join(sorted(local))}): something spilled")
    if mode == "rows_kernel" and longest_row(operations, "LDG") < 4:
        problems.append(f"{where}: fewer than 4 loads in flight before the first store")
    return problems


def check_sass(cuobjdump: Path, library: Path) -> list[str]:
    """Every kernel, in every target's code inside the library."""
    problems: list[str] = []
    for target in TARGETS:
        command = [cuobjdump, "-sass", "-arch", target, library]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        found = {which_kernel(name): operations for name, operations in functions(run.stdout).items()}
        if missing := KERNELS - set(found):
            problems.append(
                f"{target}: {len(missing)} of {len(KERNELS)} kernels are not in {library.name}: "
                f"{sorted(missing)[0]} ... {run.stderr.strip()}"
            )
        for kernel in sorted(KERNELS & set(found)):
            problems += check_kernel(target, kernel, found[kernel])
    listing = subprocess.run([cuobjdump, "-lptx", library], capture_output=True, text=True, check=False)
    if "sm_90.ptx" not in listing.stdout:
        problems.append(f"no PTX of compute_90 in {library.name}: newer devices could not use it")
    return problems


def check_ptxas(nvcc: Path) -> tuple[list[str], int]:
    """ptxas' own report: registers, stack, spills."""
    with tempfile.TemporaryDirectory() as folder:
        target = ["-gencode", "arch=compute_90,code=sm_90", "-cubin", "-o", Path(folder) / "out.cubin"]
        include = ["-I", ROOT / "cuda/include", "-I", ROOT / "cuda/src"]
        source = ROOT / "cuda/src/hicache_cuda.cu"
        command = [nvcc, "-O3", "-std=c++17", "-Xptxas", "-v", *target, *include, source]
        report = subprocess.run(command, capture_output=True, text=True, check=False)
    if report.returncode != 0:
        return [f"nvcc failed: {report.stderr.strip()}"], 0
    return read_ptxas(report.stderr)


def read_ptxas(report: str) -> tuple[list[str], int]:
    problems, most, kernel = [], 0, ""
    for line in report.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = found[1]
        elif found := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            if any(int(number) for number in found.groups()):
                problems.append(f"ptxas: {kernel}: {line.strip()}")
        elif found := re.search(r"Used (\d+) registers", line):
            most = max(most, int(found[1]))
    if most == 0:
        problems.append("ptxas reported no registers: was anything compiled?")
    if most > MOST_REGISTERS:
        problems.append(f"ptxas: {most} registers a thread, but 1024 threads have {MOST_REGISTERS} each")
    return problems, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("library", "nvcc", "cuobjdump"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    problems = check_sass(options.cuobjdump, options.library)
    found, most = check_ptxas(options.nvcc)
    problems += found
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    what = f"{len(KERNELS)} kernels for each of {', '.join(TARGETS)}"
    print(f"{what}: vectors whole, no local memory, at most {most} registers")


if __name__ == "__main__":
    main()
