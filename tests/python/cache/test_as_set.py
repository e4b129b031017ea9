"""What was set is what is done: no floor stands above a threshold, and no choice of a store changes a
layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_engine import make
from test_reach import Lasting, configured, served_twice, threads

from hicache.testing.memory import MemoryStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads by name, memory by descriptor")


@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
@pytest.mark.parametrize("threshold", [0, 1, 2, 3, 4, 5, 7, 8, 9])
def test_thresholds_are_what_was_said_rounded_up_to_pages(page_size: int, threshold: int) -> None:
    """No floor of anybody's stands above them: as many tokens as that, in whole pages, are fetched and
    loaded; a page less isn't."""
    need = -(-threshold // page_size)
    for pages in {max(1, need - 1), max(1, need)}:
        tokens = list(range(pages * page_size))
        engine = make(page_size, 32, 32, store=Lasting(MemoryStore()), load_threshold=threshold)
        engine.finish(engine.run(tokens))
        assert engine.cache.drain(10)
        engine.cache.evict(99)
        request = engine.match(tokens)
        engine.load(request)
        assert request.hit.length == (len(tokens) if pages >= need else 0)
        engine.finish(request)
        engine.cache.close()
        inner = MemoryStore()
        for fetches in (False, True):
            engine = make(page_size, 32, 32, store=Lasting(inner), prefetch_threshold=threshold)
            request = engine.match(tokens)
            assert engine.cache.prefetch(request.hit) == (pages >= need)
            assert engine.cache.drain(10)
            expected = len(tokens) if fetches and pages >= need else 0
            assert request.hit.host_length == expected
            engine.load(request)
            assert engine.compute(request)
            engine.finish(request)
            engine.cache.close()


STORES: dict[str, Any] = {
    "none": lambda _: None,
    "file": lambda place: f"file://{place}/files",
    "limited": lambda place: f"file://{place}/limited?size=1MiB&free=0",
    "slab": lambda place: f"slab://{place}/slab?size=64MiB&extent=1MiB&free=0",
    "memory": lambda _: "memory://?size=1MiB",
    "sim": lambda _: "sim://",
    "shm": lambda _: "shm://",
    "null": lambda _: "null://",
    "sglang": lambda place: f"file://{place}/theirs?names=sglang&layout=page_first&model=m&write=yes",
    "python": lambda _: MemoryStore(),
}


@pytest.mark.parametrize("layout", ["page_unified", "page_first", "layer_first"])
def test_no_store_changes_what_was_set(tmp_path: Path, layout: str) -> None:
    """The bytes of the host tier, how many threads copy and how a load arrives: the same with every store
    and without."""
    seen = {}
    for kind, url in STORES.items():
        before = threads("hicache-in")
        settings = {"tokens": 64, "layout": layout, "shared": True, "copy_threads": 2, "arrival": "layers"}
        engine = configured(url(tmp_path), host=settings)
        served_twice(engine, 1)
        _, size, descriptor = engine.cache.host_memory()["kv"]
        assert descriptor is not None
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as memory:
            seen[kind] = (memory.read(size), threads("hicache-in") - before)
        engine.cache.close()
        del engine
    assert {len(set(seen[kind][0])) > 8 for kind in seen} == {True}, "pages are in it"
    assert set(seen.values()) == {seen["none"]}
