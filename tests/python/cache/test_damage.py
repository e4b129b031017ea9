"""Damaged pages of every kind, in every store that keeps bytes, through a whole cache.

Each is a miss, is counted and taken out of the way; the store's only worker lives; and the page that is
computed instead is stored again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_engine import Engine, make
from stores_to_hurt import DAMAGES, KINDS, Kept

PROMPT = list(range(24))
PAGES = len(PROMPT) // 2

CASES = [(kind, how) for kind in KINDS for how in kind.hurts]


def forget(engine: Engine) -> None:
    """Pages are in the store, and nowhere else."""
    assert engine.cache.drain(10)
    engine.cache.evict(99)
    engine.cache.evict(99, "host")
    stats = engine.cache.stats()
    assert stats["device_resident"] == stats["host_resident"] == 0


def found(engine: Engine, *, compute: bool) -> int:
    """Tokens that come back, every byte of which is looked at; the rest may be computed and stored."""
    request = engine.match(PROMPT)
    engine.fetch(request)
    engine.load(request)
    engine.verify(request)
    length = request.hit.length
    if compute:
        assert engine.compute(request)
        engine.verify(request)
    engine.finish(request)
    return length


def faults(engine: Engine) -> int:
    stats = engine.cache.stats()
    return stats["corrupt_pages"] + stats["read_failed_pages"]


@pytest.mark.parametrize("page", [0, 5, PAGES - 1])
@pytest.mark.parametrize(("kind", "how"), CASES, ids=[f"{kind.__name__}-{how}" for kind, how in CASES])
def test_a_damaged_page_is_a_miss_and_is_mended(
    tmp_path: Path, kind: type[Kept], how: str, page: int
) -> None:
    store = kind(tmp_path / "store")
    engine = make(2, device_pages=16, host_pages=16, store=store.storage(), io_threads=1)
    assert found(engine, compute=True) == 0
    forget(engine)
    assert found(engine, compute=False) == len(PROMPT), "all of it is stored"
    forget(engine)
    held = store.held(engine, PROMPT, page)
    store.hurt(how, held, store.held(engine, PROMPT, (page + 1) % PAGES))

    before = faults(engine)
    assert found(engine, compute=False) == 2 * page
    counted = faults(engine) - before
    assert counted >= 1
    forget(engine)
    about = engine.cache.store_stats()
    assert about is not None
    bad = sum(about[name] or 0 for name in ("short_pages", "corrupt_pages", "failed_pages"))
    if how in DAMAGES:
        assert counted == 1
        assert bad >= 1, about
        assert not store.has(held), "it is out of the way"
    # A second request isn't told of it again, and doesn't find it either.
    assert found(engine, compute=False) == 2 * page
    forget(engine)

    store.heal()
    found(engine, compute=True)
    forget(engine)
    assert store.has(held)
    assert found(engine, compute=False) == len(PROMPT), "what was computed instead is stored"
    assert engine.cache.stats()["store_failed_pages"] == 0
    engine.check()
    engine.cache.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_pages_are_damaged_at_once(tmp_path: Path, kind: type[Kept]) -> None:
    """Several prompts: the worker gets nothing but damage, and goes on."""
    store = kind(tmp_path / "store")
    engine = make(2, device_pages=16, host_pages=16, store=store.storage(), io_threads=1)
    found(engine, compute=True)
    forget(engine)
    pages = [store.held(engine, PROMPT, page) for page in range(PAGES)]
    for how in kind.hurts[:3]:
        for at, held in enumerate(pages):
            store.hurt(how, held, pages[(at + 1) % PAGES])
        assert found(engine, compute=True) == 0
        forget(engine)
        assert found(engine, compute=False) == len(PROMPT)
        forget(engine)
    # One request reads all of them, and each is counted.
    assert faults(engine) == PAGES * len(kind.hurts[:3])
    engine.check()
    engine.cache.close()
