"""Stores that can't be had are refused when the cache is made, by name, with what is missing; and those
that can get their options. Nothing of it is found out at the first use, and nothing of a refused one
stays."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Device, make

from hicache import ArgumentError, GpuCopies, HiCache, Host, ModelIdentity
from hicache.storage import Outcome, Page, Store, served
from hicache.testing.memory import MemoryStore


class Lacking(Store):
    """Has no `get`, nor `close`."""

    def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return [Outcome.ABSENT] * len(keys)

    def put(
        self, identity: bytes, keys: Sequence[bytes], parents: Sequence[bytes | None], pages: Sequence[Page]
    ) -> Sequence[Outcome]:
        return [Outcome.DECLINED] * len(keys)

    def remove(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
        return [Outcome.ABSENT] * len(keys)

    def clear(self, identity: bytes) -> int:
        return 0


class NoDriver(MemoryStore):
    """Looks for what it needs when it is made, as one must."""

    def __init__(self) -> None:
        raise RuntimeError("no driver for the device")


class NoModule(MemoryStore):
    def __init__(self) -> None:
        import no_such_driver_of_a_store  # type: ignore[import-not-found]  # noqa: F401


class OtherArguments(MemoryStore):
    def __init__(self, address: str, *, port: str) -> None:
        super().__init__()


class Nameless(MemoryStore):
    def describe(self) -> str:
        return None  # type: ignore[return-value]


class Speechless(MemoryStore):
    def describe(self) -> str:
        raise OSError("no answer")


class Unlisted(MemoryStore):
    def statistics(self) -> dict[str, int | None]:
        raise OSError("no answer")


class Counted(MemoryStore):
    """How many there are that nobody has closed."""

    made = closed = 0

    def __init__(self) -> None:
        super().__init__()
        Counted.made += 1

    def close(self) -> None:
        super().close()
        Counted.closed += 1


class Wordless(Counted):
    def describe(self) -> str:
        raise OSError("no answer")


HERE = "test_stores_that_cannot_be"


def threads_after(before: int) -> int:
    """Threads, when those that end have ended."""
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return threading.active_count()


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        (f"{HERE}:Lacking", "Lacking can't be made: .*abstract.*(close.*get|get)"),
        (f"{HERE}:NoDriver", "NoDriver can't be made: .*no driver for the device"),
        (f"{HERE}:NoModule", "NoModule can't be made: .*no_such_driver_of_a_store"),
        (f"{HERE}:OtherArguments", "OtherArguments can't be made: .*address"),
        (f"{HERE}:OtherArguments?address=a", "OtherArguments can't be made: .*port"),
        (f"{HERE}:OtherArguments?address=a&port=1&more=2", "OtherArguments can't be made: .*more"),
        ("store_without_its_driver:Needs", "there is no store_without_its_driver:Needs: .*no_such_driver"),
        (f"{HERE}:Nameless", "description"),
        (f"{HERE}:Speechless", "can't be described: .*no answer"),
        (Nameless(), "description"),
        (Speechless(), "can't be described: .*no answer"),
        ("slab:///dev/null/x?size=64MiB", ""),
        ("file:///proc/none", ""),
    ],
    ids=str,
)
def test_what_is_missing_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: Any, reason: str
) -> None:
    (tmp_path / "store_without_its_driver.py").write_text("import no_such_driver\nclass Needs: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = threading.active_count()
    begun = time.monotonic()
    with pytest.raises(ArgumentError, match=f"^storage: .*{reason}"):
        make(2, store=storage)
    engine = make(2)
    with pytest.raises(ArgumentError, match=f"^storage: .*{reason}"):
        engine.cache.attach_store(storage)
    assert time.monotonic() - begun < 10, "nothing is waited for"
    assert not engine.cache.has_store
    engine.cache.close()
    assert threads_after(before) <= before, "no thread of it is left"


@pytest.mark.parametrize(
    ("kind", "settings", "made"),
    [
        ("Counted", {"page_size": 0}, 0),
        ("Counted", {"write": "x"}, 0),
        ("Counted", {"identity": 3}, 0),
        ("Counted", {"clean_reserve": 2.0}, 0),
        ("Counted", {"host": Host(size="12XB")}, 0),
        ("Counted", {"host": Host(tokens=8, layout="x")}, 0),
        ("Counted", {"host": Host(tokens=8, copy_threads=0)}, 0),
        ("Counted", {"host": Host(tokens=8, head_groups=3)}, 1),
        ("Counted", {"host": Host(size="100TB")}, 1),
        ("Counted", {"gpu_copies": GpuCopies(staging=(1, 2, 3))}, 0),
        ("Counted", {"io_threads": 10**6}, 1),
        ("Wordless", {}, 1),
    ],
)
def test_what_is_made_for_a_cache_that_cannot_be_is_closed(
    kind: str, settings: dict[str, Any], made: int
) -> None:
    """By nobody else: an object that the cache makes of a class. Mostly it isn't even made."""
    Counted.made = Counted.closed = 0
    arguments = {"page_size": 2, "host": Host(tokens=16), "identity": ModelIdentity(model="m")} | settings
    with pytest.raises(ArgumentError):
        HiCache(Device(8, 2).pools, arguments.pop("page_size"), storage=f"{HERE}:{kind}", **arguments)
    assert Counted.made <= made
    end = time.monotonic() + 10
    while Counted.closed < Counted.made:
        assert time.monotonic() < end, "it is left open"
        gc.collect()
        time.sleep(0.01)


