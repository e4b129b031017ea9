"""Caches over stores written in Python, which fail in every way there is: nothing is wrong but misses."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fake_engine import Engine, Shape, make

from hicache import ArgumentError, HiCache, Host, ModelIdentity, pools
from hicache.storage import Outcome, Page, Store, open, served  # noqa: A004
from hicache.testing.doubles import Double, Fault, Faulty
from hicache.testing.memory import MemoryStore

PROMPT = list(range(24))
#: Whose answers are wrong, or whose bytes: none may reach a request.
LIARS = (
    Fault.FLIP,
    Fault.SHORT,
    Fault.WRONG_KEY,
    Fault.REORDER,
    Fault.DUPLICATE,
    Fault.NONSENSE,
    Fault.LIE,
    Fault.DROP,
)


class Lasting(Double):
    """Outlives the caches that close it, as a server would."""

    def close(self) -> None:
        return


def engine(store: Any, **options: Any) -> Engine:
    return make(2, device_pages=16, host_pages=16, store=store, **options)


def stored(prompt: list[int] = PROMPT) -> MemoryStore:
    """A store with a prompt's pages."""
    inner = MemoryStore()
    writer = engine(Lasting(inner))
    writer.finish(writer.run(prompt))
    writer.cache.close()
    assert len(inner.list()) == len(prompt) // 2
    return inner


def found(reader: Engine, prompt: list[int] = PROMPT) -> int:
    """Tokens that come back, every byte of which is looked at; then the rest is computed."""
    request = reader.match(prompt)
    reader.fetch(request)
    reader.load(request)
    reader.verify(request)
    length = request.hit.length
    assert reader.compute(request)
    reader.verify(request)
    reader.finish(request)
    return length


def test_what_one_cache_stores_another_reads() -> None:
    reader = engine(Lasting(stored()))
    assert found(reader) == len(PROMPT)
    assert reader.cache.stats()["prefetched_pages"] == 12
    reader.cache.close()


def test_pages_of_many_runs() -> None:
    inner = MemoryStore()
    for _ in range(2):
        some = engine(Lasting(inner), shape=Shape(side=24), layout="layer_first")
        assert found(some) == (len(PROMPT) if _ else 0)
        some.cache.close()


def test_another_model_finds_nothing() -> None:
    reader = engine(Lasting(stored()), identity=ModelIdentity(model="another"))
    assert found(reader) == 0
    reader.cache.close()


@pytest.mark.parametrize("fault", LIARS)
def test_a_lying_reader_is_caught(fault: Fault) -> None:
    store = Faulty(Lasting(stored()), lambda turn: fault if turn.verb in ("get", "exists") else None)
    reader = engine(store)
    assert found(reader) < len(PROMPT) or fault in (Fault.REORDER, Fault.DROP)
    assert store.injected[fault] or fault is Fault.DROP
    stats = reader.cache.stats()
    if fault in (Fault.FLIP, Fault.SHORT, Fault.WRONG_KEY):
        assert stats["corrupt_pages"] > 0
    reader.check()
    reader.cache.close()


@pytest.mark.parametrize("fault", LIARS)
def test_a_lying_writer_is_caught(fault: Fault) -> None:
    inner = MemoryStore()
    store = Faulty(Lasting(inner), lambda turn: fault if turn.verb == "put" else None)
    writer = engine(store)
    writer.finish(writer.run(PROMPT))
    writer.cache.close()
    assert store.injected[fault] or fault is Fault.LIE
    reader = engine(Lasting(inner))
    length = found(reader)
    assert length < len(PROMPT) or fault not in (Fault.FLIP, Fault.SHORT, Fault.WRONG_KEY, Fault.DROP)
    reader.cache.close()
    # What was corrupt is mended by the page that was computed instead, if it was taken away when it was read.
    again = engine(Lasting(inner))
    assert found(again) >= length
    again.cache.close()


def test_unverified_stores_are_trusted_by_name_only() -> None:
    """Without the checksum the same fault does reach the request: so it is the checksum that catches it."""
    inner = MemoryStore()
    writer = engine(served(Lasting(inner), verify=False))
    writer.finish(writer.run(PROMPT))
    writer.cache.close()
    assert all(item.bytes == 2 * 2 * 2 * 2 * 4 * 2 for item in inner.list()), "the payload, and nothing else"
    reader = engine(
        served(Faulty(inner, lambda turn: Fault.FLIP if turn.verb == "get" else None), verify=False)
    )
    with pytest.raises(AssertionError, match="is not"):
        found(reader)
    reader.cache.close()


