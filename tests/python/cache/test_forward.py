"""Forwards under way while verbs are called: what they found at a frame stays there till they are through."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from unified_engine import PAGE, Engine, declared

from hicache import ArgumentError, ClosedError, HiCache, HitError
from hicache.hit import Hit


class Under:
    """What a forward of one loaded request and one state of the engine's own finds and writes."""

    def __init__(self, engine: Engine, hit: Hit, ours: torch.Tensor) -> None:
        self.engine, self.ours = engine, ours
        self.pages = engine.frames(None, hit.slots)
        self.states = engine.frames("state", hit.parts["state"])
        self.written = engine.frames("state", ours)
        self.seen = self.reads()

    def reads(self) -> list[torch.Tensor]:
        planes = self.engine.planes
        return [plane[self.pages].clone() for plane in planes["kv"]] + [
            plane[self.states].clone() for plane in planes["state"]
        ]

    def changed(self) -> bool:
        return any(not torch.equal(one, other) for one, other in zip(self.seen, self.reads(), strict=True))

    def write(self, value: float) -> None:
        for plane in self.engine.planes["state"]:
            plane[self.written] = value

    def read_back(self) -> set[float]:
        planes = [plane[self.engine.frames("state", self.ours)] for plane in self.engine.planes["state"]]
        return {float(value) for plane in planes for value in plane.unique()}


def crowded() -> tuple[Engine, Hit, torch.Tensor, int]:
    """A loaded hit, and a state of our own, both behind holes; with pages for more than the gap."""
    engine = Engine(8_000, None)
    cache = engine.cache
    states = cache.allocate_part("state", 5)
    assert states is not None
    engine.serve(1, 3)
    ours, holes = states[2:3], torch.cat([states[:2], states[3:]])
    cache.free_part("state", holes)
    hit = cache.match_prefix(torch.arange(3 * PAGE, dtype=torch.int32) + 1000)
    cache.load([hit])
    assert hit.length == 3 * PAGE
    engine.check(hit, 1)
    return engine, hit, ours, cache.stats()["device_free"]


def fill(engine: Engine, pages: int) -> torch.Tensor | None:
    """Takes pages and writes them full; as many as there are, one by one."""
    found = []
    for _ in range(pages):
        slot = engine.cache.allocate(1)
        if slot is None:
            break
        for plane in engine.planes["kv"]:
            plane[engine.frames(None, slot)] = -1.0
        found.append(slot)
    return torch.cat(found) if found else None


def test_a_forward_finds_what_it_found() -> None:
    engine, hit, ours, room = crowded()
    with engine.cache.forward() as forward:
        under = Under(engine, hit, ours)
        moved = engine.cache.stats()["moved_pages"]
        some = fill(engine, room)
        assert some is not None
        assert some.numel() < room
        assert engine.cache.stats()["moved_pages"] > moved
        assert not under.changed()
        under.write(7.0)
        assert under.read_back() == {7.0}
        engine.cache.check()
    assert forward.ended
    rest = fill(engine, room - some.numel())
    assert rest is not None
    assert rest.numel() == room - some.numel()
    assert under.read_back() == {7.0}
    engine.check(hit, 1)
    hit.release()
    engine.cache.check()


def test_without_one_other_bytes_are_found() -> None:
    engine, hit, ours, room = crowded()
    under = Under(engine, hit, ours)
    fill(engine, room)
    assert under.changed()
    under.write(7.0)
    assert under.read_back() != {7.0}
    hit.release()


def test_a_forward_on_another_thread() -> None:
    engine, hit, ours, room = crowded()
    go, wrong = threading.Event(), []

    def run(under: Under) -> None:
        rounds = 0
        while not go.is_set() or rounds < 3:
            rounds += 1
            under.write(float(rounds))
            if under.changed() or under.read_back() != {float(rounds)}:
                wrong.append(rounds)

    forward = engine.cache.forward()
    thread = threading.Thread(target=run, args=(Under(engine, hit, ours),))
    thread.start()
    assert fill(engine, room) is not None
    hit.release()
    assert engine.cache.evict(9).numel() == 0
    go.set()
    thread.join()
    assert wrong == []
    forward.end()
    assert engine.cache.evict(9).numel() == 3
    engine.cache.check()


def test_wrong_use() -> None:
    engine = Engine(8_000, None)
    forward = engine.cache.forward()
    assert repr(forward) == "<Forward 1: under way>"
    with pytest.raises(ArgumentError, match="1 forwards are under way: end them, then detach"):
        engine.cache.detach()
    forward.end()
    with pytest.raises(ArgumentError, match="forward: forward 1 is not under way"):
        forward.end()
    with pytest.raises(ZeroDivisionError), engine.cache.forward() as failed:
        1 / 0  # noqa: B018
    assert failed.ended
    assert repr(failed) == "<Forward 2: ended>"
    last = engine.cache.forward()
    engine.cache.close()
    last.end()
    with pytest.raises(ClosedError):
        engine.cache.forward()
    with pytest.raises(ArgumentError, match="unified: device memory is not one buffer"):
        HiCache(declared(), PAGE).forward()


def test_a_forgotten_forward_warns_and_the_next_poll_ends_it() -> None:
    engine, hit, ours, room = crowded()
    forward = engine.cache.forward()
    engine.cache.free_part("state", ours)
    with pytest.warns(ResourceWarning, match="dropped without end"):
        del forward
    gc.collect()
    engine.cache.poll()
    assert fill(engine, room) is not None
    hit.release()
    with pytest.raises(HitError):
        hit.release()
    engine.cache.check()
