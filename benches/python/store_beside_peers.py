"""The slab store beside SGLang's file backend, LMCache's raw block device and fio, in alternating rounds.

Run: python benches/python/store_beside_peers.py [--sglang PYTHON] [--dir DIRECTORY] [--mib 256] [--rounds
5] [--page KIB ...] [--full] [--times 1] [--crowd 0] [--way WAY ...]. Without --sglang only our side runs,
LMCache's and fio. PYTHON is the interpreter of an environment that has the package `sglang` 0.5.23 and what
its cache modules import; the script runs itself there, with this interpreter's `hicache` on the path.
LMCache's side runs where `lmcache_rust_raw_block_io` (0.5.7rc2) can be imported.

All sides move the same pages between the same memory (one mapping, in huge pages where the system has
them) and the same directory, in groups of 128, and take turns in each round:

- `put` all pages under new names, until the last one is acknowledged, which on all sides means: it
  survives the death of the process, not a loss of power.
- `disk`: the same, and until the file system has everything on its disk (`syncfs`), so that the page cache
  is out of the way here, too.
- `--times`: so many puts one after the other before anything is flushed. More bytes than the kernel lets
  wait for the disk (`vm.dirty_ratio`) hold writers into the page cache up; ours never wait there.
- `get` them in no order, cold, into memory that was wiped. Then every byte is compared.

The sides:

- ours: `hicache.storage.open("slab://...")`, two groups at once, into space written before, as it is in a
  store that has run for a while; every page is checked against its checksum as it comes.
- SGLang: `HiCacheFile`, driven as its controller does: `generic` by `batch_set` and `batch_get`, `v2` by
  `batch_set_v2` and `batch_get_v2`; its host pool is one of ours that gives and takes pages as SGLang's
  page_first does, a page in two parts, copied. Its puts end in the page cache, which its files are dropped
  from before a get. The better of the two counts. `bare`: pages in one part, written from and read into
  the memory itself, which SGLang doesn't do.
- LMCache: `RawBlockDevice`, O_DIRECT on a file written before: batches by io_uring, two at once, from
  registered memory; and `pwrite_from_buffer`, `pread_into`. Pages at offsets: no names, index or
  checksums.

- fio: a file written before, directly, depth 32: the most that a store can do which has bytes on the disk
  before it says so. `fio / SGLang` is therefore the most that any such store can be ahead.

Stores grow, or with --full they are at their limits and give up old pages as new ones come (LMCache's has
no such thing); --crowd: SGLang's directory has so many other files.

SGLang's puts depend on the file system. On ext4 without a journal the number of a file that was removed is
not given again for minutes, and each new file looks at all such numbers (in the kernel, `recently_deleted`):
8,000 new files took 44 µs each in a new child of the root; when they had been removed, 870, and once more,
1,600. With a journal it was 34 to 46, however many were removed. So nothing is removed here before the end
(but by stores that are full), and --dir is best a new child of the root, another one for each run. Ours
makes no files.

That a get was cold is known by the kernel's count of what this process made it fetch from disks. Prints
MB/s (10^6 bytes), medians and ranges over the rounds, and ours as a multiple.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fio import Fio, missing
from stores import LMCache, Ours, Pages, SGLang, seconds, sync

FIGURES = ("put", "disk", "get")
Rates = dict[str, list[float]]


def read_from_disk() -> int:
    """Bytes that the kernel fetched from disks for this process."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def checked(name: str, side: Any, way: str, pages: Pages) -> float:
    """Seconds of a get whose bytes all came from the disk, and are right."""
    pages.wipe()
    before = read_from_disk()
    got = seconds(side.get, way, pages.order)
    read = read_from_disk() - before
    assert read >= 0.99 * pages.memory.nbytes, f"{name}: only {read} bytes came from the disk"
    pages.check(name)
    return got


def one_round(sides: dict[str, Any], pages: Pages, rates: Rates, folder: Path, times: int) -> None:
    megabytes, everything = pages.memory.nbytes / 1e6, range(pages.count)
    for name, side in sides.items():
        for way in side.ways:
            # What others wrote is nobody's cost.
            sync(folder)
            put = 0.0
            for _ in range(times):
                side.fresh()
                put += seconds(side.put, way, everything)
            flushed = (put + seconds(sync, folder)) / times
            put /= times
            side.cool()
            got = side.get() if name == "fio" else checked(name, side, way, pages)
            for what, took in zip(FIGURES, (put, flushed, got), strict=True):
                rates.setdefault(f"{name} {way} {what}", []).append(megabytes / took)


