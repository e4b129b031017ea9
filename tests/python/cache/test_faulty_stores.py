"""The core's stores that outlive a process, under one that misbehaves: nothing is wrong but misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fake_engine import Engine, make

from hicache.storage import Outcome, Page, Store
from hicache.storage import open as open_store
from hicache.testing.doubles import Double, Fault, Faulty

PROMPT = list(range(24))
OPENS: dict[str, Callable[[Path], Store]] = {
    "file": open_store,
    "slab": lambda where: open_store(f"slab://{where}?size=64MiB&extent=1MiB&free=0&threads=2"),
}
#: Faults with which an answer isn't what was put, whichever verb they come in.
LIARS = (
    Fault.FLIP,
    Fault.SHORT,
    Fault.WRONG_KEY,
    Fault.REORDER,
    Fault.DUPLICATE,
    Fault.NONSENSE,
    Fault.LIE,
    Fault.DROP,
)


class Lasting(Double):
    """Outlives the caches that close it, as a server would."""

    def close(self) -> None:
        return


def found(engine: Engine, prompt: list[int] = PROMPT) -> int:
    """Tokens that come back, every byte of which is looked at; then the rest is computed."""
    request = engine.match(prompt)
    engine.fetch(request)
    engine.load(request)
    engine.verify(request)
    length = request.hit.length
    assert engine.compute(request)
    engine.verify(request)
    engine.finish(request)
    return length


@pytest.mark.parametrize("fault", LIARS)
@pytest.mark.parametrize("kind", OPENS)
def test_lies_are_caught_and_what_was_stored_survives_a_restart(
    tmp_path: Path, kind: str, fault: Fault
) -> None:
    """First its writes are wrong, then its reads; then it is opened anew and is honest."""
    with OPENS[kind](tmp_path / "store") as inner:
        for verbs in (("put",), ("get", "exists")):
            store = Faulty(
                Lasting(inner), lambda turn, verbs=verbs: fault if turn.verb in verbs else None, seed=3
            )
            engine = make(2, store=store)
            found(engine)
            engine.cache.close()
    first = 0
    for _ in range(3):
        with OPENS[kind](tmp_path / "store") as inner:
            engine = make(2, store=Lasting(inner))
            now = found(engine)
            engine.cache.close()
            assert now >= first
            first = now
    assert first == len(PROMPT), "an honest store has it all in the end"


@pytest.mark.parametrize("kind", OPENS)
def test_a_storm_of_faults(tmp_path: Path, kind: str) -> None:
    """Every fault with its chance, many prompts, three caches at one store: all that hits is right."""
    chances = {fault: 0.03 for fault in Fault if fault not in (Fault.HANG, Fault.KEEP)}
    inner = OPENS[kind](tmp_path / "store")
    store = Faulty(Lasting(inner), chances, seed=12, delay=0.002)
    engines = [make(2, store=store) for _ in range(3)]
    lengths = 0
    for turn in range(60):
        prompt = [turn % 7, *range(1 + turn % 3, 19)]
        lengths += found(engines[turn % 3], prompt)
        # What is being copied holds its slots.
        assert engines[turn % 3].cache.drain(30)
        engines[turn % 3].cache.evict(16)
        engines[turn % 3].cache.evict(16, "host")
    for engine in engines:
        engine.check()
        engine.cache.close()
    assert lengths > 0, "nothing was ever found"
    assert len(store.injected) > 6, store.injected
    inner.close()


@pytest.mark.parametrize("kind", OPENS)
def test_an_answer_for_nothing_is_a_miss(tmp_path: Path, kind: str) -> None:
    """Told to be there, told to be read, and not a byte was: counted as damage, never served."""
    inner = OPENS[kind](tmp_path / "store")
    store = Faulty(inner, lambda turn: Fault.LIE if turn.verb in ("exists", "get") else None)
    engine = make(2, store=store)
    assert found(engine) == 0
    assert engine.cache.stats()["corrupt_pages"] == len(PROMPT) // 2
    engine.cache.close()


class Full(Double):
    """While it is full there is no room for the third of the pages that come."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.full, self.came = True, list[bytes]()

    def put(
        self, identity: bytes, keys: Sequence[bytes], parents: Sequence[bytes | None], pages: Sequence[Page]
    ) -> Sequence[Outcome]:
        self.came += [key for key in keys if key not in self.came]
        outcomes = []
        for key, parent, page in zip(keys, parents, pages, strict=True):
            if self.full and self.came.index(key) == 2:
                outcomes.append(Outcome.FAILED)
            else:
                outcomes += self.inner.put(identity, [key], [parent], [page])
        return outcomes


@pytest.mark.parametrize("kind", OPENS)
def test_one_page_without_room_costs_what_follows_it_until_there_is_room(tmp_path: Path, kind: str) -> None:
    prompt = PROMPT[:10]
    store = Full(OPENS[kind](tmp_path / "store"))
    engine = make(2, store=Lasting(store), io_threads=1)
    assert found(engine, prompt) == 0
    assert engine.cache.drain(10)
    stats = engine.cache.stats()
    assert (stats["stored_pages"], stats["store_failed_pages"]) == (4, 1)
    engine.cache.close()
    for full, expected in ((True, 4), (False, 4), (False, 10)):
        store.full = full
        engine = make(2, store=Lasting(store), io_threads=1)
        assert found(engine, prompt) == expected
        assert engine.cache.drain(10)
        assert engine.cache.stats()["store_failed_pages"] == int(full)
        engine.check()
        engine.cache.close()
    store.close()
