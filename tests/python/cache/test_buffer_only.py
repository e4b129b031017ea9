"""`host_mode="buffer_only"` through `HiCache`: what it refuses, its numbers, what ends do to writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_engine import ANY_LENGTH

from hicache import ArgumentError, HiCache, Host, ModelIdentity, pools
from hicache.testing.memory import MemoryStore

PAGE, PAGES = 4, 12


def cache(store: MemoryStore | None, **options: Any) -> HiCache:
    pool = pools.mha("kv", [torch.zeros(32 * PAGE, 2, 3)], [torch.zeros(32 * PAGE, 2, 3)])
    settings = {"host": Host(tokens=5 * PAGE), "host_mode": "buffer_only"} | ANY_LENGTH | options
    return HiCache([pool], PAGE, storage=store, identity=ModelIdentity(model="m"), **settings)


def serve(some: HiCache, tokens: list[int]) -> int:
    """One request; how many of its tokens were found."""
    hit = some.match_prefix(tokens)
    some.prefetch(hit)
    assert some.drain(10)
    some.load([hit]).wait()
    found = hit.length
    slots = some.allocate((len(tokens) - found) // PAGE)
    assert slots is not None
    some.free(some.insert(hit, tokens[found:], slots).duplicates)
    hit.release()
    assert some.drain(10)
    return found


def test_it_is_the_store_that_keeps_pages() -> None:
    store, tokens = MemoryStore(), list(range(PAGES * PAGE))
    with cache(store) as some:
        assert serve(some, tokens) == 0
        stats = some.stats()
        assert (stats["host_slots"], stats["host_free"], stats["host_resident"]) == (5, 5, 0)
        assert (stats["host_staged_writes"], stats["host_staged_reads"]) == (0, 0)
        assert (stats["backed_up_pages"], stats["stored_pages"]) == (PAGES, PAGES)
        assert stats["backup_no_room_pages"] == PAGES - 4, "in pieces: writes have four of five pages"
        assert len(store.list()) == PAGES
        # Reads have as many at a time: what fits is read.
        some.reset()
        assert serve(some, tokens) == 4 * PAGE
        assert some.stats()["hit_storage_tokens"] == 4 * PAGE


def test_a_pool_for_the_whole_prefix_brings_the_whole_prefix() -> None:
    store, tokens = MemoryStore(), list(range(PAGES * PAGE))
    with cache(store, host=Host(tokens=15 * PAGE)) as some:
        serve(some, tokens)
        some.reset()
        assert serve(some, tokens) == PAGES * PAGE
        stats = some.stats()
        assert (stats["hit_storage_tokens"], stats["hit_host_tokens"]) == (PAGES * PAGE, 0)
        assert (stats["host_resident"], stats["host_free"]) == (0, 15)


def test_write_out_writes_what_would_be_written_later() -> None:
    store = MemoryStore()
    with cache(store, write_storage="write_back", clean_reserve=0.0) as some:
        serve(some, list(range(PAGES * PAGE)))
        assert len(store.list()) == 0
        assert some.write_out()
        assert len(store.list()) == PAGES


def test_a_store_may_come_later_and_go() -> None:
    with cache(None) as some:
        serve(some, list(range(PAGES * PAGE)))
        assert some.stats()["backed_up_pages"] == 0
        store = MemoryStore()
        some.attach_store(store)
        assert some.write_out()
        assert len(store.list()) == PAGES
        assert some.detach_store().unwritten_pages == 0
        assert serve(some, list(range(PAGES * PAGE))) == PAGES * PAGE


def test_clearing_leaves_nothing_to_find() -> None:
    store = MemoryStore()
    with cache(store) as some:
        serve(some, list(range(PAGES * PAGE)))
        assert some.clear() == (PAGES, 0, PAGES)
        assert serve(some, list(range(PAGES * PAGE))) == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"write": "write_back"}, "write"),
        ({"write": "write_through_selective"}, "write"),
        ({"host_copies": "keep"}, "host_copies"),
        ({"host": None, "storage": None}, "host"),
        ({"host": Host(tokens=PAGE)}, "host"),
        ({"host": Host(tokens=5 * PAGE, restart="/dev/shm/hicache-never")}, "host restart"),
        ({"host_mode": "staging"}, "host_mode"),
        ({"host_mode": None}, "host_mode"),
    ],
)
def test_what_it_cannot_go_with_is_refused_by_name(options: dict[str, Any], name: str) -> None:
    store = options.pop("storage", MemoryStore())
    with pytest.raises(ArgumentError, match=rf"^{name}:"):
        cache(store, **options)
