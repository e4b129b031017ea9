"""The slots that verbs answer with: whose memory they are."""

from __future__ import annotations

import pytest
import torch
from fake_engine import Engine, make
from test_inserts import EIGHT, started

import hicache
from hicache import ArgumentError


@pytest.fixture
def engine() -> Engine:
    """Pages of 2 tokens, 16 of them on the device and on the host; no store."""
    return make(2)


@pytest.mark.parametrize("kind", ["int32", "int64", "list"])
def test_duplicates_outlive_a_page_table_that_is_pointed_elsewhere(engine: Engine, kind: str) -> None:
    """They are a copy: the given slots are often a part of the page table itself."""
    first, second = started(engine, EIGHT[:4]), started(engine, EIGHT[:4])
    slots = engine.cache.allocate(4)
    assert slots is not None
    engine.cache.insert(first, EIGHT[:4], slots[:2])
    table = slots[2:].clone()
    given = table.tolist() if kind == "list" else table.to(getattr(torch, kind))
    done = engine.cache.insert(second, EIGHT[:4], given)
    given[:] = done.slots if isinstance(given, torch.Tensor) else done.slots.tolist()
    assert (done.duplicates.dtype, done.duplicates.tolist()) == (torch.int32, slots[2:].tolist())


@pytest.mark.parametrize("pages", [1023, 1024, 5000])
def test_few_and_many_slots_are_the_callers_own(pages: int) -> None:
    """Each answer has memory of its own, which lives as long as its tensor, whatever becomes of the cache."""
    pool = hicache.pools.latent("kv", [torch.zeros(2 * pages, 1, dtype=torch.uint8)])
    cache = hicache.HiCache([pool], 1)
    tokens = torch.arange(pages)
    hits = [cache.match_prefix(tokens, limit=0) for _ in range(2)]
    cache.load(hits)
    given = [cache.allocate(pages), cache.allocate(pages)]
    assert given[0] is not None
    assert given[1] is not None
    done = [cache.insert(hit, tokens, slots) for hit, slots in zip(hits, given, strict=True)]
    assert [one.slots.tolist() for one in done] == [given[0].tolist()] * 2
    assert torch.equal(done[1].duplicates, given[1])
    done[0].slots.zero_()
    assert (hits[0].slots.tolist(), done[1].slots.tolist()) == (given[0].tolist(),) * 2
    for hit in hits:
        hit.release()
    cache.close()
    del cache, hits
    assert done[1].slots.sum() == sum(range(pages))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("number", [-1, -(2**31), 16])
def test_what_is_no_slot_is_named(engine: Engine, dtype: torch.dtype, number: int) -> None:
    """Also where it is read in place, and looked at only when the core refuses it."""
    slots, hit = engine.cache.allocate(2), started(engine, EIGHT[:4])
    assert slots is not None
    wrong = torch.tensor([int(slots[0]), number], dtype=dtype)
    said = rf"^slots: (slot 16 does not exist|{number} is no slot)"
    for refused in (lambda: engine.cache.free(wrong), lambda: engine.cache.insert(hit, EIGHT[:4], wrong)):
        with pytest.raises(ArgumentError, match=said):
            refused()
    assert engine.cache.stats()["device_free"] == 14
    engine.cache.insert(hit, EIGHT[:4], slots)
