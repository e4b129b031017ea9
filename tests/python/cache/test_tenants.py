"""Tenants: what one cached or stored, another can't find out, in any tier, nor by asking for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import PLAIN, Engine, make, stamp

from hicache import Namespace, WouldHit
from hicache.storage import Outcome, Page, Store
from hicache.storage import open as open_store
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

PROMPT = list(range(16))
ALICE, BOB = Namespace(salt="alice"), Namespace(salt="bob")
OPENS: dict[str, Callable[[Path], Store]] = {
    "file": open_store,
    "slab": lambda where: open_store(f"slab://{where}?size=64MiB&extent=1MiB&free=0&threads=2"),
    "python": lambda where: MemoryStore(),
}


class Spied(Double):
    """Remembers which keys were asked for, and outlives caches."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: set[bytes] = set()

    def exists(self, identity: bytes, keys: Any) -> Any:
        self.asked |= set(keys)
        return super().exists(identity, keys)

    def close(self) -> None:
        return


def serve(engine: Engine, space: Namespace) -> tuple[int, int, int]:
    """A whole request: tokens found on the device, and on device or host, and after its prefetch."""
    request = engine.match(PROMPT, space)
    before = request.hit.device_length, request.hit.host_length
    engine.fetch(request)
    engine.load(request)
    engine.verify(request)
    after = request.hit.length
    assert engine.compute(request)
    engine.verify(request)
    engine.finish(request)
    assert engine.cache.drain(10)
    return *before, after


@pytest.mark.parametrize("other", [BOB, PLAIN, Namespace(adapter="alice"), Namespace(extra_key="alice")])
@pytest.mark.parametrize("kind", OPENS)
def test_two_tenants_share_nothing_in_any_tier(tmp_path: Path, kind: str, other: Namespace) -> None:
    spied = Spied(OPENS[kind](tmp_path / "store"))
    engine = make(2, device_pages=40, host_pages=40, store=spied)
    reader = engine.cache.reader()
    assert serve(engine, ALICE) == (0, 0, 0)
    assert serve(engine, ALICE) == (16, 16, 16), "the same tenant finds it"
    hers, spied.asked = {held.key for held in spied.list()}, set()
    assert len(hers) == 8

    # On device, host and in storage at once: nothing for anybody else.
    assert reader.would_hit(PROMPT, ALICE) == WouldHit(16, 16)
    assert reader.would_hit(PROMPT, other) == WouldHit(0, 0)
    assert serve(engine, other) == (0, 0, 0)
    # Not by asking either: other keys are asked for, which the store doesn't have.
    assert len(spied.asked) == 8
    assert not spied.asked & hers
    # Nor by the bytes: every page of either was compared with a stamp of its namespace.
    theirs = {held.key for held in spied.list()} - hers
    assert theirs == spied.asked
    engine.cache.evict(99)
    assert serve(engine, other)[:2] == (0, 16), "on the host"
    engine.cache.evict(99)
    engine.cache.evict(99, "host")
    assert serve(engine, other) == (0, 0, 16), "in storage alone"
    engine.check()
    engine.cache.close()
    # A new process.
    engine = make(2, device_pages=40, host_pages=40, store=spied)
    third = Namespace(salt="carol")
    assert [serve(engine, space)[2] for space in (third, ALICE, other)] == [0, 16, 16]
    engine.cache.close()
    spied.inner.close()


@pytest.mark.parametrize("kind", OPENS)
def test_what_is_told_of_a_cache_names_no_key(tmp_path: Path, kind: str) -> None:
    """Statistics and descriptions are sums: the same whoever's pages these are."""
    told = []
    for at, space in enumerate((ALICE, BOB)):
        store = OPENS[kind](tmp_path / f"store{at}")
        engine = make(2, store=store)
        serve(engine, space)
        about, words = engine.cache.store_stats(), engine.cache.store_description()
        assert about is not None
        assert words is not None
        keys = {held.key.hex() for held in store.list()}
        counts = engine.cache.stats(), engine.cache.reader().stats(), about
        for text in (*map(str, counts), words.lower()):
            assert not any(key[:12] in text for key in keys)
            assert "alice" not in text
            assert "bob" not in text
        if kind == "python":
            # What it holds it says between two calls, in its own time.
            about |= {"pages": None, "bytes": None}
        told.append((engine.cache.stats(), about))
        engine.cache.close()
    assert told[0] == told[1]


def test_the_stamps_of_two_tenants_differ() -> None:
    """The test of these tests: with another tenant's page, `verify` would fail."""
    pages = [stamp(space, (0, 1), "k0", 32).tolist() for space in (ALICE, BOB, PLAIN)]
    assert len({tuple(page) for page in pages}) == 3


def test_a_page_under_another_tenants_key_is_not_served(tmp_path: Path) -> None:
    """Somebody with access to the store moves a page: behind the checksum's key it is none."""
    inner = MemoryStore()
    engine = make(2, store=Spied(inner))
    for space in (ALICE, BOB):
        serve(engine, space)
    engine.cache.close()
    by_stamp = {}
    for held in inner.list():
        buffer = bytearray(held.bytes)
        assert list(inner.get(held.identity, [held.key], [Page.of(buffer)])) == [Outcome.HIT]
        for space in (ALICE, BOB):
            if stamp(space, (0, 1), "k0", 32).numpy().tobytes()[:16] in buffer:
                by_stamp[space.salt] = (held, bytes(buffer))
    (hers, content), (his, _) = by_stamp["alice"], by_stamp["bob"]
    inner.remove(his.identity, [his.key])
    inner.put(his.identity, [his.key], [None], [Page.of(content)])
    assert hers.identity == his.identity
    engine = make(2, store=Spied(inner))
    assert serve(engine, BOB)[2] == 0
    assert engine.cache.stats()["corrupt_pages"] == 1
    engine.cache.close()
