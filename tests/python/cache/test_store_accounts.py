"""What a store says that it holds is what it holds: after removals, restarts and in another store's place."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Engine, make
from test_metrics import read

from hicache import ModelIdentity, metrics
from hicache.storage import open as open_store
from hicache.testing.memory import MemoryStore

EIGHT = list(range(8))
STORES: dict[str, Callable[[Path], str]] = {
    "file": lambda place: f"file://{place}/files?size=1MiB&free=0",
    "slab": lambda place: f"slab://{place}/slab?size=64MiB&extent=1MiB&free=0&threads=2",
    "memory": lambda _: "memory://?size=1MiB",
    "python": lambda _: "hicache.testing.memory:MemoryStore?capacity=100000",
}


def run(engine: Engine, first: int) -> None:
    engine.finish(engine.run([first + token for token in EIGHT]))
    assert engine.cache.drain(10)


def holds(engine: Engine) -> tuple[int, int]:
    """Pages and bytes that it says to hold, now that nothing is under way. A store in Python says so a call
    later: it is asked for what it hasn't got."""
    for _ in range(2):
        request = engine.match([900 + token for token in EIGHT])
        engine.fetch(request)
        engine.finish(request)
        assert engine.cache.drain(10)
        time.sleep(0.01)
    said = engine.cache.store_stats()
    assert said is not None
    samples = read(metrics.prometheus(engine.cache))
    pages, size = said["pages"], said["bytes"]
    assert pages is not None
    assert size is not None
    assert (samples["hicache_storage_pages", ""], samples["hicache_storage_bytes", ""]) == (pages, size)
    return pages, size


@pytest.mark.parametrize("kind", STORES)
def test_totals_fall_with_what_is_removed(tmp_path: Path, kind: str) -> None:
    engine = make(2, 32, 32, store=STORES[kind](tmp_path))
    assert holds(engine)[0] == 0
    seen = []
    for first in (0, 100, 200):
        run(engine, first)
        seen.append(holds(engine))
    pages = [pages for pages, _ in seen]
    assert pages == [4, 8, 12]
    # The same again: nothing is there twice.
    run(engine, 0)
    assert holds(engine) == seen[-1]
    cleared = engine.cache.clear()
    assert cleared.storage == 12
    run(engine, 300)
    assert holds(engine)[0] == 4, "what is left is what came since"
    # A slab's place is taken in whole slots, which stay its own; elsewhere bytes are the pages'.
    assert kind == "slab" or holds(engine)[1] == seen[0][1]
    assert engine.cache.clear(["storage"]).storage == 4
    assert holds(engine)[0] == 0
    counters = engine.cache.store_stats() or {}
    assert counters["written_pages"] == 16, "counters are of what happened, and stay"
    engine.cache.close()


@pytest.mark.parametrize("kind", ["file", "slab"])
def test_totals_are_right_after_a_restart(tmp_path: Path, kind: str) -> None:
    """And after removals that follow it: no total of pages from before may fall below none."""
    for round_ in range(3):
        engine = make(2, 32, 32, store=STORES[kind](tmp_path))
        # A store that has a bound looks at what is there before it takes anything.
        run(engine, 100 * round_)
        assert holds(engine)[0] == 4 * (round_ + 1), "those of before, too"
        engine.cache.close()
    engine = make(2, 32, 32, store=STORES[kind](tmp_path))
    assert engine.cache.clear().storage == 12
    pages, size = holds(engine)
    assert pages == 0
    assert 0 <= size < 2**40, "no total runs below nothing"
    run(engine, 7)
    assert holds(engine)[0] == 4
    engine.cache.close()
    with open_store(STORES[kind](tmp_path)) as store:
        assert len(store.list()) == 4


def test_what_was_a_store_is_no_longer_told_of() -> None:
    """Its numbers go with it, and another one begins with its own."""
    inner: Any = MemoryStore()
    engine = make(2, 32, 32, store=inner)
    run(engine, 0)
    assert holds(engine)[0] == 4
    engine.cache.detach_store()
    assert "hicache_storage_" not in metrics.prometheus(engine.cache)
    engine.cache.attach_store(MemoryStore(5_000_000))
    assert holds(engine)[0] == 0
    said = engine.cache.store_stats() or {}
    assert (said["capacity"], said["written_pages"]) == (5_000_000, 0)
    engine.cache.close()


def test_another_identity_s_pages_stay_counted(tmp_path: Path) -> None:
    url: Any = STORES["file"](tmp_path)
    ours, theirs = (make(2, 32, 32, store=url, identity=ModelIdentity(model=name)) for name in "ab")
    run(theirs, 0)
    theirs.cache.close()
    run(ours, 0)
    run(ours, 100)
    assert ours.cache.clear().storage == 8
    ours.cache.close()
    again = make(2, 32, 32, store=url, identity=ModelIdentity(model="b"))
    run(again, 100)
    assert holds(again)[0] == 8
    again.cache.close()
