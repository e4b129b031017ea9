"""What storage threads cost the engine's thread: a loop of Python beside them, idle and busy.

The loop holds the GIL and does nothing else. Beside it: no cache, a cache with idle threads, and one whose
threads answer prefetches of a store that only takes time. One process, in turns; the best of each. For
people: nothing is asserted.
On error: exceptions of the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import torch

from hicache import HiCache, Host, ModelIdentity, pools

PAGE, PAGES, ROUNDS, SECONDS = 16, 1024, 5, 0.2


def victim(beside: Callable[[], None]) -> float:
    """Turns a second of a loop that calls `beside` every 1,000 turns; the call's own time doesn't count."""
    turns, away = 0, 0.0
    started = time.perf_counter()
    while (now := time.perf_counter()) - started - away < SECONDS:
        for _ in range(1000):
            turns += 1
        before = time.perf_counter()
        beside()
        away += time.perf_counter() - before
    return turns / (now - started - away)


def cache(threads: int) -> HiCache:
    """A small cache over a store that only takes time."""
    rows = [torch.zeros(PAGES * PAGE, 8)]
    store = "sim://?latency_us=200&read_gbps=1"
    identity = ModelIdentity(model="none")
    return HiCache(
        [pools.latent("kv", rows)],
        PAGE,
        host=Host(ratio=1.0),
        storage=store,
        identity=identity,
        io_threads=threads,
        prefetch_threshold=0,
    )


def asking(one: HiCache) -> Callable[[], None]:
    """Keeps eight prefetches under way: a store that keeps nothing is asked for other tokens each time."""
    hits = []
    first = 0

    def beside() -> None:
        nonlocal first
        one.poll()
        for hit in [hit for hit in hits if not hit.waiting]:
            hits.remove(hit)
            hit.release()
        while len(hits) < 8:
            first += PAGE * 64
            hits.append(one.match_prefix(torch.arange(first, first + PAGE * 64)))
            one.prefetch(hits[-1])

    return beside


def main() -> None:
    """Prints turns a second, as a share of those without a cache."""
    with ExitStack() as open_ones:
        idle, busy = (open_ones.enter_context(cache(threads)) for threads in (16, 16))
        beside = {"no cache": lambda: None, "idle": idle.poll, "busy": asking(busy)}
        best = dict.fromkeys(beside, 0.0)
        for _ in range(ROUNDS):
            for name, call in beside.items():
                best[name] = max(best[name], victim(call))  # type: ignore[arg-type]
        for name, turns in best.items():
            print(f"{name:>9}: {turns / 1e6:6.2f} M turns/s, {turns / best['no cache']:.0%}")


if __name__ == "__main__":
    main()
