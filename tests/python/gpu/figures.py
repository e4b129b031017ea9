"""Figures of the GPU copies, each beside what it is compared with, measured in the same run. Some minutes.

Rates are payload bytes by the time from before enqueueing until a query says done, median of several; 1 GB/s
is 10^9 bytes. Targets are those that the copies were designed for; a missed one is printed as MISSED, and
only `--strict` makes it a failure. On error: no GPU is said loudly, or fails with HICACHE_REQUIRE_GPU=1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import overlap
from device import EMULATED, REQUIRED, WAYS, engine, finish, missing, stream, synchronize
from pool import MHA, MLA, Geometry, Pool

REPEAT = 1 if EMULATED else 5
FIGURES: list[dict[str, Any]] = []


def note(what: str, value: float, unit: str, target: float | None = None, of: float | None = None) -> None:
    """One figure; `of` is what it is a share of, `target` the least share."""
    share = value / of if of else None
    missed = target is not None and share is not None and share < target
    FIGURES.append(
        {"what": what, "value": value, "unit": unit, "share": share, "target": target, "missed": missed}
    )
    text = f"{what:<66} {value:8.2f} {unit}"
    if share is not None:
        text += f"  {100 * share:6.1f} %"
    if target is not None:
        text += f"  (target {100 * target:.0f} %: {'MISSED' if missed else 'reached'})"
    print(text, flush=True)


def rate(pool: Pool, gpu: Any, way: str, by: str, pages: int) -> float:
    """GB/s of one job of so many pages, spread over the pool."""
    count = pool.host.shape[0]
    pairs = [(slot, (slot * 5 + 2) % count if count % 5 else slot) for slot in range(pages)]
    seconds = []
    for ticket in range(1, REPEAT + 2):  # the first one warms up
        synchronize()
        start = time.perf_counter()
        gpu.fence(way, stream())
        pool.copy(gpu, way, pairs, by)
        gpu.record_done(way, ticket)
        seconds.append(finish(gpu, way, ticket) - start)
    return pages * pool.geometry.page_bytes / statistics.median(seconds[1:]) / 1e9


def slots_for(geometry: Geometry, total: int) -> int:
    """Slots whose pages have about `total` bytes; not a multiple of 5, so that `rate` can spread them."""
    slots = max(2, total // geometry.page_bytes)
    return slots + (slots % 5 == 0)


def with_engine(pool: Pool, **options: Any) -> Any:
    gpu = engine(pool.geometry.layers, **options)
    pool.register(gpu)
    return gpu


def ceiling(total: int) -> dict[str, float]:
    """The copy engine's rate, with runs of many megabytes."""
    large = Geometry("large runs", 1, 1, 64, 1, total // 16 // 64)
    slots = slots_for(large, total)
    pool = Pool(large, "page_unified", slots, slots)
    gpu = with_engine(pool)
    best = {way: rate(pool, gpu, way, "engine", slots) for way in WAYS}
    gpu.unregister(pool.slab.data_ptr())
    for way in WAYS:
        note(f"copy engine, large runs, {way}", best[way], "GB/s")
    return best


def layouts(total: int, best: dict[str, float]) -> None:
    for geometry in (MHA, MLA) if not EMULATED else (Geometry("tiny", 2, 2, 4, 2, 256),):
        slots = slots_for(geometry, total)
        for layout in ("page_unified", "page_first_direct", "layer_first"):
            pool = Pool(geometry, layout, slots, slots)
            gpu = with_engine(pool)
            for way in WAYS:
                note(
                    f"{geometry.name} {layout} {way}: copy engine",
                    rate(pool, gpu, way, "engine", slots),
                    "GB/s",
                    0.95,
                    best[way],
                )
            gpu.unregister(pool.slab.data_ptr())
        for layout in ("page_first", "page_head") if geometry.planes == 2 else ("page_first",):
            rows(Pool(geometry, layout, slots, slots), best, slots)


def rows(pool: Pool, best: dict[str, float], slots: int) -> None:
    """Short runs: kernels with few multiprocessors, and staging."""
    name = f"{pool.geometry.name} {pool.layout}"
    small = pool.layout == "page_head"
    for sms in (1, 2, 4, 8, 16):
        gpu = with_engine(pool, multiprocessors=(sms, sms))
        for way in WAYS:
            target = 0.9 if way == "out" and sms == 2 and not small else None
            note(
                f"{name} {way}: kernel, {sms} SMs",
                rate(pool, gpu, way, "kernel", slots),
                "GB/s",
                target,
                best[way],
            )
        gpu.unregister(pool.slab.data_ptr())
    staging = min(64 << 20, 8 * pool.page_stride) if EMULATED else 128 << 20
    gpu = with_engine(pool, staging=(staging, staging))
    for way in WAYS:
        target = 0.9 if way == "in" and not small else None
        note(f"{name} {way}: staged", rate(pool, gpu, way, "staged", slots), "GB/s", target, best[way])
    gpu.unregister(pool.slab.data_ptr())


def crossover(total: int, best: dict[str, float]) -> None:
    """Where the copy engine overtakes a kernel: what the threshold should be."""
    for kib in (4, 8, 16, 24, 28, 32, 64, 128, 256):
        geometry = Geometry(f"runs of {kib} KiB", 4, 1, 1, 1, kib << 10)
        slots = min(slots_for(geometry, total), 3001)
        pool = Pool(geometry, "page_first_direct", slots, slots)
        gpu = with_engine(pool)
        for way in WAYS:
            for by in ("engine", "kernel"):
                note(f"{geometry.name} {way}: {by}", rate(pool, gpu, way, by, slots), "GB/s", None, best[way])
        gpu.unregister(pool.slab.data_ptr())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--mib", type=int, default=1024, help="bytes of a job, in MiB")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    if why := missing():
        print(f"NO GPU, NO FIGURES WERE MEASURED: {why}", file=sys.stderr)
        sys.exit(1 if REQUIRED else 0)
    total = options.mib << 20
    best = ceiling(total)
    layouts(total, best)
    overlap.measure(note)
    crossover(total // 4, best)
    if options.json:
        options.json.write_text(json.dumps({"emulated": EMULATED, "figures": FIGURES}, indent=1))
    missed = [figure["what"] for figure in FIGURES if figure["missed"]]
    print(
        f"{len(FIGURES)} figures, {len(missed)} targets missed"
        + ("; EMULATED: no figure means anything" * EMULATED)
    )
    sys.exit(1 if missed and options.strict else 0)


if __name__ == "__main__":
    main()
