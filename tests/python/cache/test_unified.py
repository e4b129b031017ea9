"""FULL and states in one torch buffer: what is looked up by frames is what was written, wherever it moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from unified_engine import PAGE, Engine, declared

from hicache import ArgumentError, HiCache, Host, pools, unified


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
