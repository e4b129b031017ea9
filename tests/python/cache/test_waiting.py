"""What a waiting request does in a step, and loads that aren't worth it, through the package."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from fake_engine import Engine, make

from hicache import ArgumentError, HitError
from hicache.storage import Outcome, Page, Store
from hicache.testing.doubles import Double
from hicache.testing.memory import MemoryStore

PROMPT = list(range(24))
WAIT_S = 20.0


class Shared(Double):
    """Outlives the caches that close it."""

    def close(self) -> None:
        return


class Gated(Shared):
    """Reads nothing before it is told to."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked, self.opened = threading.Event(), threading.Event()

    def get(self, identity: bytes, keys: Sequence[bytes], pages: Sequence[Page]) -> Sequence[Outcome]:
        self.asked.set()
        assert self.opened.wait(WAIT_S)
        return super().get(identity, keys, pages)


def stored() -> MemoryStore:
    """A store with a prompt's pages."""
    inner = MemoryStore()
    writer = make(store=Shared(inner))
    writer.finish(writer.run(PROMPT))
    writer.cache.close()
    return inner


def reading(gate: Gated, **options: Any) -> tuple[Engine, Any]:
    """A cache over a store that doesn't answer a read, and a request that waits for it, at second 100."""
    engine = make(store=gate, **options)
    engine.cache.poll(at=100.0)
    request = engine.match(PROMPT, at=100.0)
    assert engine.cache.prefetch(request.hit)
    while not gate.asked.is_set():
        engine.cache.poll(at=100.0)
    return engine, request


@pytest.mark.parametrize(
    ("policy", "alone", "crowded", "late"),
    [
        ("best_effort", "compute", "compute", "compute"),
        ("wait_complete", "wait", "skip", "wait"),
        ("timeout", "wait", "skip", "compute"),
    ],
)
def test_who_waits_for_how_long(policy: str, alone: str, crowded: str, late: str) -> None:
    gate = Gated(stored())
    engine, request = reading(
        gate, prefetch=policy, prefetch_timeout_base=1.5, prefetch_timeout_per_ki_token=64.0
    )
    with engine.cache as cache:
        assert (cache.decide(request.hit), cache.decide(request.hit, others=3)) == (alone, crowded)
        cache.poll(at=103.0)
        assert cache.decide(request.hit) == alone
        cache.poll(at=103.001)
        decision = cache.decide(request.hit)
        assert (decision, decision.tokens, request.hit.waiting) == (late, None, True)
        gate.opened.set()
        if late == "wait":
            while request.hit.waiting:
                cache.poll(at=104.0)
            assert cache.decide(request.hit) == "compute"
        engine.load(request)
        engine.verify(request)
        assert request.hit.length == (24 if late == "wait" else 0)
        engine.finish(request)
        with pytest.raises(HitError):
            cache.decide(request.hit)
        assert cache.drain(WAIT_S)


def test_the_deadline_ends_every_wait() -> None:
    gate = Gated(stored())
    engine, request = reading(gate, prefetch="wait_complete", prefetch_deadline=3.0)
    with engine.cache as cache:
        cache.poll(at=103.1)
        assert (cache.decide(request.hit), request.hit.waiting) == ("compute", False)
        request.hit.release()
        gate.opened.set()
        assert cache.drain(WAIT_S)


@pytest.mark.parametrize(("options", "length"), [({"load_threshold": 26}, 0), ({"load_threshold": 24}, 24)])
def test_a_short_load_is_computed(options: dict[str, Any], length: int) -> None:
    engine = make(**options)
    with engine.cache as cache:
        engine.finish(engine.run(PROMPT))
        assert cache.drain(WAIT_S)
        cache.evict(16)
        request = engine.match(PROMPT)
        assert request.hit.host_length == 24
        engine.load(request)
        assert request.hit.length == length
        assert cache.stats()["load_declined_pages"] == (24 - length) // 2
        engine.finish(request)


@pytest.mark.parametrize(("budget", "length"), [(0, 0), (23, 0), (24, 24), (None, 24)])
def test_a_load_keeps_to_its_budget(budget: int | None, length: int) -> None:
    engine = make()
    with engine.cache as cache:
        engine.finish(engine.run(PROMPT))
        assert cache.drain(WAIT_S)
        cache.evict(16)
        request = engine.match(PROMPT)
        cache.load([request.hit], budget=budget).wait()
        assert request.hit.length == length
        request.hit.release()


def test_what_can_not_be_meant_is_refused() -> None:
    engine = make()
    with engine.cache as cache:
        request = engine.match(PROMPT)
        for call, name in [
            (lambda: cache.decide(request.hit, others=-1), "others"),
            (lambda: cache.decide(request.hit, others=True), "others"),
            (lambda: cache.stepped(-1, 0.1), "tokens"),
            (lambda: cache.stepped(1, -0.1), "seconds"),
            (lambda: cache.stepped(1, float("nan")), "seconds"),
            (lambda: cache.stepped(1, 0.1, ahead=-1), "ahead"),
            (lambda: cache.load([request.hit], budget=-1), "budget"),
            (lambda: cache.load([request.hit], budget=1.5), "budget"),  # type: ignore[arg-type]
        ]:
            with pytest.raises(ArgumentError, match=f"^{name}: "):
                call()  # type: ignore[no-untyped-call]
        cache.stepped(512, 0.1, ahead=3)
        request.hit.release()
