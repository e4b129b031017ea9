"""FULL and states in one torch buffer: what is looked up by frames is what was written, wherever it moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hicache import ArgumentError, HiCache, Host, pools, unified

PAGE = 4


def declared(rows: int = 4096, states: int = 256) -> list[pools.Pool]:
    kv = pools.declare("kv", 2, rows, [(2, 4), (2, 4)], torch.float16)
    return [kv, pools.declare("state", 3, states, [(16,), (4,)], torch.float32, of_pages=True, window=1)]


class Engine:
    """Writes numbers that tell every token and state apart, and reads them where the frames say."""

    def __init__(self, size: int, host: Host | None) -> None:
        self.buffer = torch.zeros(size, dtype=torch.uint8)
        self.cache = HiCache(declared(), PAGE, host=host, unified=self.buffer)
        self.planes = unified.views(self.buffer, declared(), PAGE)

    def frames(self, part: str | None, slots: torch.Tensor) -> torch.Tensor:
        found = self.cache.frames(part)[slots.long()].long()
        assert (found > 0).all()
        return found

    def check(self, hit: object, number: int) -> None:
        slots, states = hit.slots, hit.parts["state"]  # type: ignore[attr-defined]
        expected = number + torch.arange(slots.numel() * PAGE).view(-1, PAGE, 1, 1) % 7
        for at, plane in enumerate(self.planes["kv"]):
            assert (plane[self.frames(None, slots)] == expected + 8 * at).all()
        for at, plane in enumerate(self.planes["state"]):
            assert (plane[self.frames("state", states)] == number + at).all()

    def serve(self, number: int, pages: int) -> int:
        """One request; returns its hit, in pages."""
        tokens = torch.arange(pages * PAGE, dtype=torch.int32) + 1000 * number
        hit = self.cache.match_prefix(tokens)
        self.cache.load([hit])
        assert self.cache.drain(10)
        found = hit.length // PAGE
        if found:
            self.check(hit, number)
        if found < pages:
            slots, state = self.cache.allocate(pages - found), self.cache.allocate_part("state", 1)
            assert slots is not None
            assert state is not None
            values = number + torch.arange(found * PAGE, pages * PAGE).view(-1, PAGE, 1, 1) % 7
            for at, plane in enumerate(self.planes["kv"]):
                plane[self.frames(None, slots)] = (values + 8 * at).to(plane.dtype).expand(-1, -1, 2, 4)
            for at, plane in enumerate(self.planes["state"]):
                plane[self.frames("state", state)] = float(number + at)
            done = self.cache.insert_parts(hit, tokens[found * PAGE :], slots, {"state": state})
            assert done.duplicates.numel() == 0
            self.check(hit, number)
        hit.release()
        return found


@pytest.mark.parametrize("layout", ["page_unified", "layer_first"])
def test_bytes_follow_their_slots(layout: str) -> None:
    engine = Engine(12_000, Host(tokens=2000, layout=layout))
    before = engine.cache.frames_version
    for number in range(30):
        engine.serve(number, 1 + number % 2)
    for number in (*range(0, 30, 2), 40, 41, *range(30)):
        engine.serve(number, 20 if number >= 40 else 1 + number % 2)
        engine.cache.check()
    stats = engine.cache.stats()
    assert stats["moved_pages"] > 0
    assert stats["hit_host_tokens"] > 0
    assert engine.cache.frames_version > before
    engine.cache.close()


def test_other_memory_later() -> None:
    engine = Engine(12_000, Host(tokens=400))
    engine.serve(1, 3)
    assert engine.cache.drain(10)
    engine.cache.detach()
    with pytest.raises(ArgumentError, match="unified: need a buffer exactly where"):
        engine.cache.attach(declared())
    engine.buffer = torch.zeros(12_000, dtype=torch.uint8)
    engine.planes = unified.views(engine.buffer, declared(), PAGE)
    engine.cache.attach(declared(), engine.buffer)
    assert engine.serve(1, 3) == 3
    engine.cache.close()


def test_what_cannot_share_is_refused_by_name() -> None:
    buffer = torch.zeros(12_000, dtype=torch.uint8)
    tensors = torch.zeros(1, 64, 2, 4)
    refused: list[tuple[Callable[[], object], str]] = [
        (
            lambda: HiCache(declared(), PAGE, unified=buffer, slots="engine"),
            "unified: the engine owns the slots",
        ),
        (lambda: HiCache(declared()[:1], PAGE, unified=buffer), "unified: needs exactly one part"),
        (lambda: HiCache(declared(), PAGE, unified=buffer.to("meta")), "unified: is not built for meta"),
        (lambda: HiCache(declared(), PAGE, unified=buffer.view(2, -1)), "unified: need a contiguous uint8"),
        (lambda: HiCache(declared(), PAGE, unified=7), "unified: need a torch tensor, got int"),  # type: ignore[arg-type]
        (
            lambda: HiCache([pools.mha("kv", tensors, tensors), declared()[1]], PAGE, unified=buffer),
            "unified: declare pools without tensors",
        ),
        (lambda: HiCache(declared(), PAGE).frames(), "unified: slots are frames"),
    ]
    for call, why in refused:
        with pytest.raises(ArgumentError, match=why):
            call()
