"""A store in Python, who serves it, and pages to put into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from hicache import _hicache
from hicache.storage import Opened, Outcome, Page, Store
from hicache.storage.serve import Crew

WHOSE = bytes(32)
KEYS = [bytes([at]) * 32 for at in range(4)]
HIT, FAILED, TIMED_OUT = Outcome.HIT, Outcome.FAILED, Outcome.TIMED_OUT
SIZE = 1000


def put(store: Store, keys: Sequence[bytes] = KEYS) -> list[Outcome]:
    pages = [Page.of((key * 40)[:SIZE]) for key in keys]
    return list(store.put(WHOSE, list(keys), [None] * len(keys), pages))


def get(store: Store, keys: Sequence[bytes] = KEYS) -> list[Outcome]:
    buffers = [bytearray(SIZE) for _ in keys]
    outcomes = list(store.get(WHOSE, list(keys), [Page.of(buffer) for buffer in buffers]))
    for key, buffer, outcome in zip(keys, buffers, outcomes, strict=True):
        assert outcome is not HIT or buffer == (key * 40)[:SIZE]
    return outcomes


def until(what: str, there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def crew(store: Store, threads: int = 2, timeout: float = 0.3) -> tuple[Crew, Opened]:
    """A store and who serves it."""
    served_by = Crew(store, threads, own=False)
    core = _hicache.Store.relayed(served_by.desk, timeout, "a store", False)
    return served_by, Opened(core)
