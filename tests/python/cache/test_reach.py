"""Every setting reaches what it is for, as it was given: through the constructor and as text, with every
store, and at its very edge. A value that is taken and not used, or used as something else, would be worse
than one that is refused."""

from __future__ import annotations

import gc
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Device, Engine

from hicache import HiCache, ModelIdentity
from hicache.storage import served
from hicache.testing.doubles import Double, Fault, Faulty
from hicache.testing.memory import MemoryStore

EIGHT = list(range(8))
MODEL = ModelIdentity(model="stamps", dtype="torch.float16")
#: As most of these tests need it: nothing is too little to fetch or to load, and the host has what the
#: device has.
USUAL: dict[str, Any] = {
    "host": {"tokens": 64},
    "prefetch": "wait_complete",
    "prefetch_threshold": 0,
    "load_threshold": 0,
    "host_copies": "keep",
    "clean_reserve": 0.0,
}


def configured(store: Any = None, **settings: Any) -> Engine:
    """16 pages of 2 tokens, by JSON text; a store that is an object can't be in it."""
    device = Device(16, 2)
    given = {"page_size": 2, **USUAL, **settings}
    if store is None or isinstance(store, str):
        cache = HiCache.from_config(device.pools, json.dumps({**given, "storage": store}), MODEL)
    else:
        cache = HiCache.from_config(device.pools, {**given, "storage": store}, MODEL)
    return Engine(cache, device)


def served_twice(engine: Engine, times: int = 2, prompt: Sequence[int] = EIGHT) -> dict[str, int]:
    for _ in range(times):
        engine.finish(engine.run(prompt))
        assert engine.cache.drain(10)
    return engine.cache.stats()


def compute(engine: Engine, prompt: Sequence[int]) -> None:
    """A request that asks no store: what such a one is asked for is copied to the host in any case."""
    request = engine.match(prompt)
    engine.load(request)
    assert engine.compute(request)
    engine.finish(request)
    engine.cache.poll()


def threads(name: str) -> int:
    gc.collect()  # caches of before end theirs
    tasks = Path("/proc/self/task").iterdir()
    return sum((task / "comm").read_text().startswith(name) for task in tasks)


def stored(prompt: Sequence[int] = EIGHT) -> MemoryStore:
    inner = MemoryStore()
    writer = configured(Lasting(inner))
    served_twice(writer, 1, prompt)
    writer.cache.close()
    return inner


class Lasting(Double):
    """Outlives the caches that close it."""

    def close(self) -> None:
        return


def copies(**settings: Any) -> tuple[int, int]:
    """Pages copied to the host and to the store by two equal requests."""
    engine = configured("memory://?size=1MiB", **settings)
    for _ in range(2):
        compute(engine, EIGHT)
        assert engine.cache.drain(10)
    stats = engine.cache.stats()
    return stats["backed_up_pages"], stats["stored_pages"]


def reserve(share: float) -> int:
    """Pages of a full device that are copied before they leave."""
    engine = configured(write="write_back", clean_reserve=share)
    for number in range(16):
        compute(engine, [100 * number, 1])
    assert engine.cache.drain(10)
    return engine.cache.stats()["backed_up_pages"]


def gives_way(host_copies: str) -> int:
    """Tokens of a second prompt that a host has which has room for the first one alone; the device has
    both."""
    engine = configured(host={"tokens": 8}, host_copies=host_copies)
    for first in (0, 100):
        compute(engine, range(first, first + 8))
        assert engine.cache.drain(10)
    engine.cache.evict(99)
    return engine.cache.reader().would_hit(list(range(100, 108))).host_length


def deadline(setting: str, seconds: float, after: float) -> bool:
    """Whether a store that hangs is given up so many seconds later."""
    verb = "get" if setting == "prefetch_deadline" else "put"
    store = Faulty(Lasting(stored()), lambda turn: Fault.HANG if turn.verb == verb else None)
    engine = configured(served(store, timeout=600.0), **{setting: seconds})
    engine.cache.poll(at=100.0)
    request = engine.match(EIGHT if verb == "get" else [50, *EIGHT], at=100.0)
    if verb == "get":
        engine.cache.prefetch(request.hit)
    else:
        engine.load(request)
        assert engine.compute(request)
    end = time.monotonic() + 10
    while not store.calls[verb]:
        assert time.monotonic() < end
        engine.cache.poll(at=100.0)
    engine.cache.poll(at=100.0 + after)
    passed = engine.cache.stats()["deadlines_passed"] > 0
    store.release()
    engine.finish(request)
    engine.cache.close()
    return passed


def queue(batches: int) -> int:
    """Pages that are on their way to a store that takes none, of eight requests of a page."""
    store = Faulty(Lasting(MemoryStore()), lambda turn: Fault.HANG if turn.verb == "put" else None)
    engine = configured(served(store, timeout=600.0), io_threads=1, write_queue=batches)
    end = time.monotonic() + 10
    for number in range(8):
        compute(engine, [100 * number, 1])
        # Its copy has landed, and is on its way or waits for its turn, holding nothing.
        while not store.calls["put"] or engine.cache.ready()[0] or engine.cache._core.copying():
            assert time.monotonic() < end
            engine.cache.poll()
        engine.cache.poll()
    engine.cache.evict(99)
    held = 8 - len(engine.cache.evict(99, "host"))
    store.release()
    engine.cache.close()
    return held


