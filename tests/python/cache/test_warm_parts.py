"""`warm` of a model with windows and states: from a store's files to the host, and on to the device."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from parted_engine import PartedEngine, make_parted

PROMPT = list(range(16))
PAGES = len(PROMPT) // 2


def engine(store: Path) -> PartedEngine:
    """Pages of 2 tokens; windows of 5 tokens (3 pages)."""
    return make_parted(2, (20, 20, 8), 20, tokens=5, store=store)


def serve(some: PartedEngine, tokens: list[int]) -> int:
    """A whole request, of which everything is verified; how much of it hit."""
    request = some.match(tokens)
    some.fetch(request)
    some.load(request)
    found = request.hit.length
    some.verify(request)
    while request.computed < len(tokens):
        assert some.compute(request, 4)
    some.verify(request)
    some.finish(request)
    assert some.cache.drain(10)
    some.check()
    return found


def warmed(some: PartedEngine, tokens: list[int], *, device: bool) -> tuple[int | None, int | None]:
    warm = some.cache.warm(tokens, device=device)
    assert warm is not None
    deadline = time.monotonic() + 10
    while not warm.done and time.monotonic() < deadline:
        some.cache.poll()
    assert some.cache.drain(10)
    some.check()
    return warm.length, warm.device_length


@pytest.mark.parametrize("device", [False, True])
def test_a_prefix_comes_up_with_its_window_and_state(tmp_path: Path, device: bool) -> None:
    before = engine(tmp_path)
    serve(before, PROMPT)
    before.cache.close()
    some = engine(tmp_path)
    assert warmed(some, PROMPT, device=device) == (len(PROMPT), len(PROMPT) if device else 0)
    stats = some.cache.stats()
    assert (stats["requests"], stats["warmed_host_pages"]) == (0, PAGES)
    assert stats["warmed_device_pages"] == (PAGES if device else 0)
    assert [some.cache.part_stats(part)["prefetched"] for part in ("window", "state")] == [3, 1]
    assert some.cache.part_stats("state")["loaded"] == int(device)
    # The request that comes is served from there, and every byte of it is right.
    reads = stats["prefetched_pages"]
    assert serve(some, PROMPT) == len(PROMPT)
    stats = some.cache.stats()
    assert stats["hit_device_tokens" if device else "hit_host_tokens"] == len(PROMPT)
    assert stats["prefetched_pages"] == reads
    some.cache.close()


def test_a_state_that_the_device_lost_comes_alone(tmp_path: Path) -> None:
    some = engine(tmp_path)
    held = some.match([*PROMPT, 90, 91])
    some.load(held)
    for count in (16, 2):
        assert some.compute(held, count)
    assert some.cache.drain(10)
    for tier in ("device", "host"):
        some.cache.evict_part("state", 8, tier)
    assert some.cache.match_prefix(PROMPT).host_length == 0
    assert warmed(some, PROMPT, device=True) == (len(PROMPT), len(PROMPT))
    assert some.cache.stats()["prefetched_pages"] == 0, "pages and windows were there"
    assert serve(some, PROMPT) == len(PROMPT)
    some.finish(held)
    some.cache.close()
