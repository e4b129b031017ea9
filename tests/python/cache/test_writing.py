"""Write policies from Python: when pages reach host and storage, and that their bytes come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_engine import Engine, make, store_files

EIGHT = list(range(8))
WRITES = ("write_through", "write_through_selective", "write_back")


def serve(engine: Engine, tokens: list[int]) -> int:
    """One request; how many tokens hit."""
    request = engine.match(tokens)
    engine.fetch(request)
    engine.load(request)
    hit = request.hit.length
    assert engine.compute(request)
    engine.verify(request)
    engine.finish(request)
    assert engine.cache.drain(10)
    engine.check()
    return hit


@pytest.mark.parametrize("host_copies", ["give_way", "keep"])
@pytest.mark.parametrize("write_storage", WRITES)
@pytest.mark.parametrize("write", WRITES)
def test_what_is_used_twice_comes_back(
    tmp_path: Path, write: str, write_storage: str, host_copies: str
) -> None:
    policies = {"write": write, "write_storage": write_storage, "host_copies": host_copies}
    small = {"prefetch_threshold": 0, "load_threshold": 0}
    engine = make(2, 8, 16, store=tmp_path, clean_reserve=1.0, **policies, **small)
    paths = [[100 * path + token for token in EIGHT] for path in range(4)]
    for path in paths:
        assert serve(engine, path) == 0
        assert serve(engine, path) == 8
    # 16 pages, of which the device has room for 8: the others were copied before they left.
    assert engine.cache.stats()["dropped_unsaved_pages"] == 0
    assert serve(engine, paths[0]) == 8
    assert serve(engine, paths[3]) == 8
    engine.cache.close()
    assert len(store_files(tmp_path)) >= 8


def test_each_policy_writes_when_it_says(tmp_path: Path) -> None:
    backed_up = {}
    for write in WRITES:
        engine = make(2, 16, 16, write=write)
        serve(engine, EIGHT)
        once = engine.cache.stats()["backed_up_pages"]
        serve(engine, EIGHT)
        backed_up[write] = (once, engine.cache.stats()["backed_up_pages"])
        engine.cache.close()
    assert backed_up == {
        "write_through": (4, 4),
        "write_through_selective": (0, 4),
        "write_back": (0, 0),
    }


def test_a_small_host_serves_a_large_device(tmp_path: Path) -> None:
    engine = make(2, 16, 4, store=tmp_path, clean_reserve=0.25)
    paths = [[100 * path + token for token in EIGHT] for path in range(8)]
    for path in paths[:4]:
        serve(engine, path)
    stats = engine.cache.stats()
    assert (stats["device_resident"], stats["backup_no_room_pages"]) == (16, 0)
    # A copy of what waits for its turn may leave the host, as long as the device has the page.
    assert len(store_files(tmp_path)) >= 12
    for path in paths[4:]:
        serve(engine, path)
    assert engine.cache.stats()["dropped_unsaved_pages"] == 0
    engine.cache.close()
    # What has left the device was stored before.
    engine = make(2, 16, 4, store=tmp_path, prefetch_threshold=0, load_threshold=0)
    assert [serve(engine, path) for path in paths[:4]] == [8] * 4
    engine.cache.close()
