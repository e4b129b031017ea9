"""Many bytes through the slab store, into new space and again into the same, beside fio.

Run: python benches/python/store_sustained.py [--gb 1] [--rounds 3] [--page 512] [--dir DIRECTORY].

A pass puts so many GB (10^9 bytes) in groups of 128 pages, two at once, from 512 MiB of memory. `first`
begins when the store has just been made: nothing is written in advance but what its own thread gets to
meanwhile; `again`: all pages are given up, others put in their place. fio writes as much with io_uring,
direct, depth 32, its buffers in huge pages (`vm.nr_hugepages`; without, it is slower, and that is said),
to a new file that wasn't allocated, and again. One after the other, rounds alternate: the disk holds one
of them at a time. Each round ends with a tenth of the pages read and their bytes compared. Prints MB/s
(10^6 bytes), medians and ranges, and our share.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
from pathlib import Path

from fio import fio, missing
from stores import WHO, Ours, Pages, seconds

MEMORY = 512 << 20


def ours(folder: Path, pages: Pages, count: int) -> list[float]:
    """MB/s of the first pass and of the second."""
    # More than the pages: for the log, and an extent that is begun.
    side = Ours(folder, pages, size=count * pages.size * 17 // 16)
    try:
        rates = []
        for _ in range(2):
            side.store.clear(WHO)
            side.names = [os.urandom(32) for _ in range(count)]
            rates.append(count * pages.size / 1e6 / seconds(side.put, "slab", range(count)))
        sample(side, pages, count)
        return rates
    finally:
        side.close()
        shutil.rmtree(folder)


def sample(side: Ours, pages: Pages, count: int) -> None:
    """Reads a tenth of the pages, and compares them with what was put."""
    for start in range(0, count - pages.count + 1, pages.count):
        pages.wipe()
        asked = sorted(random.Random(start).sample(range(pages.count), pages.count // 10))
        side.get("slab", [start + n for n in asked])
        for n in asked:
            at = slice(n * pages.size, (n + 1) * pages.size)
            assert (pages.memory[at] == pages.right[at]).all(), f"page {start + n} is wrong"
    pages.memory[:] = pages.right


def beside(path: Path, size: int, whole: int) -> list[float]:
    """fio's, to a new file and again."""
    try:
        return [fio(path, "write", size, whole) for _ in range(2)]
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--gb", type=float, default=1)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--page", type=int, default=512, metavar="KIB")
    options.add_argument("--dir")
    given = options.parse_args()
    pages = Pages(given.page << 10, MEMORY)
    count = int(given.gb * 1e9) // pages.size
    rates: dict[str, list[list[float]]] = {"ours": [], "fio": []}
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        for _ in range(given.rounds):
            rates["ours"].append(ours(Path(folder) / "slab", pages, count))
            if not missing():
                rates["fio"].append(beside(Path(folder) / "file", pages.size, count * pages.size))
    for at, what in enumerate(("first", "again")):
        values = {who: [rate[at] for rate in each] for who, each in rates.items() if each}
        middle = {who: statistics.median(of) for who, of in values.items()}
        line = [f"{who} {middle[who]:.0f} ({min(of):.0f}-{max(of):.0f}) MB/s" for who, of in values.items()]
        share = f"{middle['ours'] / middle['fio']:.2f}" if "fio" in middle else "no fio here"
        print(f"{given.page} KiB, {given.gb:g} GB, {what}:", *line, share, sep="  ")


if __name__ == "__main__":
    main()