def test_a_storm_of_faults() -> None:
    """Every fault with its chance, many prompts, three caches at one store: all that hits is right."""
    chances = {fault: 0.03 for fault in Fault if fault not in (Fault.HANG, Fault.KEEP)}
    store = Faulty(Lasting(MemoryStore()), chances, seed=11, delay=0.002)
    engines = [engine(store) for _ in range(3)]
    lengths = 0
    for turn in range(60):
        prompt = [turn % 7, *range(1 + turn % 3, 19)]
        lengths += found(engines[turn % 3], prompt)
        engines[turn % 3].cache.evict(16)
        engines[turn % 3].cache.evict(16, "host")
    for some in engines:
        some.check()
        some.cache.close()
    assert lengths > 0, "nothing was ever found"
    assert len(store.injected) > 6, store.injected


@pytest.mark.parametrize("verb", ["exists", "get", "put"])
def test_a_store_that_hangs_costs_its_pages(verb: str) -> None:
    store = Faulty(Lasting(stored()), lambda turn: Fault.HANG if turn.verb == verb else None)
    some = engine(served(store, timeout=0.3), prefetch_deadline=5.0, store_deadline=5.0)
    prompt = PROMPT if verb != "put" else [9, *PROMPT]
    assert found(some, prompt) == 0
    assert some.cache.drain(10), "a call that hangs holds its pages"
    some.check()
    begun = time.monotonic()
    some.cache.close()
    assert time.monotonic() - begun < 15
    store.release()


def test_a_store_that_keeps_memory_never_gets_other_pages() -> None:
    """While an array over a page is alive its slot isn't used again; the rest of the cache goes on."""
    kept: list[torch.Tensor] = []

    class Keeps(Double):
        def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
            kept.extend(torch.frombuffer(page.runs[-1], dtype=torch.uint8) for page in pages)
            return super().get(identity, keys, pages)

    reader = engine(Keeps(Lasting(stored())), prefetch_deadline=0.3)
    assert found(reader) == 0, "its answers are not believed"
    for turn in range(20):
        for tensor in kept:
            tensor.fill_(0xAB)
        del tensor
        found(reader, [30 + turn, *range(10)])
        reader.cache.evict(16)
    assert reader.cache.stats()["in_flight"] > 0, "the slots are held"
    kept.clear()
    gc.collect()
    assert reader.cache.drain(10), "the slots come back with the memory"
    reader.check()
    reader.cache.close()


def test_stores_by_module_and_class() -> None:
    for url in (
        "hicache.testing.memory:MemoryStore?capacity=100000",
        "python://hicache.testing.memory:MemoryStore",
    ):
        some = engine(url)
        some.finish(some.run(PROMPT))
        assert some.cache.drain(10)
        assert some.cache.stats()["stored_pages"] == 12
        some.cache.close()


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        ("no.such.module:Store", "there is no no.such.module:Store"),
        ("hicache.testing.memory:Nothing", "there is no"),
        ("hicache.testing.memory:MemoryStore?size=3", "can't be made"),
        ("hicache.testing.memory:MemoryStore?capacity=much", "can't be made"),
        ("hicache.testing.memory:Removals", "need a hicache.storage.Store"),
        ("hicache.testing.memory:MemoryStore?verify=maybe", "verify: 'maybe' can't be meant"),
        ("hicache.testing.memory:MemoryStore?threads=0", "threads"),
        ("hicache.testing.memory:MemoryStore?timeout=-1", "timeout"),
        ("hicache.testing.memory:MemoryStore?capacity=1&capacity=2", "an option twice"),
        (object(), "need a URL or a path"),
        (MemoryStore, "need a URL or a path"),
    ],
)
def test_what_can_be_no_store_is_refused_by_name(storage: Any, reason: str) -> None:
    before = threading.active_count()
    with pytest.raises(ArgumentError, match=f"^storage: .*{reason}"):
        engine(storage)
    assert threading.active_count() <= before


def test_a_cache_that_cannot_be_made_leaves_no_thread() -> None:
    before = threading.active_count()
    tensor = torch.zeros(4, 1, 1)
    with pytest.raises(ArgumentError, match=r"^page_size"):
        HiCache(
            [pools.latent("kv", [tensor])],
            0,
            host=Host(tokens=4),
            storage=MemoryStore(),
            identity=ModelIdentity(model="x"),
        )
    with pytest.raises(ArgumentError, match=r"^io_threads"):
        HiCache(
            [pools.latent("kv", [tensor])],
            2,
            host=Host(tokens=4),
            storage=MemoryStore(),
            identity=ModelIdentity(model="x"),
            io_threads=10**6,
        )
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_cache_that_is_forgotten_ends_its_threads() -> None:
    before = threading.active_count()
    some = engine(MemoryStore())
    some.finish(some.run(PROMPT))
    assert threading.active_count() > before
    del some
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_store_of_the_core_that_is_open_already(tmp_path: Any) -> None:
    first: Store = open(tmp_path)
    some = engine(first)
    some.finish(some.run(PROMPT))
    some.cache.close()
    reader = engine(open(tmp_path))
    assert found(reader) == len(PROMPT)
    reader.cache.close()
