"""Match and insert through the binding, beside the same index written in plain Python; and a backup storm.

Run: python benches/python/verbs.py. Prints nanoseconds a call (median of rounds, both sides interleaved) and
the ratio. The baseline is one dictionary entry a page, keyed by (page before, tokens).

The storm: requests that finish in one step with new pages each, under every write policy. What it costs the
engine's thread is all inserts, releases and the poll after them, beside the same without a host tier; the
copies themselves are other threads'.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from hicache import HiCache, Host, pools

PATHS, PAGES, PAGE_SIZE, ROUNDS, CALLS = 256, 128, 16, 15, 64
STORM = (64, 8)


class Naive:
    """A page trie in one dictionary."""

    def __init__(self) -> None:
        self.pages: dict[tuple[int, bytes], int] = {}

    def walk(self, tokens: np.ndarray) -> tuple[int, int]:
        at, width = -1, PAGE_SIZE * tokens.itemsize
        data = tokens.tobytes()
        for page in range(len(data) // width):
            following = self.pages.get((at, data[page * width : (page + 1) * width]))
            if following is None:
                return page, at
            at = following
        return len(data) // width, at

    def insert(self, tokens: np.ndarray) -> None:
        known, at = self.walk(tokens)
        for page in range(known, len(tokens) // PAGE_SIZE):
            key = (at, tokens[page * PAGE_SIZE : (page + 1) * PAGE_SIZE].tobytes())
            at = self.pages[key] = len(self.pages)


def nanoseconds(act: Callable[[np.ndarray], object], keys: list[np.ndarray]) -> float:
    started = time.perf_counter_ns()
    for key in keys:
        act(key)
    return (time.perf_counter_ns() - started) / len(keys)


def storm(write: str | None) -> list[float]:
    """Microseconds of the engine's thread for a step in which `STORM` requests finish, in each of the rounds:
    inserts and releases, and the poll after them. `write` None: without a host tier."""
    requests, pages = STORM
    rows = 4 * requests * pages * PAGE_SIZE
    kv = [torch.zeros(rows, 16, dtype=torch.uint8)]
    tier = {} if write is None else {"host": Host(tokens=2 * rows), "write": write}
    rnd = np.random.default_rng(2)
    times = []
    with HiCache([pools.mha("kv", kv, kv)], PAGE_SIZE, **tier) as cache:
        for _ in range(ROUNDS):
            keys = [rnd.integers(0, 50_000, pages * PAGE_SIZE, dtype=np.int64) for _ in range(requests)]
            hits = [cache.match_prefix(key) for key in keys]
            cache.load(hits)
            slots = [cache.allocate(pages) for _ in hits]
            started = time.perf_counter_ns()
            for hit, key, given in zip(hits, keys, slots, strict=True):
                assert given is not None
                cache.insert(hit, key, given)
                hit.release()
            cache.poll()
            times.append((time.perf_counter_ns() - started) / 1e3)
            cache.drain(10)
    return times


def main() -> None:
    rnd = np.random.default_rng(1)
    keys = [rnd.integers(0, 50_000, PAGES * PAGE_SIZE, dtype=np.int64) for _ in range(PATHS)]
    rows = (PATHS + 1) * PAGES * PAGE_SIZE
    kv = [torch.zeros(rows, 1, dtype=torch.uint8)]
    cache, naive = HiCache([pools.mha("kv", kv, kv)], PAGE_SIZE), Naive()

    def match(key: np.ndarray) -> None:
        cache.match_prefix(key).release()

    def insert(key: np.ndarray) -> None:
        hit = cache.match_prefix(key, limit=0)
        cache.load([hit])
        slots = cache.allocate(PAGES)
        assert slots is not None
        cache.free(cache.insert(hit, key, slots).duplicates)
        hit.release()

    for key in keys:
        insert(key)
        naive.insert(key)
    ours: dict[str, Callable[[np.ndarray], object]] = {"match + release": match}
    ours["match, load, insert of a present path, release"] = insert
    theirs: dict[str, Callable[[np.ndarray], object]] = dict(
        zip(ours, (naive.walk, naive.insert), strict=True)
    )
    print(f"{PATHS} paths of {PAGES} pages of {PAGE_SIZE}; ns a call: cache, naive, ratio")
    for name, act in ours.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            some = random.Random(len(times[0])).sample(keys, CALLS)
            times[0].append(nanoseconds(act, some))
            times[1].append(nanoseconds(theirs[name], some))
        mine, other = (statistics.median(side) for side in times)
        print(f"  {name:48} {mine:9.0f} {other:9.0f} {other / mine:6.1f}x")
    cache.close()
    requests, pages = STORM
    print(
        f"{requests} requests that finish in one step with {pages} new pages each; us of the engine's thread"
    )
    for write in (None, "write_through", "write_through_selective", "write_back"):
        each = storm(write)
        median, most = statistics.median(each), max(each)
        print(f"  backup storm, {write or 'no host tier':33} {median:9.0f} (most {most:.0f})")


if __name__ == "__main__":
    main()