def report(size: int, sides: dict[str, Any], rates: Rates) -> None:
    middle = {name: statistics.median(values) for name, values in rates.items()}
    for what in FIGURES:
        for name, side in sides.items():
            for way in side.ways:
                of, rate = rates[f"{name} {way} {what}"], middle[f"{name} {way} {what}"]
                line = f"{size >> 10:5} KiB {what:5}{name:8}{way:9}{rate:6.0f}  ({min(of):.0f}-{max(of):.0f})"
                beside = "" if name == "ours" else f"   ours {middle[f'ours slab {what}'] / rate:.1f}x"
                print(line + beside, flush=True)
        best = {name: best_of(name, side, what, middle) for name, side in sides.items()}
        pairs = [("ours", "fio"), ("ours", "sglang"), ("fio", "sglang")]
        both = [(one, other) for one, other in pairs if {one, other} <= best.keys()]
        shares = [f"{one} / {other} {best[one] / best[other]:.2f}" for one, other in both]
        print(f"{size >> 10:5} KiB {what:5}", ", ".join(shares), flush=True)


def best_of(name: str, side: Any, what: str, middle: dict[str, float]) -> float:
    """Of the ways that its engine takes."""
    return max(middle[f"{name} {way} {what}"] for way in side.ways if way != "bare")


def compare(given: argparse.Namespace, size: int, folder: Path, peers: dict[str, Any]) -> None:
    pages = Pages(size, given.mib << 20)
    rates: Rates = {}
    sides: dict[str, Any] = {}
    try:
        for name, kind in {"ours": Ours, **peers}.items():
            sides[name] = kind(folder / name, pages, given.full)
        if not missing():
            sides["fio"] = Fio(folder / "fio", size, pages.memory.nbytes)
        if "sglang" in sides:
            sides["sglang"].ways = given.way or SGLang.ways
            sides["sglang"].crowd(given.crowd)
        for side in sides.values():
            side.settle()
        for _ in range(given.rounds):
            one_round(sides, pages, rates, folder, given.times)
        report(size, sides, rates)
    finally:
        for side in sides.values():
            side.close()
        for name in sides.keys() - {"sglang"}:
            shutil.rmtree(folder / name)


def options() -> argparse.Namespace:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sglang", metavar="PYTHON", help="interpreter of an environment with sglang")
    options.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--dir", help="where all sides write (default: the system's temporary directory)")
    options.add_argument("--mib", type=int, default=256, help="bytes of a pass")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--page", type=int, nargs="+", default=[64, 512, 2048], metavar="KIB")
    options.add_argument("--times", type=int, default=1, help="puts before anything is flushed")
    options.add_argument("--crowd", type=int, default=0, help="files that are in SGLang's directory")
    options.add_argument("--way", nargs="+", choices=SGLang.ways, help="of SGLang's (default: all)")
    options.add_argument("--full", action="store_true", help="stores that are at their limits")
    return options.parse_args()


def inside(python: str) -> int:
    """Runs this script in a peer's interpreter, with our package on its path."""
    import hicache

    paths = [str(Path(hicache.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.call([python, __file__, "--inside", *sys.argv[1:]], env=environment)


def main() -> None:
    given = options()
    if given.sglang and not given.inside:
        sys.exit(inside(given.sglang))
    peers: dict[str, Any] = {"sglang": SGLang} if given.inside else {}
    if find_spec("lmcache_rust_raw_block_io"):
        peers["lmcache"] = LMCache
    else:
        print("no lmcache_rust_raw_block_io here: without LMCache")
    print(f"passes of {given.mib} MiB, {given.rounds} rounds; MB/s, medians (ranges)")
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        for kib in given.page:
            place = Path(folder) / str(kib)
            place.mkdir()
            compare(given, kib << 10, place, peers)


if __name__ == "__main__":
    main()
