"""Hits of hybrids in the engine: windows and states that others left, evicted one by one, and mended, beside
a naive whole-sequence computation. The cache is a test double on the device (`remembering.py`)."""

from __future__ import annotations

import random
from typing import Any

import naive
import pytest
import torch
from hybrids import SEEN, assert_naive, hybrid, off, pools_for, some_tokens
from remembering import Evicting, Page, Remembering

from hicache.engines.reference import Engine, Request, Result
from hicache.engines.reference.parts import Needs


class Restoring:
    """An engine on the remembering cache, and one prompt served by it: 30 tokens, 4 answered, pages of 4."""

    def __init__(self, kinds: str, window: int = 9, chunk_tokens: int = 4) -> None:
        self.model = hybrid(kinds, **({"window": window} if "W" in kinds else {}))
        self.pools = pools_for(self.model, 60, 4, 60, 40)
        self.cache = Remembering(self.pools, -(-window // 4) if "W" in kinds else None)
        self.engine = Engine(self.model, self.pools, self.cache, chunk_tokens=chunk_tokens)
        self.prompt = some_tokens(30).tolist()
        self.ask(self.prompt)
        self.pages = self.cache.path(torch.tensor(self.prompt))

    def ask(self, prompt: list[int], new: int = 4) -> tuple[Request, Result]:
        request = Request(prompt, new, keep_logits=True)
        (result,) = self.engine.generate([request])
        self.cache.check()
        return request, result

    def again(self, more: int = 5) -> tuple[Request, Result]:
        """The prompt's first 29 tokens and some others: hits up to 28 tokens, seven pages."""
        return self.ask(self.prompt[:29] + some_tokens(more, 9).tolist())


@pytest.mark.parametrize("kinds", ["WF", "SF", "SWF", "WS"])
def test_hits_go_on_as_if_computed(kinds: str) -> None:
    stack = Restoring(kinds)
    before = kept(stack)
    request, result = stack.again()
    assert result.device_tokens == 28
    assert_naive(stack.model, request, result)
    assert all(torch.equal(a, b) for a, b in zip(before, kept(stack), strict=True)), "shared, so read only"
    two = [
        Request(request.tokens, 6, keep_logits=True),
        Request([*stack.prompt, 7, 8, 9], 6, keep_logits=True),
    ]
    for asked, answered in zip(two, stack.engine.generate(two), strict=True):
        assert answered.device_tokens >= 28
        assert_naive(stack.model, asked, answered)
    stack.cache.check()


@pytest.mark.parametrize("chunk_tokens", [3, 7, 30])
@pytest.mark.parametrize("window", [1, 4, 5, 9])
def test_the_cache_gets_all_that_the_window_reached(window: int, chunk_tokens: int) -> None:
    """Also where a step ends in the middle of a page: what its window has left was given before."""
    stack = Restoring("SWF", window, chunk_tokens)
    assert all(page.window >= 0 for page in stack.pages)
    request, result = stack.again()
    assert result.device_tokens == 28
    assert_naive(stack.model, request, result)


def kept(stack: Restoring) -> list[torch.Tensor]:
    """Copies of everything that the cache remembers of the prompt."""
    copies = []
    for page in stack.pages:
        if stack.pools.window is not None and page.window >= 0:
            rows = slice(page.window * 4, page.window * 4 + 4)
            copies += [tensor[rows].clone() for tensor in (*stack.pools.window.k, *stack.pools.window.v)]
        if stack.pools.state is not None and page.state >= 0:
            copies += [t[page.state].clone() for t in (*stack.pools.state.memory, *stack.pools.state.last)]
    return copies


@pytest.mark.parametrize("kinds", ["WF", "SF", "SWF"])
def test_windows_and_states_evicted_one_by_one(kinds: str) -> None:
    """Whatever is a hole, the answer is the naive one; the insert that computes it again mends the hole."""
    for part in ("window", "state"):
        if part[0].upper() not in kinds:
            continue
        for number in range(7):
            stack = Restoring(kinds)
            stack.cache.evict(part, stack.pages[number])
            request, result = stack.again()
            assert result.device_tokens == expected(stack, part, number)
            assert_naive(stack.model, request, result)
            if result.device_tokens < 28 and number * 4 >= result.device_tokens:
                assert getattr(stack.pages[number], part) >= 0, "mended"


def expected(stack: Restoring, part: str, number: int) -> int:
    """Tokens of the longest usable prefix of seven pages without one of page `number`'s parts."""
    if part == "state":
        return 24 if number == 6 else 28
    return 28 if number < 7 - 3 else 4 * number


@pytest.mark.parametrize("kinds", ["WF", "SWF"])
@pytest.mark.parametrize("plant", ["window", "state", "state token"])
def test_a_hit_with_a_part_one_page_off_is_noticed(kinds: str, plant: str) -> None:
    """What the tests above rest on: the parts of a hit exchanged for their neighbours' change the logits."""
    stack = Restoring(kinds.replace("W", "S") if plant != "window" else kinds)
    pages = stack.pages
    if plant == "window":
        shift(pages, "window")
    elif plant == "state":
        shift(pages, "state")
    else:
        ahead = Restoring(stack.model.config.kinds)
        ahead.ask([*ahead.prompt[1:], 3])
        move_state(stack, ahead)
    request, result = stack.again()
    assert result.device_tokens == 28
    assert result.logits is not None
    assert off(result.logits[0], naive.greedy(stack.model, list(request.tokens), 1)[1][0]) > SEEN


def shift(pages: list[Page], part: str) -> None:
    slots = [getattr(page, part) for page in pages]
    for page, slot in zip(pages, slots[-1:] + slots[:-1], strict=True):
        setattr(page, part, slot)


def move_state(stack: Restoring, ahead: Restoring) -> None:
    """The checkpoint at 28 becomes that of the tokens 1 .. 29: a token later, and without the first."""
    theirs = ahead.cache.path(torch.tensor(ahead.prompt[1:]))[6].state
    assert stack.pools.state is not None
    assert ahead.pools.state is not None
    for mine, other in zip(stack.pools.state.memory, ahead.pools.state.memory, strict=True):
        mine[stack.pages[6].state] = other[theirs]
    for mine, other in zip(stack.pools.state.last, ahead.pools.state.last, strict=True):
        mine[stack.pages[6].state] = other[theirs]


def test_a_hit_with_a_hole_in_its_window_is_an_error() -> None:
    stack = Restoring("WF")
    stack.cache.evict("window", stack.pages[5])
    stack.cache.usable = lambda pages: True  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="holes in the window"):
        stack.again()


def test_a_state_pool_without_room_makes_no_checkpoint() -> None:
    """No room for a spare slot is no error: later requests find fewer checkpoints."""
    model = hybrid("SF")
    pools = pools_for(model, 60, 4, 0, 3)
    cache = Remembering(pools, None)
    engine = Engine(model, pools, cache, chunk_tokens=4)
    request = Request(some_tokens(30).tolist(), 4, keep_logits=True)
    (result,) = engine.generate([request])
    assert_naive(model, request, result)
    cache.check()
    states = [page.state >= 0 for page in cache.path(torch.tensor(request.tokens))]
    assert states == [True, True] + [False] * 5


@pytest.mark.parametrize(("window", "chunk_tokens"), [(10, 3), (10, 2), (6, 5), (1, 7)])
def test_what_a_request_needs_at_most_is_enough(window: int, chunk_tokens: int) -> None:
    """Alone in pools of just that size, also behind a hit whose window and checkpoint are held: nobody else
    could give it room."""
    model = hybrid("SWF", window=window)
    needs = Needs(pools_for(model, 60, 4, 60, 60), window, chunk_tokens).of(43)
    pools = pools_for(model, 60, 4, needs["window"], needs["state"])
    cache = Evicting(pools, max(1, -(-(window - 1) // 4)))
    engine = Engine(model, pools, cache, chunk_tokens=chunk_tokens, stall_timeout=0.5)
    prompt = some_tokens(30).tolist()
    for asked, new in ((prompt[:25], 1), (prompt, 12)):
        request = Request(asked, new, keep_logits=True)
        (result,) = engine.generate([request])
        assert_naive(model, request, result)
        cache.check()
    assert result.device_tokens > 0


def concurrent(stack: Restoring, seed: int) -> list[Request]:
    draw: Any = random.Random(seed)
    return [
        Request(
            stack.prompt[: draw.randint(0, 30)]
            + some_tokens(draw.randint(1, 20), draw.randint(0, 2)).tolist(),
            draw.randint(1, 9),
            keep_logits=True,
        )
        for _ in range(5)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_concurrent_requests_share_windows_and_states(seed: int) -> None:
    stack = Restoring("SWF")
    stack.pools = pools_for(stack.model, 300, 4, 300, 200)
    stack.cache = Remembering(stack.pools, 3)
    stack.engine = Engine(stack.model, stack.pools, stack.cache, chunk_tokens=11, max_running=3)
    for round_ in range(2):
        requests = concurrent(stack, seed)
        for request, result in zip(requests, stack.engine.generate(requests), strict=True):
            assert_naive(stack.model, request, result)
            assert round_ == 0 or result.device_tokens > 0 or result.prompt_tokens < 5
        stack.cache.check()