def pages_of(keys: str) -> int:
    engine = configured(keys=keys)
    hit = engine.cache.match_prefix(EIGHT)
    engine.cache.load([hit]).wait()
    slots = engine.cache.allocate(4 if keys == "tokens" else 3)
    assert slots is not None
    engine.cache.insert(hit, EIGHT[: len(slots) * 2 + (keys == "bigrams")], slots)
    hit.release()
    return engine.cache.reader().would_hit(EIGHT).device_length


def timeout(base: float, per_ki: float, after: float) -> str:
    """What a request of 8 tokens does, so many seconds after it could have run first."""
    store = Faulty(Lasting(stored()), lambda turn: Fault.HANG if turn.verb == "get" else None)
    engine = configured(
        served(store, timeout=600.0),
        prefetch="timeout",
        prefetch_timeout_base=base,
        prefetch_timeout_per_ki_token=per_ki,
    )
    engine.cache.poll(at=100.0)
    request = engine.match(EIGHT, at=100.0)
    engine.cache.prefetch(request.hit)
    end = time.monotonic() + 10
    while not store.calls["get"]:
        assert time.monotonic() < end
        engine.cache.poll(at=100.0)
    assert engine.cache.decide(request.hit) == "wait"
    engine.cache.poll(at=100.0 + after)
    said = engine.cache.decide(request.hit)
    store.release()
    request.hit.release()
    engine.cache.close()
    return said


def threads_with(name: str, **settings: Any) -> int:
    before = threads(name)
    with configured("memory://?size=1MiB", **settings).cache:
        return threads(name) - before


def host(**settings: Any) -> Engine:
    return configured(host={"tokens": 64, **settings})


REACHES: dict[str, tuple[Callable[[], object], object]] = {
    "write: through": (lambda: copies(write="write_through"), (4, 4)),
    "write: selective": (lambda: copies(write="write_through_selective"), (4, 4)),
    "write: back": (lambda: copies(write="write_back"), (0, 0)),
    "write_storage: selective": (lambda: copies(write_storage="write_through_selective"), (4, 4)),
    "write_storage: back": (lambda: copies(write_storage="write_back"), (4, 0)),
    "clean_reserve: none": (lambda: reserve(0.0), 0),
    "clean_reserve: a quarter": (lambda: reserve(0.25), 4),
    "clean_reserve: all": (lambda: reserve(1.0), 16),
    "host_copies: keep": (lambda: gives_way("keep"), 0),
    "host_copies: give_way": (lambda: gives_way("give_way"), 8),
    "io_threads: 1": (lambda: threads_with("hicache-io", io_threads=1), 1),
    "io_threads: 5": (lambda: threads_with("hicache-io", io_threads=5), 5),
    "copy_threads: 1": (lambda: threads_with("hicache-in", host={"tokens": 64, "copy_threads": 1}), 1),
    "copy_threads: 3": (lambda: threads_with("hicache-out", host={"tokens": 64, "copy_threads": 3}), 3),
    "write_queue: 1": (lambda: queue(1), 1),
    "write_queue: 3": (lambda: queue(3), 3),
    "store_deadline: not yet": (lambda: deadline("store_deadline", 7.5, 7.4), False),
    "store_deadline: past": (lambda: deadline("store_deadline", 7.5, 7.6), True),
    "prefetch_deadline: not yet": (lambda: deadline("prefetch_deadline", 2.5, 2.4), False),
    "prefetch_deadline: past": (lambda: deadline("prefetch_deadline", 2.5, 2.6), True),
    "prefetch_timeout_base: not yet": (lambda: timeout(3.0, 0.0, 2.9), "wait"),
    "prefetch_timeout_base: past": (lambda: timeout(3.0, 0.0, 3.1), "compute"),
    "prefetch_timeout_per_ki_token: not yet": (lambda: timeout(0.0, 512.0, 3.9), "wait"),
    "prefetch_timeout_per_ki_token: past": (lambda: timeout(0.0, 512.0, 4.1), "compute"),
    "keys: tokens": (lambda: pages_of("tokens"), 8),
    "keys: bigrams": (lambda: pages_of("bigrams"), 6),
    "slots: engine": (lambda: configured(slots="engine").cache.stats()["device_free"], 0),
    "slots: cache": (lambda: configured(slots="cache").cache.stats()["device_free"], 16),
    "shared": (lambda: host(shared=True).cache.host_memory()["kv"][2] is not None, True),
    "not shared": (lambda: host(shared=False).cache.host_memory()["kv"][2] is not None, False),
}


@pytest.mark.skipif(sys.platform != "linux", reason="threads by name")
@pytest.mark.parametrize(("look", "expected"), REACHES.values(), ids=REACHES)
def test_settings_do_what_they_say(look: Callable[[], object], expected: object) -> None:
    assert look() == expected


def test_every_setting_is_looked_at_somewhere() -> None:
    """A setting that is new here must be refused by name and shown to reach its place, too."""
    shown = {name.split(":")[0] for name in REACHES} | {"shared", "not shared"}
    elsewhere = {
        *("pools", "page_size", "host", "storage", "identity"),  # any test
        *("load_threshold", "prefetch_threshold"),  # test_as_set.py
        *(
            "prefetch",
            "load_deadline",
            "policy",
            "checkpoints_per_path",
            "unified",
            "gpu_copies",
            "events",
            "host_mode",
        ),  # own tests
        "eviction",  # there is one
    }
    settings = set(inspect.signature(HiCache).parameters)
    assert settings - shown - elsewhere == set()
