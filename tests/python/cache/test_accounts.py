"""Tokens are accounted for once each: by the tier that gave them, or as missed; in totals that only grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import ANY_LENGTH, Device, Engine, Request, make
from test_metrics import read

from hicache import HiCache, Host, metrics
from hicache.policy import Loading
from hicache.storage import Outcome, Page
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

SIXTEEN = list(range(16))
TIERS = ("hit_device_tokens", "hit_host_tokens", "hit_storage_tokens", "missed_tokens")


class Lasting(Double):
    """Outlives the caches that close it."""

    def close(self) -> None:
        return


def tokens(engine: Engine) -> tuple[int, ...]:
    """By tier, and missed, so far."""
    stats = engine.cache.stats()
    return tuple(stats[name] for name in TIERS)


def scattered(store: Any) -> Engine:
    """Pages of 4: the first is on the device, the second on the host, the third in the store."""
    engine = make(4, store=store)
    engine.finish(engine.run(SIXTEEN[:12]))
    assert engine.cache.drain(10)
    engine.cache.evict(2)
    engine.cache.evict(1, "host")
    return engine


def arrive(engine: Engine, prompt: list[int]) -> Request:
    request = engine.match(prompt)
    engine.fetch(request)
    return request


def test_each_tier_gives_a_page_and_totals_add_up(tmp_path: Path) -> None:
    engine = scattered(tmp_path)
    before = tokens(engine)
    told = []
    for prompt in (SIXTEEN, [*SIXTEEN, 99]):
        request = arrive(engine, prompt)
        engine.load(request)
        assert engine.compute(request)
        told.append(tuple(now - then for now, then in zip(tokens(engine), before, strict=True)))
        engine.finish(request)
        assert engine.cache.drain(10)
    assert told == [(4, 4, 4, 4), (20, 4, 4, 5)]
    given = tuple(now - then for now, then in zip(tokens(engine), before, strict=True))
    assert (given, sum(given), sum(given[:3])) == (told[1], 33, 28)
    # As many of them as a scraper reads.
    samples = read(metrics.prometheus(engine.cache))
    assert tuple(samples[f"hicache_{name}_total", ""] for name in TIERS) == tokens(engine)


def test_a_batch_adds_to_what_was_counted_before() -> None:
    """The rate is that of all requests so far, whatever the last batch was like."""
    engine = make(2, 64, 64)
    known = [[100 * number + token for token in range(8)] for number in range(3)]
    for prompt in known:
        engine.finish(engine.run(prompt))
    new = iter(range(1000, 9000, 100))
    told = []
    for hits, misses in ((3, 0), (0, 2), (1, 1), (0, 0), (2, 0)):
        prompts = [*known[:hits], *([next(new) + token for token in range(8)] for _ in range(misses))]
        batch = [engine.match(prompt) for prompt in prompts]
        engine.load(*batch)
        for request in batch:
            assert engine.compute(request)
            engine.finish(request)
        told.append(tokens(engine))
    assert told == [(24, 0, 0, 24), (24, 0, 0, 40), (32, 0, 0, 48), (32, 0, 0, 48), (48, 0, 0, 48)]
    stats = engine.cache.stats()
    assert sum(told[-1]) == stats["matched_tokens"]
    assert stats["loaded_requests"] == stats["requests"] == 12


class Little:
    """Wants the first page of what there is, and no more."""

    def load(self, loading: Loading) -> int:
        return 2


@pytest.mark.parametrize(
    ("options", "call", "given"),
    [
        ({"load_threshold": 9}, {}, 0),
        ({}, {"budget": 7}, 0),
        ({"policy": Little()}, {}, 2),
        ({"load_threshold": 8}, {"budget": 8}, 8),
    ],
    ids=["below the threshold", "beyond the budget", "more than the policy wants", "all of it"],
)
@pytest.mark.parametrize("tier", ["host", "storage"])
def test_what_is_declined_is_missed(
    tmp_path: Path, options: dict[str, Any], call: dict[str, Any], given: int, tier: str
) -> None:
    engine = make(2, 16, 16, store=tmp_path, **options)
    engine.finish(engine.run(SIXTEEN[:8]))
    assert engine.cache.drain(10)
    engine.cache.evict(99)
    if tier == "storage":
        engine.cache.evict(99, "host")
    before = tokens(engine)
    request = arrive(engine, SIXTEEN[:8])
    assert request.hit.host_length == 8, "it is there"
    load = engine.cache.load([request.hit], **call)
    assert request.hit.length == given
    load.wait()
    device, host, storage, missed = (now - then for now, then in zip(tokens(engine), before, strict=True))
    assert (device, host + storage, missed) == (0, given, 8 - given)
    assert (storage if tier == "host" else host) == 0
    assert engine.cache.stats()["load_declined_pages"] == (8 - given) // 2
    request.hit.release()


def test_what_finds_no_room_is_missed() -> None:
    engine = make(2, 8, 16)
    engine.finish(engine.run(SIXTEEN[:8]))
    assert engine.cache.drain(10)
    engine.cache.evict(99)
    held = engine.allocate(6)
    before = tokens(engine)
    request = engine.match(SIXTEEN[:8])
    engine.load(request)
    assert request.hit.length == 4
    assert tuple(now - then for now, then in zip(tokens(engine), before, strict=True)) == (0, 4, 0, 4)
    assert engine.cache.stats()["load_no_room_pages"] == 2
    engine.finish(request)
    assert held is not None
    engine.free(held)
    engine.check()


def test_who_waits_for_what_another_reads_has_missed_nothing() -> None:
    """Two requests for the same pages, at once: each is served all of them, each is counted once, and the
    store has answered no read with a miss."""
    inner = MemoryStore()
    run(writer := make(2, store=Lasting(inner)))
    writer.cache.close()
    engine = make(2, 32, 32, store=Lasting(inner))
    both = [engine.match(SIXTEEN), engine.match(SIXTEEN)]
    assert all(engine.cache.prefetch(request.hit) for request in both)
    assert engine.cache.drain(10)
    for request in both:
        engine.load(request)
        engine.verify(request)
        assert request.hit.length == 16
    device, host, storage, missed = tokens(engine)
    assert (device, host + storage, missed) == (16, 16, 0), "the second finds them on the device"
    store = engine.cache.store_stats() or {}
    assert (store["absent_pages"], store["failed_pages"]) == (0, 0)
    assert engine.cache.stats()["host_resident"] == 8, "they are there once"
    for request in both:
        engine.finish(request)
    engine.cache.close()


def run(engine: Engine) -> None:
    engine.finish(engine.run(SIXTEEN))
    assert engine.cache.drain(10)


class Declining(MemoryStore):
    """Has no room for anything."""

    def put(
        self, identity: bytes, keys: Sequence[bytes], parents: Sequence[bytes | None], pages: Sequence[Page]
    ) -> Sequence[Outcome]:
        return [Outcome.DECLINED] * len(keys)


def test_what_a_store_is_asked_and_does_not_take_is_counted(tmp_path: Path) -> None:
    engine = scattered(tmp_path)
    before = engine.cache.stats()
    arrive(engine, SIXTEEN).hit.release()
    now = engine.cache.stats()
    assert now["prefetch_asked_pages"] - before["prefetch_asked_pages"] == 2, "what no other tier has"
    assert now["prefetched_pages"] - before["prefetched_pages"] == 1, "what was there of it"
    full = make(2, store=Declining())
    run(full)
    stats = full.cache.stats()
    assert (stats["store_declined_pages"], stats["stored_pages"], stats["store_failed_pages"]) == (8, 0, 0)
    assert stats["inserted_pages"] == stats["backed_up_pages"] == stats["hashed_pages"] == 8
    full.cache.close()


def test_a_request_that_is_looked_at_often_counts_once() -> None:
    """Matched and given up, loaded in a second try, explained and read: one request, its tokens once."""
    engine = make(2)
    run(engine)
    before = engine.cache.stats()
    engine.match(SIXTEEN).hit.release()
    request = engine.match(SIXTEEN)
    for _ in range(3):
        engine.cache.explain(request.hit)
        engine.cache.reader().would_hit(SIXTEEN)
        engine.cache.stats()
        metrics.prometheus(engine.cache)
    engine.load(request)
    with pytest.raises(Exception, match="loaded already"):
        engine.cache.load([request.hit])
    now = engine.cache.stats()
    assert now["requests"] - before["requests"] == 2
    assert now["loaded_requests"] - before["loaded_requests"] == 1
    assert now["hit_device_tokens"] - before["hit_device_tokens"] == 16
    assert now["missed_tokens"] == before["missed_tokens"]
    engine.finish(request)


def test_other_caches_of_the_process_count_by_themselves() -> None:
    """As many as one likes, one after the other and at once, also of the same names."""
    engines = [make(2) for _ in range(3)]
    for number, engine in enumerate(engines):
        for _ in range(number):
            run(engine)
    assert [engine.cache.stats()["requests"] for engine in engines] == [0, 1, 2]
    samples = read(metrics.prometheus(*(engine.cache for engine in engines)))
    assert [samples["hicache_requests_total", f'cache="{number}"'] for number in range(3)] == [0, 1, 2]
    one = Device(8, 2)
    for _ in range(2):
        HiCache(one.pools, 2, host=Host(tokens=8), **ANY_LENGTH).close()
