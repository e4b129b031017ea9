"""Stores that come and go, clears, and ends: from any state, in bounded time, and nothing of it leaks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_engine import Engine, make

from hicache import (
    ArgumentError,
    ClosedError,
    HiCache,
    Host,
    Namespace,
    pools,
)
from hicache.storage import Store, served
from hicache.testing.doubles import Double, Fault, Faulty
from hicache.testing.memory import MemoryStore

PROMPT = list(range(24))
PAGES = 12


class Lasting(Double):
    """Outlives the caches that close it, as a server would; and counts that."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def engine(store: Any = None, **options: Any) -> Engine:
    return make(2, device_pages=16, host_pages=32, store=store, **options)


def run(some: Engine, prompt: list[int] = PROMPT) -> int:
    """Tokens that a request finds, in any tier; every byte is looked at, and the rest is computed."""
    request = some.match(prompt)
    some.fetch(request)
    some.load(request)
    some.verify(request)
    length = request.hit.length
    assert some.compute(request)
    some.finish(request)
    some.cache.drain(10)
    some.check()
    return length


def forget(some: Engine) -> None:
    """Memory, but not storage."""
    some.cache.evict(99)
    some.cache.evict(99, "host")


def test_a_store_that_is_not_up_yet(tmp_path: Path) -> None:
    """A clear error when the cache is made, and later, and then it works."""
    (tmp_path / "place").write_text("not a directory yet")
    with pytest.raises(ArgumentError, match=r"^storage"):
        engine(tmp_path / "place")
    some = engine()
    with pytest.raises(ArgumentError, match=r"^storage"):
        some.cache.attach_store(tmp_path / "place")
    assert not some.cache.has_store
    run(some)
    (tmp_path / "place").unlink()
    some.cache.attach_store(tmp_path / "place")
    assert some.cache.has_store
    assert some.cache.write_out(10), "what was there before is stored, too"
    forget(some)
    assert run(some) == len(PROMPT)
    some.cache.close()


@pytest.mark.parametrize("kind", ["file", "slab", "class", "object"])
def test_stores_of_every_kind_come_and_go(tmp_path: Path, kind: str) -> None:
    lasting = Lasting(MemoryStore())
    urls: dict[str, Any] = {
        "file": f"file://{tmp_path}/files",
        "slab": f"slab://{tmp_path}/slab?size=64MiB",
        "class": "hicache.testing.memory:MemoryStore",
        "object": lasting,
    }
    some = engine(urls[kind])
    run(some)
    assert some.cache.write_out(10)
    for _ in range(3):
        left = some.cache.detach_store(10)
        assert left == (0, 0)
        assert some.cache.store_stats() is None
        assert some.cache.store_description() is None
        forget(some)
        request = some.match(PROMPT)
        assert not some.cache.prefetch(request.hit)
        some.cache.attach_store(urls[kind])
        assert some.cache.prefetch(request.hit), "it waits on"
        some.fetch(request)
        kept = kind != "class"  # made anew each time
        assert request.hit.host_length == (len(PROMPT) if kept else 0)
        some.finish(request)
        run(some)
        assert some.cache.write_out(10)
        if kind in ("file", "slab"):  # those in Python may say it a call later
            assert (some.cache.store_stats() or {})["pages"] == PAGES
    some.cache.close()
    assert lasting.closed == (4 if kind == "object" else 0)


def test_write_through_goes_on_in_the_store_that_came() -> None:
    """What is computed continues pages from before it: a fresh cache finds the whole prompt, and no
    suffix."""
    inner = MemoryStore()
    some = engine()
    run(some, PROMPT[:8])
    some.cache.attach_store(Lasting(inner))
    run(some)
    assert some.cache.write_out(10)
    some.cache.close()
    fresh = engine(Lasting(inner))
    assert run(fresh, PROMPT[8:]) == 0
    assert run(fresh) == len(PROMPT)
    fresh.cache.close()