def test_what_a_store_need_not_tell_is_no_reason_to_refuse_it() -> None:
    with make(2, store=Unlisted()).cache as cache:
        assert (cache.store_stats() or {})["pages"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="slab stores")
@pytest.mark.parametrize(
    ("storage", "capacity"),
    [
        ("hicache.testing.memory:MemoryStore?capacity=123456", 123_456),
        ("python://hicache.testing.memory:MemoryStore?capacity=7000&threads=3&timeout=5", 7_000),
        ("memory://?size=1MiB", 1 << 20),
        ("file://{}/files?size=3MiB&free=0", 3 << 20),
        ("slab://{}/slab?size=64MiB&extent=1MiB&free=0", 64 << 20),
        ("sim://?size=2MiB", 2 << 20),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_options_reach_the_store(tmp_path: Path, storage: str, capacity: int, late: bool) -> None:
    """Given with the cache, or attached later."""
    url: Any = storage.format(tmp_path)
    engine = make(2, store=None if late else url)
    if late:
        engine.cache.attach_store(url)
    assert (engine.cache.store_stats() or {})["capacity"] == capacity
    engine.cache.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_so_many_threads_serve_it(threads: int) -> None:
    """And one that watches."""
    gc.collect()
    before = threading.active_count()
    for store in (served(MemoryStore(), threads=threads), f"{HERE}:MemoryStore?threads={threads}"):
        engine = make(2, store=store)
        assert threading.active_count() - before == threads + 1
        engine.cache.close()
        assert threads_after(before) == before


def test_so_long_a_call_may_take() -> None:
    """A store that hangs is given up after its timeout, not after the default one."""
    inside = threading.Event()
    hangs = threading.Event()

    class Hangs(MemoryStore):
        def exists(self, identity: bytes, keys: Sequence[bytes]) -> Sequence[Outcome]:
            inside.set()
            hangs.wait()
            return super().exists(identity, keys)

    engine = make(2, store=served(Hangs(), timeout=0.2), prefetch_deadline=600.0)
    request = engine.match(list(range(8)))
    assert engine.cache.prefetch(request.hit)
    assert inside.wait(10)
    end = time.monotonic() + 10
    while request.hit.waiting:
        assert time.monotonic() < end, "nobody gave it up"
        engine.cache.poll()
    hangs.set()
    engine.finish(request)
    engine.cache.close()
