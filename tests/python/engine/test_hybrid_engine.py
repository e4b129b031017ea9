"""Hybrids through the whole engine without a cache: tight pools, chunks, batches, aborts, beside a naive
whole-sequence computation."""

from __future__ import annotations

import random
from typing import Any

import naive
import pytest
import torch
from hybrids import assert_naive, hybrid, pools_for, some_tokens

from hicache.engines.reference import Engine, KVPool, Request, RequestTooLarge
from hicache.engines.reference.parts import STATES, Needs, Parts
from hicache.engines.reference.uncached import Uncached, UncachedDone, UncachedHit


@pytest.mark.parametrize("seed", range(10))
def test_uncached_hybrids_answer_as_the_naive_whole(seed: int) -> None:
    """Pools as small as the requests allow: window slots go round and round."""
    draw = random.Random(seed)
    kinds = draw.choice(["WF", "WWF", "SF", "SWF", "S", "W", "WS"])
    window, page_size, chunk = draw.randint(1, 12), draw.choice([1, 3, 4, 8]), draw.choice([1, 5, 16])
    model = hybrid(
        kinds, family=draw.choice(["llama", "gemma3"]), **({"window": window} if "W" in kinds else {})
    )
    requests = [
        Request(some_tokens(draw.randint(1, 45), n).tolist(), draw.randint(1, 6), keep_logits=True)
        for n in range(4)
    ]
    pages = -(-52 // page_size)
    # Two requests at most fit the window pool at once.
    one = Needs(pools_for(model, pages, page_size, pages, 1), window, chunk).of(52).get("window", 0)
    pools = pools_for(model, 3 * pages, page_size, 2 * one, 3 * STATES)
    engine = Engine(model, pools, chunk_tokens=chunk)
    for request, result in zip(requests, engine.generate(requests), strict=True):
        assert_naive(model, request, result)
    assert_all_free(engine)


def assert_all_free(engine: Engine) -> None:
    cache = engine.cache
    assert isinstance(cache, Uncached)
    assert cache.free_slots == engine.pool.slots
    for part, pool in (("window", engine.pools.window), ("state", engine.pools.state)):
        assert cache.free_part_slots(part) == (0 if pool is None else pool.slots)


def test_a_request_holds_its_window_only() -> None:
    """200 tokens in 6 window slots of 4: the window, a page that is pinned before it, and a step, from the
    middle of a page on."""
    model = hybrid("WF", window=9)
    pools = pools_for(model, 60, 4, 6, 0)
    engine = Engine(model, pools, chunk_tokens=8)
    request = Request(some_tokens(190).tolist(), 10, keep_logits=True)
    sequence = engine.submit(request)
    most = 0
    while engine.busy:
        assert engine.step()
        assert isinstance(engine.cache, Uncached)
        most = max(most, 6 - engine.cache.free_part_slots("window"))
    assert sequence.result is not None
    assert most == 3, "after a step: nine tokens reach over three pages at most"
    assert_naive(model, request, sequence.result)
    assert_all_free(engine)


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 7])
def test_abort_in_any_state_returns_windows_and_states(steps: int) -> None:
    model = hybrid("SWF")
    engine = Engine(model, pools_for(model, 40, 4, 14, 6), chunk_tokens=10, max_running=2)
    sequences = [engine.submit(Request(some_tokens(18 + n, n).tolist(), 5)) for n in range(4)]
    for _ in range(steps):
        engine.step()
    for sequence in sequences[:3]:
        engine.abort(sequence)
    engine.run()
    assert sequences[3].result is not None
    assert sequences[3].result.tokens == naive.greedy(model, some_tokens(21, 3).tolist(), 5)[0]
    assert_all_free(engine)


def test_requests_that_could_wait_for_each_others_windows_run_one_by_one() -> None:
    """Each needs three window slots at times and always holds two: with four, two at once would never end.
    (Behind a hit it would need one more.)"""
    model = hybrid("WF", window=9)
    engine = Engine(model, pools_for(model, 40, 4, 4, 0), chunk_tokens=1, stall_timeout=2.0)
    requests = [Request([token], 20, keep_logits=True) for token in (3, 4)]
    for request, result in zip(requests, engine.generate(requests), strict=True):
        assert_naive(model, request, result)
    assert_all_free(engine)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_no_room_for_full_attention_leaves_no_state_behind(times: int) -> None:
    """The slots of states were taken first; the request tries again, twice in a step."""

    class Full(Uncached):
        left = times

        def allocate(self, pages: int) -> torch.Tensor | None:
            self.left -= 1
            return None if self.left >= 0 else super().allocate(pages)

    model = hybrid("SF")
    pools = pools_for(model, 40, 4, 0, 4)
    engine = Engine(model, pools, Full(40, 4, state_slots=4))
    request = Request(some_tokens(18).tolist(), 3, keep_logits=True)
    (result,) = engine.generate([request])
    assert_naive(model, request, result)
    assert_all_free(engine)


def test_what_can_never_run_is_refused() -> None:
    model = hybrid("SWF", window=9)
    with pytest.raises(ValueError, match="need a window pool"):
        Engine(model, KVPool.create(model.config, slots=4, page_size=4))
    pools = pools_for(model, 40, 4, 4, 1)
    with pytest.raises(RequestTooLarge, match="6 slots of the window pool, which has 4"):
        Engine(model, pools, chunk_tokens=8).submit(Request([1] * 30, 2))
    with pytest.raises(RequestTooLarge, match="3 slots of the state pool, which has 1"):
        Engine(model, pools, chunk_tokens=1).submit(Request([1] * 30, 2))

    class Plain:
        """A cache for full attention only."""

    with pytest.raises(ValueError, match="Plain has no slots for windows and states"):
        Engine(model, pools, Plain())  # type: ignore[arg-type]


def test_a_checkpoint_is_given_only_at_its_own_boundary() -> None:
    """The slot for the next checkpoint holds nothing yet when an insert that was declined is tried again."""

    class Recording(Uncached):
        given: tuple[str, ...] = ()

        def insert_parts(self, hit: Any, tokens: Any, slots: torch.Tensor, parts: Any) -> UncachedDone:
            self.given = tuple(parts)
            return UncachedDone(slots, parts=dict(parts))

    pools = pools_for(hybrid("SF"), 10, 4, 0, 2)
    cache = Recording(10, 4, state_slots=2)
    parts = Parts(cache, Needs(pools, 0, 8), 20)
    assert parts.take(UncachedHit(cache))
    assert parts.reach(6)
    use = parts.state_use(0, 6)
    assert use is not None
    assert use.checkpoint is not None
    assert use.checkpoint[0] == 4
    parts.computed()
    parts.insert(None, None, torch.arange(1), 0)  # type: ignore[arg-type]
    assert cache.given == ("state",), "adopted: the slot is the cache's now"
    assert parts.reach(9), "no room for a spare, and nothing else is needed"
    use = parts.state_use(6, 9)
    assert use is not None
    assert use.checkpoint is None
    parts.computed()  # the insert of page 1 is declined
    cache.free_part("state", torch.tensor([0 if use.own else 1]))
    assert parts.reach(10)
    parts.state_use(9, 10)
    parts.computed()
    parts.insert(None, None, torch.arange(1), 1)  # type: ignore[arg-type]
    assert cache.given == ()
