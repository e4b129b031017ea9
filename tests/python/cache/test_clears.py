"""Clears: nothing of before is found, others keep their pages, and what failed is never called a success."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_engine import Shape, store_files
from test_lifecycle import PAGES, PROMPT, Lasting, engine, forget, run

from hicache import DeadlineError, StorageError
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore


def test_clear_is_of_this_identity_alone(tmp_path: Path) -> None:
    (other := engine(tmp_path, shape=Shape(side=24))).cache.drain(1)
    run(other)
    (tmp_path / "notes.txt").write_text("not a page")
    some = engine(tmp_path)
    run(some)
    run(some, [7, *PROMPT])
    theirs = len(store_files(tmp_path)) - 24
    assert theirs == PAGES
    cleared = some.cache.clear()
    assert cleared == (16, 24, 24) or cleared.storage == 24
    assert len(store_files(tmp_path)) == theirs
    assert (tmp_path / "notes.txt").exists()
    request = some.match(PROMPT)
    some.fetch(request)
    assert (request.hit.device_length, request.hit.host_length) == (0, 0)
    some.finish(request)
    some.cache.close()
    restarted = engine(tmp_path)
    assert run(restarted) == 0
    restarted.cache.close()
    forget(other)
    assert run(other) == len(PROMPT)
    other.cache.close()


def test_reset_keeps_storage_and_what_runs() -> None:
    some = engine(Lasting(MemoryStore()))
    running = some.run(PROMPT)
    waiting = some.match(PROMPT)
    some.cache.drain(10)
    assert some.cache.reset() == (0, PAGES), "host copies of what runs leave, too"
    some.verify(running)
    assert (waiting.hit.host_length, waiting.hit.device_length) == (0, 0)
    assert "the cache was cleared" in str(some.cache.explain(waiting.hit))
    some.finish(running)
    some.finish(waiting)
    some.check()
    stats = some.cache.stats()
    assert (stats["device_resident"], stats["host_resident"]) == (0, 0)
    assert run(some) == len(PROMPT), "from storage"
    some.cache.close()


class Unclear(Double):
    """Can't be cleared."""

    def clear(self, identity: bytes) -> int:
        raise OSError("no")


class Slow(Double):
    def clear(self, identity: bytes) -> int:
        time.sleep(1.0)
        return super().clear(identity)


def test_a_clear_that_fails_or_takes_too_long_says_so() -> None:
    some = engine(Unclear(MemoryStore()))
    run(some)
    with pytest.raises(StorageError, match="could not be cleared"):
        some.cache.clear()
    assert some.cache.stats()["device_resident"] == 0
    some.cache.close()
    some = engine(Slow(MemoryStore()))
    run(some)
    with pytest.raises(DeadlineError):
        some.cache.clear(["storage"], timeout=0.05)
    assert some.cache.drain(20)
    assert some.cache.stats()["cleared_storage_pages"] == PAGES
    some.cache.close()
