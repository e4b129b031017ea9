"""Readers on other threads, beside an engine that goes on."""

from __future__ import annotations

import threading

import pytest
import torch

from hicache import ArgumentError, HiCache, Host, Namespace, WouldHit, pools

PAGE_SIZE = 2


def serve(cache: HiCache, tokens: list[int], namespace: Namespace | None = None) -> None:
    hit = cache.match_prefix(tokens, namespace)
    cache.load([hit]).wait()
    slots = cache.allocate(len(tokens) // PAGE_SIZE - hit.length // PAGE_SIZE)
    assert slots is not None
    cache.free(cache.insert(hit, tokens[hit.length :], slots).duplicates)
    hit.release()
    assert cache.drain(10)


@pytest.fixture
def cache() -> HiCache:
    rows = [torch.zeros(16 * PAGE_SIZE, 1)]
    return HiCache([pools.latent("kv", rows)], PAGE_SIZE, host=Host(tokens=64))


def test_a_reader_sees_both_tiers_and_namespaces(cache: HiCache) -> None:
    serve(cache, [1, 2, 3, 4, 5, 6])
    reader = cache.reader()
    assert reader.would_hit([1, 2, 3, 4, 9, 9]) == WouldHit(4, 4)
    assert reader.would_hit([1, 2, 3]) == WouldHit(2, 2)
    assert reader.would_hit([1, 2], Namespace(salt="a")) == WouldHit(0, 0)
    cache.evict(2)
    assert reader.would_hit(torch.tensor([1, 2, 3, 4, 5, 6])) == WouldHit(2, 6)
    serve(cache, [1, 2], Namespace(salt="a"))
    assert reader.would_hit([1, 2], Namespace(salt="a")) == WouldHit(2, 2)
    cache.evict(99)
    cache.evict(99, tier="host")
    assert reader.would_hit([1, 2, 3, 4]) == WouldHit(0, 0)
    with pytest.raises(ArgumentError, match=r"^tokens: "):
        reader.would_hit([-1, 2])
    assert reader.stats()["device_resident"] == 0 == cache.stats()["device_resident"]
    slots = cache.allocate(5)
    assert slots is not None
    cache.free(slots)
    cache.match_prefix([1, 2]).release()
    for name in ("device_free", "requests"):
        assert reader.stats()[name] == cache.stats()[name]
    cache.close()
    assert reader.would_hit([1, 2]) == WouldHit(0, 0)


def test_readers_on_threads_do_not_stop_the_engine(cache: HiCache) -> None:
    kept = [7, 7, 8, 8]
    serve(cache, kept)
    hit = cache.match_prefix(kept)
    cache.load([hit]).wait()
    reader, stop, wrong, rounds = cache.reader(), threading.Event(), [], [0, 0]

    def ask(which: int) -> None:
        while not stop.is_set():
            rounds[which] += 1
            if reader.would_hit(kept) != WouldHit(4, 4):
                wrong.append(reader.would_hit(kept))

    threads = [threading.Thread(target=ask, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for n in range(200):
        serve(cache, [n, n, n + 1, n + 1, n + 2, n + 2])
    stop.set()
    for thread in threads:
        thread.join()
    hit.release()
    assert not wrong
    assert min(rounds) > 0
