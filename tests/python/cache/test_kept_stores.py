"""Stores that come and go before host memory that outlives the process; and clears of that."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kept_engine import KINDS, kept, prompt, serve

MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not MEMORY.is_dir(), reason="no file system in memory")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hicache-test-", dir=MEMORY) as path:
        yield Path(path) / "host"


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_comes_and_goes_behind_it(place: Path, tmp_path: Path, kind: str) -> None:
    engine = kept(place, kind)
    serve(engine, prompt(1, 16))
    engine.cache.attach_store(tmp_path)
    serve(engine, prompt(2, 8))
    assert engine.cache.write_out(10)
    assert engine.cache.detach_store() == (0, 0)
    assert not engine.cache.has_store
    engine.check()
    engine.cache.close()
    engine = kept(place, kind)
    assert serve(engine, prompt(1, 16)) == 16, "the host kept it, whatever came and went behind it"
    engine.cache.attach_store(tmp_path)
    engine.cache.reset()
    assert serve(engine, prompt(1, 16)) == 16, "the store has it, too"
    engine.check()
    engine.cache.close()


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_clear_the_next_process_finds_nothing(place: Path, tmp_path: Path, kind: str) -> None:
    engine = kept(place, kind, storage=tmp_path)
    serve(engine, prompt(1, 16))
    engine.cache.close()
    engine = kept(place, kind, storage=tmp_path)
    assert engine.cache.stats()["leftovers_now"] > 0
    assert serve(engine, prompt(1, 8)) > 0, "some are adopted, some are not"
    engine.cache.clear()
    engine.check()
    assert engine.cache.stats()["leftovers_now"] == 0
    engine.cache.close()
    engine = kept(place, kind, storage=tmp_path)
    assert engine.cache.stats()["leftovers_found"] == 0
    assert serve(engine, prompt(1, 16)) == 0
    engine.cache.close()
