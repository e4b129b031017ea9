"""The engine without a cache: it must be a trustworthy oracle before anything is compared with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hicache.engines.reference import (
    Engine,
    EngineStalled,
    KVPool,
    Model,
    Request,
    RequestTooLarge,
    Result,
    Sequence,
)
from hicache.engines.reference.uncached import Uncached, UncachedHit, UncachedLoad

Alone = Callable[[Model, Request], Result]
Prompts = Callable[[int, int, int], list[list[int]]]


def engine_for(model: Model, slots: int, page_size: int = 4, **options: Any) -> Engine:
    return Engine(
        model, KVPool.create(model.config, slots=slots, page_size=page_size, dtype=model.dtype), **options
    )


def free_slots(engine: Engine) -> int:
    assert isinstance(engine.cache, Uncached)
    return engine.cache.free_slots


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("chunk_tokens", [1, 13, 512])
def test_concurrent_requests_answer_as_if_alone(
    tiny: Model, random_prompts: Prompts, alone: Alone, page_size: int, chunk_tokens: int
) -> None:
    requests = [Request(prompt, max_new_tokens=6 + n % 3) for n, prompt in enumerate(random_prompts(9, 1, 1))]
    engine = engine_for(
        tiny, slots=-(-160 // page_size), page_size=page_size, chunk_tokens=chunk_tokens, max_running=4
    )
    results = engine.generate(requests)
    assert [result.tokens for result in results] == [alone(tiny, request).tokens for request in requests]
    assert len({tuple(result.tokens[:6]) for result in results}) == 9, "answers that depend on the prompt"
    assert free_slots(engine) == engine.pool.slots


def test_waits_for_room_and_runs_everything(tiny: Model, random_prompts: Prompts, alone: Alone) -> None:
    """The pool holds the largest request and nothing else, so they run mostly one after the other."""
    requests = [Request(prompt, max_new_tokens=5) for prompt in random_prompts(6, 10, 2)]
    engine = engine_for(tiny, slots=13)
    most = 0
    sequences = [engine.submit(request) for request in requests]
    while engine.busy:
        assert engine.step(), "without a cache every step computes something"
        most = max(most, engine.running)
    assert 1 <= most < 6
    for sequence, request in zip(sequences, requests, strict=True):
        assert sequence.result is not None
        assert sequence.result.tokens == alone(tiny, request).tokens
    assert free_slots(engine) == 13


def test_result_counts_tokens_and_time(tiny: Model, random_prompts: Prompts) -> None:
    (prompt,) = random_prompts(1, 30, 3)
    result = engine_for(tiny, slots=20).generate([Request(prompt, max_new_tokens=4, keep_logits=True)])[0]
    assert (result.prompt_tokens, result.computed_tokens) == (30, 30)
    assert (result.device_tokens, result.host_tokens, result.storage_tokens) == (0, 0, 0)
    assert result.finish == "length"
    assert result.logits is not None
    assert result.logits.argmax(-1).tolist() == result.tokens
    assert result.first_token_s is not None
    parts = result.restoring_s + result.queued_s + result.computing_s
    assert parts == pytest.approx(result.first_token_s)
    assert 0 < result.computing_s < result.first_token_s < result.total_s


def test_stops_at_a_stop_token(tiny: Model, random_prompts: Prompts, alone: Alone) -> None:
    (prompt,) = random_prompts(1, 12, 4)
    full = alone(tiny, Request(prompt, max_new_tokens=8)).tokens
    first = full.index(full[3])
    result = alone(tiny, Request(prompt, max_new_tokens=8, stop=frozenset({full[3]})))
    assert result.tokens == full[: first + 1]
    assert result.finish == "stop"


def test_streams_tokens_as_they_come(tiny: Model, random_prompts: Prompts) -> None:
    engine, streamed, steps = engine_for(tiny, slots=40), [], []
    prompts = random_prompts(3, 5, 5)
    requests = [Request(prompt, max_new_tokens=4, on_token=streamed.append) for prompt in prompts]
    sequences = [engine.submit(request) for request in requests]
    while engine.busy:
        engine.step()
        steps.append(len(streamed))
    assert steps == [3, 6, 9, 12]
    results = [sequence.result.tokens for sequence in sequences if sequence.result]
    assert streamed == [tokens[step] for step in range(4) for tokens in results]


def test_a_callback_that_raises_leaves_the_engine_in_order(
    tiny: Model, random_prompts: Prompts, alone: Alone
) -> None:
    def refuse(token: int) -> None:
        raise KeyError(token)

    engine = engine_for(tiny, slots=40)
    first, second = random_prompts(2, 9, 6)
    angry = engine.submit(Request(first, max_new_tokens=3, on_token=refuse))
    calm = engine.submit(Request(second, max_new_tokens=3))
    with pytest.raises(KeyError):
        engine.run()
    engine.abort(angry)
    engine.run()
    assert calm.result is not None
    assert calm.result.tokens == alone(tiny, Request(second, max_new_tokens=3)).tokens
    assert free_slots(engine) == 40


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 7])
def test_abort_in_any_state_returns_everything(
    tiny: Model, random_prompts: Prompts, alone: Alone, steps: int
) -> None:
    engine = engine_for(tiny, slots=24, chunk_tokens=10, max_running=2)
    requests = [Request(prompt, max_new_tokens=5) for prompt in random_prompts(4, 18, 7)]
    sequences = [engine.submit(request) for request in requests]
    for _ in range(steps):
        engine.step()
    for sequence in sequences[:3]:
        engine.abort(sequence)
        engine.abort(sequence)
    assert all(sequence.result is not None for sequence in sequences[:3])
    engine.run()
    assert sequences[3].result is not None
    assert sequences[3].result.tokens == alone(tiny, requests[3]).tokens
    assert free_slots(engine) == 24


def test_a_callback_may_abort(tiny: Model, random_prompts: Prompts) -> None:
    engine, sequences = engine_for(tiny, slots=24), []
    (prompt,) = random_prompts(1, 18, 8)

    def enough(token: int) -> None:
        engine.abort(sequences[0])

    sequences.append(engine.submit(Request(prompt, max_new_tokens=5, on_token=enough)))
    engine.run()
    assert sequences[0].result is not None
    assert sequences[0].result.finish == "aborted"
    assert len(sequences[0].result.tokens) == 1
    assert free_slots(engine) == 24


def test_close_aborts_all(tiny: Model, random_prompts: Prompts) -> None:
    engine = engine_for(tiny, slots=24, max_running=2)
    sequences: list[Sequence] = [engine.submit(Request(prompt, 5)) for prompt in random_prompts(4, 18, 9)]
    engine.step()
    engine.close()
    assert not engine.busy
    assert [sequence.result.finish for sequence in sequences if sequence.result] == ["aborted"] * 4
    assert free_slots(engine) == 24


def test_a_request_that_can_never_fit_is_refused(tiny: Model) -> None:
    engine = engine_for(tiny, slots=4, page_size=4)
    assert engine.generate([Request([1] * 12, max_new_tokens=5)])[0].finish == "length"
    with pytest.raises(RequestTooLarge, match=r"12 prompt and 6 new tokens need 5 pages of 4.*has 4"):
        engine.submit(Request([1] * 12, max_new_tokens=6))
    large = engine_for(tiny, slots=10_000, page_size=4)
    with pytest.raises(RequestTooLarge, match="8192 positions"):
        large.submit(Request([1] * 8192, max_new_tokens=2))
    assert not engine.busy
    assert free_slots(engine) == 4


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (Request([], 3), "tokens"),
        (Request([1, 256], 3), "tokens"),
        (Request([1, -1], 3), "tokens"),
        (Request(torch.ones(3), 3), "tokens"),
        (Request(torch.ones(2, 2, dtype=torch.int64), 3), "tokens"),
        (Request([1], 0), "max_new_tokens"),
    ],
)
def test_bad_requests_name_the_argument(tiny: Model, request_: Request, name: str) -> None:
    engine = engine_for(tiny, slots=4)
    with pytest.raises(ValueError, match=name):
        engine.submit(request_)
    assert not engine.busy


@pytest.mark.parametrize("option", ["chunk_tokens", "max_running"])
def test_bad_options_name_the_argument(tiny: Model, option: str) -> None:
    with pytest.raises(ValueError, match=option):
        engine_for(tiny, slots=4, **{option: 0})


def test_requests_step_back_where_hits_promised_too_much(
    tiny: Model, random_prompts: Prompts, alone: Alone
) -> None:
    """If a load finds less than the hits said, and pins more, those behind make way and come again."""

    class Pinning(UncachedHit):
        pinned: torch.Tensor | None = None

        def release(self, generated: int = 0) -> None:
            super().release(generated)
            if self.pinned is not None:
                self.owner.free(self.pinned)

    class Promising(Uncached):
        tries = 0

        def match_prefix(self, tokens: torch.Tensor, *args: Any, **options: Any) -> UncachedHit:
            return Pinning(self, device_length=len(tokens) // 4 * 4)

        def load(self, hits: list[UncachedHit]) -> UncachedLoad:
            self.tries += len(hits)
            for hit in hits[1:]:
                hit.pinned = self.allocate(6)  # type: ignore[attr-defined]
            return super().load(hits)

    requests = [Request(prompt, max_new_tokens=5) for prompt in random_prompts(5, 20, 10)]
    pool = KVPool.create(tiny.config, slots=20, page_size=4, dtype=tiny.dtype)
    cache = Promising(20, 4)
    results = Engine(tiny, pool, cache).generate(requests)
    assert [result.tokens for result in results] == [alone(tiny, request).tokens for request in requests]
    assert cache.tries > len(requests), "nobody stepped back"
    assert cache.free_slots == 20


def test_a_stall_is_an_error_not_a_hang(tiny: Model) -> None:
    """A cache that never has room, although nobody runs, is a bug; the engine says so instead of waiting."""

    class NoRoom(Uncached):
        def allocate(self, pages: int) -> None:
            return None

    pool = KVPool.create(tiny.config, slots=8, page_size=4, dtype=tiny.dtype)
    engine = Engine(tiny, pool, NoRoom(8, 4), stall_timeout=0.05)
    engine.submit(Request([1, 2, 3], 3))
    with pytest.raises(EngineStalled, match="needs 2 of 8 pages"):
        engine.run()
    engine.close()
    assert not engine.busy


def test_a_slot_freed_twice_is_noticed() -> None:
    slots = Uncached(4, 1)
    taken = slots.allocate(2)
    assert taken is not None
    slots.free(taken)
    with pytest.raises(RuntimeError, match="freed twice"):
        slots.free(taken)
