"""Weights that are replaced under load: from `bump_epoch` on every answer is the new weights', whatever was
cached on device, host and storage before, and whatever was waiting, fetching or running then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conversations import Script, script
from test_engine_cache import HOST_TOKENS, Stack, play, request_of

from hicache.engines.reference import Model, Request, Result, random_weights

Alone = Callable[[Model, Request], Result]


@pytest.fixture(scope="module")
def others(tiny: Model) -> Model:
    """The same model after an update."""
    return Model(tiny.config, random_weights(tiny.config, seed=12, dtype=torch.float64))


@pytest.fixture(scope="module")
def before(tiny: Model, alone: Alone) -> Script:
    return script(tiny, alone)


def stack_of(model: Model, folder: Path, epoch: int) -> Stack:
    return Stack(model, page_size=4, host_tokens=HOST_TOKENS, store=folder / "store", weights_epoch=epoch)


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 7])
def test_answers_are_the_new_weights(
    tiny: Model, others: Model, before: Script, alone: Alone, tmp_path: Path, steps: int
) -> None:
    """Half a round runs on the old weights for some steps, the other half waits; then the weights change."""
    with stack_of(tiny, tmp_path, epoch=0) as stack:
        for turns in before[:2]:
            play(stack, turns)
        stack.settle()
        stack.forget(*(["device"] if steps % 2 else ["device", "host"]))
        engine, requests = stack.engine, [request_of(turn) for turn in before[2]]
        running = [engine.submit(request) for request in requests[:3]]
        for _ in range(steps):
            engine.step()
        waiting = [engine.submit(request) for request in requests[3:]]
        engine.model = others
        stack.cache.bump_epoch()
        assert stack.cache.identity is not None
        assert stack.cache.identity.weights_epoch == 1
        stack.cache.check()
        # What had begun is begun anew, as an engine does that updates its weights.
        for sequence in running:
            engine.abort(sequence)
        again = [engine.submit(request) for request in requests[:3]]
        engine.run()
        for sequence, request in zip(again + waiting, requests, strict=True):
            assert sequence.result is not None
            expected = alone(others, request)
            assert sequence.result.tokens == expected.tokens
        # The new epoch hits its own pages.
        result = engine.generate([requests[0]])[0]
        assert result.tokens == alone(others, requests[0]).tokens
        assert result.computed_tokens < result.prompt_tokens
        stack.check_books()
    with stack_of(others, tmp_path, epoch=1) as later:
        result = later.engine.generate([requests[0]])[0]
        assert result.tokens == alone(others, requests[0]).tokens
        assert result.storage_tokens > 0, "the next process finds what was stored in the epoch"
    with stack_of(tiny, tmp_path, epoch=0) as back:
        assert play(back, before[0][:1])["storage"] > 0, "and one with the old weights what was stored before"


def test_running_requests_may_end_on_what_they_hold(
    tiny: Model, others: Model, before: Script, alone: Alone, tmp_path: Path
) -> None:
    """Their answers mix two models; what matters is that nobody else ever reads what they wrote."""
    with stack_of(tiny, tmp_path, epoch=0) as stack:
        for turns in before[:2]:
            play(stack, turns)
        requests = [request_of(turn) for turn in before[2]]
        sequences = [stack.engine.submit(request) for request in requests]
        for _ in range(4):
            stack.engine.step()
        stack.engine.model = others
        stack.cache.bump_epoch()
        stack.engine.run()
        assert all(sequence.result is not None for sequence in sequences)
        for request in requests:
            assert stack.engine.generate([request])[0].tokens == alone(others, request).tokens
        stack.check_books()
    with stack_of(others, tmp_path, epoch=1) as later:
        for request in requests:
            assert later.engine.generate([request])[0].tokens == alone(others, request).tokens


def test_without_the_bump_old_pages_would_be_found(
    tiny: Model, others: Model, before: Script, alone: Alone, tmp_path: Path
) -> None:
    """The test of these tests."""
    with stack_of(tiny, tmp_path, epoch=0) as stack:
        play(stack, before[0])
        stack.engine.model = others
        requests = [request_of(turn) for turn in before[1]]
        answers = [stack.engine.generate([request])[0].tokens for request in requests]
        assert any(
            answer != alone(others, request).tokens for answer, request in zip(answers, requests, strict=True)
        )
