"""Hybrids through the whole engine: tight pools, chunks, batches, and hits with windows and states, beside a
naive whole-sequence computation."""

from __future__ import annotations

import random
from typing import Any

import naive
import pytest
import torch
from remembering import Page, Remembering
from test_hybrid_model import ROUNDING, SEEN, hybrid, off, some_tokens

from hicache.engines.reference import Engine, KVPool, Model, Pools, Request, RequestTooLarge, Result
from hicache.engines.reference.parts import STATES
from hicache.engines.reference.uncached import Uncached


def pools_for(model: Model, slots: int, page_size: int, window_slots: int, state_slots: int) -> Pools:
    return Pools.create(
        model.config,
        slots=slots,
        page_size=page_size,
        window_slots=window_slots * ("W" in model.config.kinds),
        state_slots=state_slots * ("S" in model.config.kinds),
        dtype=model.dtype,
    )


def assert_naive(model: Model, request: Request, result: Result) -> None:
    tokens, logits = naive.greedy(model, list(request.tokens), request.max_new_tokens)
    assert result.tokens == tokens
    assert result.logits is not None
    assert off(result.logits, logits) < ROUNDING


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
    span = (window - 1 + chunk + page_size - 2) // page_size + 1
    pools = pools_for(model, 3 * pages, page_size, min(2 * span, 2 * pages), 3 * STATES)
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
    """200 tokens in 6 window slots of 4: a window of 9 and a step of 8 tokens touch 16 positions, 5 pages."""
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
    engine = Engine(model, pools_for(model, 40, 4, 12, 5), chunk_tokens=10, max_running=2)
    sequences = [engine.submit(Request(some_tokens(18 + n, n).tolist(), 5)) for n in range(4)]
    for _ in range(steps):
        engine.step()
    for sequence in sequences[:3]:
        engine.abort(sequence)
    engine.run()
    assert sequences[3].result is not None
    assert sequences[3].result.tokens == naive.greedy(model, some_tokens(21, 3).tolist(), 5)[0]
    assert_all_free(engine)


def test_what_can_never_run_is_refused() -> None:
    model = hybrid("SWF", window=9)
    with pytest.raises(ValueError, match="need a window pool"):
        Engine(model, KVPool.create(model.config, slots=4, page_size=4))
    pools = pools_for(model, 40, 4, 4, 1)
    with pytest.raises(RequestTooLarge, match="5 slots of the window pool, which has 4"):
        Engine(model, pools, chunk_tokens=8).submit(Request([1] * 30, 2))
    with pytest.raises(RequestTooLarge, match="2 slots of the state pool, which has 1"):
        Engine(model, pools, chunk_tokens=1).submit(Request([1] * 30, 2))

    class Plain:
        """A cache for full attention only."""

    with pytest.raises(ValueError, match="Plain has no slots for windows and states"):
        Engine(model, pools, Plain())  # type: ignore[arg-type]


class Restoring:
    """An engine on the remembering cache, and one prompt served by it: 30 tokens, 4 answered, pages of 4."""

    def __init__(self, kinds: str, window: int = 9) -> None:
        self.model = hybrid(kinds, **({"window": window} if "W" in kinds else {}))
        self.pools = pools_for(self.model, 60, 4, 60, 40)
        self.cache = Remembering(self.pools, -(-window // 4) if "W" in kinds else None)
        self.engine = Engine(self.model, self.pools, self.cache, chunk_tokens=4)
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
