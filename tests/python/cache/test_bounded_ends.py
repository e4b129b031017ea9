"""Every end is bounded and leaves nothing, whatever the store is doing: asked, read, written to, cleared or
closed, each for ever. One call of it hangs, of which nobody waits for more than was said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_engine import Device, Engine, make

from hicache import DeadlineError, HiCache, Hit
from hicache.storage import Store, served
from hicache.testing.doubles import Double, Fault, Faulty
from hicache.testing.memory import MemoryStore

PROMPT = list(range(24))
#: What is given to each wait, and what none may come near; those that hang are given up after far more.
PATIENCE, MOST, EVER = 0.1, 8.0, 600.0


class Stuck(Faulty):
    """Hangs in one verb, also in those that have no keys."""

    def __init__(self, inner: Store, verb: str) -> None:
        super().__init__(inner, lambda turn: Fault.HANG if turn.verb == verb else None)
        self.verb, self.inside = verb, threading.Event()

    def clear(self, identity: bytes) -> int:
        self._hang("clear")
        return super().clear(identity)

    def close(self) -> None:
        self._hang("close")

    def _hang(self, verb: str) -> None:
        if verb == self.verb:
            self.inside.set()
            self._released.wait()


def stuck(verb: str) -> tuple[Engine, Stuck, Hit]:
    """A cache whose store hangs in this verb by now (closing: with the end), and a request that waits or
    runs."""
    inner = MemoryStore()

    class Lasting(Double):
        def close(self) -> None:
            return

    writer = make(2, store=Lasting(inner))
    writer.finish(writer.run(PROMPT))
    writer.cache.close()
    store = Stuck(inner, verb)
    engine = make(2, 32, 32, store=served(store, timeout=EVER), prefetch_deadline=EVER, store_deadline=EVER)
    request = engine.match(PROMPT if verb in ("exists", "get") else [7, *PROMPT])
    if verb in ("exists", "get"):
        assert engine.cache.prefetch(request.hit)
    elif verb == "put":
        engine.load(request)
        assert engine.compute(request)
    deadline = time.monotonic() + MOST
    while verb in ("exists", "get", "put") and not store.calls[verb]:
        assert time.monotonic() < deadline
        engine.cache.poll()
    if verb == "clear":
        with pytest.raises(DeadlineError):
            engine.cache.clear(["storage"], timeout=PATIENCE)
        assert store.inside.wait(MOST)
    return engine, store, request.hit


def reset(cache: HiCache) -> None:
    cache.reset()


def clear(cache: HiCache) -> None:
    try:
        cache.clear(timeout=PATIENCE)
    except DeadlineError:
        return


def swap(cache: HiCache) -> None:
    """The store goes and another one comes."""
    cache.detach_store(PATIENCE)
    cache.attach_store(MemoryStore())


def sleep(cache: HiCache) -> None:
    """Device memory goes and comes."""
    cache.detach(timeout=PATIENCE)
    cache.attach(Device(8, 2).pools)


ENDS: dict[str, Callable[[HiCache], Any]] = {
    "reset": reset,
    "clear": clear,
    "bump_epoch": lambda cache: cache.bump_epoch(),
    "drain": lambda cache: cache.drain(PATIENCE),
    "write_out": lambda cache: cache.write_out(PATIENCE),
    "detach_store": lambda cache: cache.detach_store(PATIENCE),
    "swap": swap,
    "sleep": sleep,
    "close": lambda cache: cache.close(PATIENCE),
}


@pytest.mark.parametrize("verb", ["exists", "get", "put", "clear", "close"])
@pytest.mark.parametrize("end", ENDS)
def test_each_end_is_bounded(end: str, verb: str) -> None:
    engine, store, hit = stuck(verb)
    cache = engine.cache
    if end == "sleep":
        hit.release()
        # What the running request had: an engine that sleeps has given all slots back.
        engine.free(sorted(engine.held))
    begun = time.monotonic()
    ENDS[end](cache)
    assert time.monotonic() - begun < MOST
    cache.check()
    begun = time.monotonic()
    if not hit.released:
        hit.release()
    assert time.monotonic() - begun < 1.0
    cache.close(PATIENCE)
    assert time.monotonic() - begun < MOST
    store.release()
    cache.check()
