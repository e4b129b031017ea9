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


@pytest.mark.parametrize("verb", ["clear", "reset", "bump_epoch"])
def test_an_engine_that_owns_the_slots_is_told_of_each_once(verb: str) -> None:
    """Those that nobody holds at once, those of a running request when it ends."""
    some = make(2, slots="engine")
    cache, size = some.cache, 2
    for slots in ([3, 1, 4, 15], [3, 1, 9]):
        tokens = EIGHT if 4 in slots else [*EIGHT[:4], 70, 71]
        hit = cache.match_prefix(tokens)
        load = cache.load([hit], slots=[])
        load.wait()
        fresh = slots[hit.length // size :]
        for page, slot in enumerate(fresh, hit.length // size):
            some.device.write(slot, hit.namespace, tokens[: (page + 1) * size])
        cache.insert(hit, tokens[hit.length :], fresh)
        if 4 in slots:
            hit.release()
    assert cache.drain(10)
    assert cache.returned_slots().tolist() == []
    getattr(cache, verb)()
    first = cache.returned_slots()
    assert (first.dtype, sorted(first.tolist())) == (torch.int32, [4, 15])
    some.device.poison(first.tolist())
    some.device.verify([3, 1, 9], hit.namespace, [*EIGHT[:4], 70, 71])
    with pytest.raises(ArgumentError, match=r"^slots: slot 3 belongs to a cached page"):
        cache.insert(hit, [72, 73], [3])
    # It goes on, in a slot that it was told of.
    cache.insert(hit, [72, 73], [4])
    assert cache.returned_slots().tolist() == []
    hit.release()
    assert cache.drain(10)
    assert sorted(cache.returned_slots().tolist()) == [1, 3, 4, 9]
    assert cache.returned_slots().tolist() == []
    cache.check()
    cache.close()
    assert cache.returned_slots().tolist() == []


def test_whose_slots_are_the_caches_is_told_nothing(engine: Engine) -> None:
    with pytest.raises(ArgumentError, match=r"^slots: the cache owns the slots"):
        engine.cache.returned_slots()


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
