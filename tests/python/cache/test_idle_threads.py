"""Threads of a cache that have nothing to do sleep: they are never woken, so that they take neither a
processor nor the interpreter's lock from the engine. Counted, not timed: the kernel says how often each
thread got a processor."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Engine, make

from hicache.storage import served
from hicache.testing.doubles import Fault, Faulty
from hicache.testing.memory import MemoryStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

TASKS = Path("/proc/self/task")
THREADS = 8
#: Seconds that are looked at, and turns of a thread in them that are no polling.
LOOK_S, FEW = 1.0, 3


def turns() -> dict[str, int]:
    """How often each thread got a processor so far."""
    found: dict[str, int] = {}
    for task in TASKS.iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[task.name] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found


@pytest.fixture
def before() -> set[str]:
    return set(turns())


def woken(before: set[str]) -> list[int]:
    """What the threads that came since do while nothing is asked of them, most first."""
    then = turns()
    time.sleep(LOOK_S)
    now = turns()
    ours = (then.keys() & now.keys()) - before
    assert len(ours) >= THREADS, "these are not its threads"
    return sorted((now[task] - then[task] for task in ours), reverse=True)


def rest(engine: Engine) -> None:
    """A request, and all that it leads to."""
    engine.finish(engine.run(list(range(24))))
    assert engine.cache.drain(10)
    time.sleep(0.2)  # what a store does by itself behind that


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Any]:
    return {
        "none": None,
        "sim": "sim://",
        "memory": "memory://?size=1MiB",
        "file": f"file://{tmp_path}/files?size=1MiB&free=0",
        "slab": f"slab://{tmp_path}/slab?size=64MiB&extent=1MiB&free=0&threads=2",
        "python": served(MemoryStore(), threads=THREADS),
    }


@pytest.mark.parametrize("kind", ["sim", "memory", "file", "slab", "python"])
def test_threads_without_work_are_not_woken(before: set[str], stores: dict[str, Any], kind: str) -> None:
    engine = make(2, store=stores[kind], io_threads=THREADS)
    rest(engine)
    # A slab store looks once a second which pages were used.
    counts = woken(before)
    assert counts[0] <= FEW, counts
    assert sum(counts) <= 2 * FEW, counts
    engine.cache.close()


@pytest.mark.parametrize("verb", ["exists", "get", "put"])
def test_threads_that_wait_for_a_store_that_hangs_are_not_woken(before: set[str], verb: str) -> None:
    """Nor does anything poll for them but the engine."""
    inner = MemoryStore()
    store = Faulty(inner, lambda turn: Fault.HANG if turn.verb == verb else None)
    options = {"prefetch_deadline": 60.0, "store_deadline": 60.0, "io_threads": THREADS}
    engine = make(2, store=served(store, timeout=60.0), **options)
    request = engine.match(list(range(24)))
    if verb == "get":
        writer = make(2, store=served(inner))
        writer.finish(writer.run(list(range(24))))
        assert writer.cache.write_out(10)
    if verb == "put":
        engine.load(request)
        assert engine.compute(request)
    else:
        assert engine.cache.prefetch(request.hit)
    deadline = time.monotonic() + 10
    while not store.calls[verb] and time.monotonic() < deadline:
        engine.cache.poll()
    assert store.calls[verb]
    time.sleep(0.2)
    counts = woken(before)
    assert sum(counts) <= 2 * FEW, counts
    engine.finish(request)
    store.release()
    engine.cache.close()


def test_polls_wake_nobody(before: set[str], stores: dict[str, Any]) -> None:
    """An engine that makes steps with nothing for storage in them."""
    engine = make(2, store=stores["sim"], io_threads=THREADS)
    rest(engine)
    then = turns()
    for _ in range(2_000):
        engine.cache.poll()
        engine.cache.stepped(64, 0.01)
    now = turns()
    ours = (then.keys() & now.keys()) - before
    assert sum(now[task] - then[task] for task in ours) <= 2 * FEW
    engine.cache.close()
