"""fio beside a store: what its disk does when nobody names, checks or finds anything.

One file that was written before, directly, io_uring at depth 32, buffers in huge pages where the system keeps
enough of them (`vm.nr_hugepages`; without, it is slower, and that is said). Whatever has bytes on the disk
before it says so can't be much faster. On error: fio's own message.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

DEPTH, HUGE = 32, 2 << 20


def missing() -> bool:
    return shutil.which("fio") is None


def fio(path: Path, what: str, size: int, whole: int, loops: int = 1) -> float:
    """MB/s (10^6 bytes) of `write` or `randread`, by `size` bytes, of a file as long as `whole`."""
    kept = int(Path("/proc/sys/vm/nr_hugepages").read_text())
    memory = "shmhuge" if kept * HUGE >= (DEPTH + 2) * size else "malloc"
    if memory == "malloc":
        print("fio: buffers in 4-KiB pages, which make it slower: set vm.nr_hugepages")
    command = ["fio", "--name=pass", f"--filename={path}", f"--size={whole}", f"--bs={size}", f"--rw={what}"]
    command += ["--direct=1", "--ioengine=io_uring", f"--iodepth={DEPTH}", f"--iomem={memory}"]
    command += ["--fallocate=none", f"--loops={loops}", "--output-format=json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    job = json.loads(done[done.index("{") :])["jobs"][0]
    return float(job["write" if "write" in what else "read"]["bw_bytes"] / 1e6)


class Fio:
    """As a side of `store_beside_peers.py`, one that measures by itself: its calls return seconds."""

    ways = ("direct",)

    def __init__(self, folder: Path, size: int, whole: int) -> None:
        folder.mkdir()
        self.path, self.size, self.whole = folder / "file", size, whole
        # A pass takes less than fio's clock tells apart.
        self.loops = max(1, (1 << 30) // whole)

    def settle(self) -> None:
        fio(self.path, "write", self.size, self.whole)

    def fresh(self) -> None:
        """It has no names."""

    def put(self, *_: object) -> float:
        return self.whole / 1e6 / fio(self.path, "write", self.size, self.whole, self.loops)

    def get(self, *_: object) -> float:
        return self.whole / 1e6 / fio(self.path, "randread", self.size, self.whole, self.loops)

    def cool(self) -> None:
        """It reads directly."""

    def close(self) -> None:
        """Its file goes with its directory."""
