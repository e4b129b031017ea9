"""Hybrids whose KV and states share one buffer: tokens and logits are the naive ones wherever a hit came from
and wherever pages have moved; frames that are a step old are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cached_hybrids import Stack
from hybrids import assert_naive, hybrid, some_tokens

from hicache import HiCache
from hicache.engines.reference import Engine, Request, RequestTooLarge, Result
from hicache.engines.reference.declared import declared
from hicache.engines.reference.unified import unified_pools

KINDS = ["SF", "FSS", "SFFS"]
PROMPT = some_tokens(30).tolist()
#: The prompt's first 29 tokens, and others: a hit may reach 28 tokens, 7 pages.
AGAIN = PROMPT[:29] + some_tokens(5, 9).tolist()


def tokens_of(result: Result) -> tuple[int, int, int]:
    return result.device_tokens, result.host_tokens, result.storage_tokens


def size_for(kinds: str, pages: int, states: int) -> int:
    """Bytes for so many pages of 4 tokens and states, the sink included."""
    kv, state = declared_sizes(kinds)
    low = (states + -(-max(kv, state) // state)) * state
    return (pages + -(-low // kv)) * kv


def declared_sizes(kinds: str) -> tuple[int, int]:
    model = hybrid(kinds)
    pools = declared(model.config, unified_pools(model.config, size=2**20, page_size=4, dtype=model.dtype))
    return pools[0].page_bytes(4), pools[1].page_bytes(4)


@pytest.mark.parametrize("layout", ["page_unified", "layer_first", "page_first", "page_head"])
@pytest.mark.parametrize("kinds", KINDS)
def test_hits_from_device_and_host(kinds: str, layout: str) -> None:
    with Stack(hybrid(kinds), size=2**20, layout=layout) as stack:
        assert tokens_of(stack.ask(PROMPT)) == (0, 0, 0)
        stack.settle()
        assert tokens_of(stack.ask(AGAIN)) == (28, 0, 0)
        stack.settle()
        stack.forget("device")
        assert tokens_of(stack.ask([*AGAIN[:31], 5, 6])) == (0, 28, 0)
        assert tokens_of(stack.ask([*AGAIN[:31], 7])) == (28, 0, 0)
        stack.check_books()


def test_hits_from_storage_that_pools_apart_have_written(tmp_path: Path) -> None:
    """What is stored of a page does not depend on where the device had it."""
    with Stack(hybrid("SF"), store=tmp_path) as apart:
        apart.ask(PROMPT)
        apart.settle()
    with Stack(hybrid("SF"), size=2**18, store=tmp_path) as stack:
        assert tokens_of(stack.ask(AGAIN)) == (0, 0, 28)
        stack.check_books()


def crowd(stack: Stack) -> int:
    """Requests that the buffer is too small for together: short and long ones in turns, some again, some two
    at once. How many tokens hit."""
    hits = 0
    for number in range(16):
        short = some_tokens(9 + number % 7, number).tolist()
        stack.ask(short, 1)
        hits += sum(tokens_of(stack.ask([*short, 1, 2])))
        if number % 3 == 2:
            hits += sum(tokens_of(stack.ask(some_tokens(40 + number, 100 + number % 5).tolist())))
        if number % 4 == 3:
            prompts = [[*some_tokens(12, 7).tolist(), number], some_tokens(21, number).tolist()]
            two = [Request(prompt, 2, keep_logits=True) for prompt in prompts]
            for request, result in zip(two, stack.engine.generate(two), strict=True):
                assert_naive(stack.model, request, result)
        stack.cache.check()
    return hits


@pytest.mark.parametrize(("kinds", "host"), [("SF", None), ("SF", 3.0), ("FSS", 3.0), ("SFFS", None)])
def test_pages_move_and_answers_stay(kinds: str, host: float | None) -> None:
    with Stack(hybrid(kinds), size=size_for(kinds, 24, 8), host=host, max_running=2) as stack:
        hits = crowd(stack)
        stats = stack.cache.stats()
        print(f"\n{kinds}: {hits} tokens hit, {stats['moved_pages']} pages moved")
        assert hits > 0
        assert stats["moved_pages"] > 0
        assert stats["evicted_device_pages"] > 0
        stack.check_books()


@pytest.mark.parametrize("stale", ["kv", "state"])
def test_frames_that_are_a_step_old_are_noticed(stale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str | None, torch.Tensor] = {}
    look, of = HiCache.frames, {"kv": None, "state": "state"}[stale]

    def frames(cache: HiCache, part: str | None = None) -> torch.Tensor:
        now = look(cache, part)
        if part != of:
            return now
        old = known.get(part, now)
        known[part] = now
        return torch.where(old < 0, now, old)

    monkeypatch.setattr(HiCache, "frames", frames)
    with Stack(hybrid("SF"), size=size_for("SF", 24, 8), max_running=2) as stack:
        with pytest.raises(AssertionError):
            crowd(stack)
        stack.engine.close()


def test_what_fits_alone_runs_and_what_does_not_is_refused() -> None:
    with Stack(hybrid("SF"), size=size_for("SF", 10, 3), host=None) as stack:
        assert stack.pools.kv.slots == 10
        for seed in range(3):
            stack.ask(some_tokens(38, seed).tolist(), 3)
        stack.cache.check()
        with pytest.raises(RequestTooLarge, match="the whole device pool has 10"):
            stack.engine.submit(Request(some_tokens(39), 3))
        stack.check_books()


def test_what_cannot_be_meant_is_refused() -> None:
    model = hybrid("SF")
    pools = unified_pools(model.config, size=2**16, page_size=4, dtype=model.dtype)
    with pytest.raises(ValueError, match="cache: Uncached doesn't say where the slots of one buffer are"):
        Engine(model, pools)
    for kinds in ("WF", "F", "SWF"):
        with pytest.raises(ValueError, match="one buffer is for layers F and S"):
            unified_pools(hybrid(kinds).config, size=2**16, page_size=4)
    with pytest.raises(ValueError, match="size: 1000 bytes hold no page of"):
        unified_pools(model.config, size=1000, page_size=4)