@pytest.mark.parametrize("verb", ["exists", "get", "put"])
def test_a_store_that_hangs_is_detached_and_another_one_serves(verb: str) -> None:
    inner = MemoryStore()
    run(writer := engine(Lasting(inner)))
    writer.cache.close()
    hangs = Faulty(Lasting(inner), lambda turn: Fault.HANG if turn.verb == verb else None)
    some = engine(served(hangs, timeout=60.0), prefetch_deadline=60.0, store_deadline=60.0)
    if verb == "put":
        request = some.match([99, *PROMPT])
    else:
        request = some.match(PROMPT)
        assert some.cache.prefetch(request.hit)
    some.load(request) if verb == "put" else None
    assert verb != "put" or some.compute(request)
    deadline = time.monotonic() + 10
    while not hangs.calls[verb] and time.monotonic() < deadline:
        some.cache.poll()
    begun = time.monotonic()
    some.cache.detach_store(0.1)
    assert time.monotonic() - begun < 10
    assert verb == "put" or not request.hit.waiting
    if verb != "put":
        assert "the store was detached" in str(some.cache.explain(request.hit))
    some.finish(request)
    some.cache.attach_store(Lasting(inner))
    forget(some)
    request = some.match(PROMPT)
    some.fetch(request)
    assert request.hit.host_length == len(PROMPT)
    some.finish(request)
    hangs.release()
    assert some.cache.drain(20), "what hung came back"
    some.check()
    some.cache.close()


def test_bad_arguments() -> None:
    some = engine(MemoryStore())
    for tiers in (["device"], "host", [], ["disk"], ["host", "storage"]):
        with pytest.raises(ArgumentError, match=r"^tiers"):
            some.cache.clear(tiers)
    with pytest.raises(ArgumentError, match=r"^storage"):
        some.cache.attach_store(MemoryStore())
    with pytest.raises(ArgumentError, match=r"^storage"):
        some.cache.attach_store(None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^timeout"):
        some.cache.detach_store(-1)
    some.cache.detach_store()
    with pytest.raises(ArgumentError, match=r"^storage"):
        some.cache.detach_store()
    with pytest.raises(ArgumentError, match=r"^tiers"):
        some.cache.clear(["storage"])
    assert some.cache.clear() == (0, 0, None)
    some.cache.close()
    for verb in (lambda: some.cache.attach_store(MemoryStore()), some.cache.reset, some.cache.write_out):
        with pytest.raises((ClosedError, ArgumentError)):
            verb()
    k = torch.zeros(8, 1, 4)
    bare = HiCache([pools.latent("kv", [k])], 2, host=Host(tokens=8), slots="engine")
    with pytest.raises(ArgumentError, match=r"^identity"):
        bare.attach_store(MemoryStore())
    with pytest.raises(ArgumentError, match=r"^device"):
        bare.warm([1, 2], device=True)
    bare.close()


def test_write_out_brings_what_write_back_would_bring_later() -> None:
    some = engine(Lasting(store := MemoryStore()), write="write_back", write_storage="write_back")
    run(some)
    assert some.cache.stats()["host_resident"] == 0
    assert some.cache.write_out(10)
    assert (some.cache.stats()["host_resident"], len(store.list())) == (PAGES, PAGES)
    some.cache.detach_store()
    some.check()
    some.cache.close()
    small = make(2, device_pages=16, host_pages=4, write="write_back")
    run(small)
    assert not small.cache.write_out(1), "there is no such room"
    assert small.cache.stats()["host_resident"] == 4
    small.cache.close()


def test_warm() -> None:
    inner = MemoryStore()
    run(writer := engine(Lasting(inner)))
    writer.cache.close()
    some = engine(Lasting(inner))
    for device in (False, True):
        warm = some.cache.warm(PROMPT, device=device)
        assert warm is not None
        deadline = time.monotonic() + 10
        while not warm.done and time.monotonic() < deadline:
            some.cache.poll()
        assert warm.length == len(PROMPT)
        assert warm.device_length == (len(PROMPT) if device else 0)
    stats = some.cache.stats()
    assert (stats["warm_prefixes"], stats["warmed_host_pages"], stats["warmed_device_pages"]) == (2, 12, 12)
    assert (stats["requests"], stats["hit_storage_tokens"], stats["hit_device_tokens"]) == (0, 0, 0)
    assert run(some) == len(PROMPT)
    nobody = some.cache.warm(PROMPT, Namespace(salt="other"))
    assert nobody is not None
    nobody.cancel()
    assert (nobody.done, nobody.length) == (True, 0)
    some.check()
    many = [some.cache.warm([1, 2, 3, 4]) for _ in range(33)]
    assert many[-1] is None
    assert None not in many[:-1]
    some.cache.close()


def test_python_objects_that_were_attached_are_closed_once() -> None:
    first, second = Lasting(MemoryStore()), Lasting(MemoryStore())
    some = engine(first)
    some.cache.detach_store()
    some.cache.attach_store(second)
    with pytest.raises(ArgumentError, match=r"^storage"):
        some.cache.attach_store(first)
    some.cache.close()
    assert (first.closed, second.closed) == (1, 1)
    assert isinstance(first, Store)
