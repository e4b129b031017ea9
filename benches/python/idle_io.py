"""What threads of a cache cost the engine's thread: a loop of Python beside them, idle and busy.

The loop holds the interpreter's lock and does nothing else. It runs beside the threads of one cache, which
is opened for that and closed again, and right before and after that beside none at all; each such pair
gives one share, and the median of all counts, in a shuffled order, so that a machine that is slow for a
while spoils a few pairs and not the answer. What the loop's thread itself spends in calls of the cache is
left out. Beside it: processor time of all other threads.

| beside | |
|---|---|
| nothing | no cache either: how far two equal loops are apart on this machine now |
| idle | 16 storage threads over a store of the core; nothing is asked |
| idle, polled | the same, `poll` every 1,000 turns, as an engine's steps do |
| idle, Python's | 16 threads over a store written in Python, and the 16 that serve it |
| busy | 16 storage threads that answer prefetches of a store that only takes time |
| a stranger | no cache, but a process that computes: what sharing the machine alone costs |

For people: nothing is asserted.
On error: exceptions of the cache.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hicache import HiCache, Host, ModelIdentity, pools
from hicache.storage import served
from hicache.testing.memory import MemoryStore

PAGE, PAGES, THREADS, ROUNDS, SECONDS = 16, 1024, 16, 21, 0.1
#: Seconds in which threads that were started, or ended, come to rest.
REST = 0.05


def victim(beside: Callable[[], object] | None) -> tuple[float, float]:
    """Turns a second of a loop that calls `beside` every 1,000 turns, whose own time doesn't count; and the
    processor time of other threads, as a share of one processor."""
    time.sleep(REST)
    turns, away = 0, 0.0
    others = time.process_time() - time.thread_time()
    started = time.perf_counter()
    while (now := time.perf_counter()) - started - away < SECONDS:
        for _ in range(1000):
            turns += 1
        if beside is not None:
            before = time.perf_counter()
            beside()
            away += time.perf_counter() - before
    others = time.process_time() - time.thread_time() - others
    return turns / (now - started - away), others / (now - started)


@contextmanager
def cache(store: Any = "sim://?latency_us=200&read_gbps=1") -> Iterator[HiCache]:
    """A small cache; by default over a store that only takes time."""
    with HiCache(
        [pools.latent("kv", [torch.zeros(PAGES * PAGE, 8)])],
        PAGE,
        host=Host(ratio=1.0),
        storage=store,
        identity=ModelIdentity(model="none"),
        io_threads=THREADS,
        prefetch_threshold=0,
    ) as made:
        yield made


@contextmanager
def nothing() -> Iterator[None]:
    yield None


@contextmanager
def idle() -> Iterator[None]:
    with cache():
        yield None


@contextmanager
def polled() -> Iterator[Callable[[], object]]:
    with cache() as one:
        yield one.poll


@contextmanager
def idle_python() -> Iterator[None]:
    with cache(served(MemoryStore(), threads=THREADS)):
        yield None


@contextmanager
def busy() -> Iterator[Callable[[], object]]:
    """Keeps eight prefetches under way: a store that keeps nothing is asked for other tokens each time."""
    with cache() as one:
        hits: list[Any] = []
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

        yield beside
        for hit in hits:
            hit.release()


@contextmanager
def stranger() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield None
        process.kill()


BESIDE: dict[str, Callable[[], Any]] = {
    "nothing": nothing,
    "idle": idle,
    "idle, polled": polled,
    "idle, Python's": idle_python,
    "busy": busy,
    "a stranger": stranger,
}


def main() -> None:
    """Prints turns a second, as a share of those beside no cache."""
    victim(None)
    alone, shares, others = [victim(None)[0]], {name: [] for name in BESIDE}, {name: [] for name in BESIDE}
    order = random.Random(7)
    for _ in range(ROUNDS):
        for name, opened in order.sample(list(BESIDE.items()), len(BESIDE)):
            with opened() as beside:
                turns, used = victim(beside)
            alone.append(victim(None)[0])
            shares[name].append(turns / ((alone[-2] + alone[-1]) / 2))
            others[name].append(used)
    print(
        f"{'no cache':>15}: {statistics.median(alone) / 1e6:.1f} M turns/s, {min(alone) / 1e6:.1f} to",
        end=" ",
    )
    print(f"{max(alone) / 1e6:.1f}")
    for name, found in shares.items():
        low, middle, high = statistics.quantiles(found, n=4)
        used = statistics.median(others[name])
        print(
            f"{name:>15}: {middle:.1%} of that ({low:.0%} to {high:.0%} in half of {ROUNDS} rounds)", end=", "
        )
        print(f"other threads {used:.2%} of a processor")


if __name__ == "__main__":
    main()
