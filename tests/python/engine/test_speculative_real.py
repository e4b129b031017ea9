"""The real model and a draft that recalls: what it guesses after a prompt that repeats itself is partly
right, from every tier the same."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from speculated import Stack, found, same

from hicache.engines.reference import Model, Request, Result
from hicache.engines.reference.draft import Recall
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.smollm2 import SmolLM2
from hicache.engines.reference.speculative import Answer

NEW = 6
KINDS = [(Drafted.sidecar, 0), (Drafted.packed, 0), (Drafted.fused, 0), (Drafted.sidecar, 1)]


@pytest.fixture(scope="module")
def prompt(real: SmolLM2) -> list[int]:
    """The beginning of a source file, and its beginning again."""
    document = real.tokenizer.encode(inspect.getsource(textwrap))[:40]
    return document + document[:6]


@pytest.fixture(scope="module")
def draft(real: SmolLM2) -> Recall:
    return Recall(real.model.config)


@pytest.fixture
def one_thread(threads: None) -> None:
    """Passes of a few tokens: where other work runs as well, threads mostly wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def plain(
    real: SmolLM2, prompt: list[int], alone: Callable[[Model, Request], Result], logit_bound: float
) -> list[int]:
    """What the model says alone: by far more than what rounding may change."""
    result = alone(real.model, Request(prompt, NEW, keep_logits=True))
    assert result.logits is not None
    best = result.logits.topk(2).values
    assert float((best[:, 0] - best[:, 1]).min()) > 10 * logit_bound
    return result.tokens


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("arrange", "ahead"), KINDS, ids=["sidecar", "packed", "fused", "pairs"])
def test_the_real_model_accepts_the_same_guesses_from_every_tier(
    real: SmolLM2,
    draft: Recall,
    prompt: list[int],
    plain: list[int],
    tmp_path: Path,
    arrange: Callable[..., Drafted],
    ahead: int,
) -> None:
    def stack() -> Stack:
        return Stack(real.model, draft, arrange, ahead, page_size=8, slots=8, store=tmp_path)

    whole = (len(prompt) - 1 - ahead) // 8 * 8
    with stack() as first:
        cold = first.ask(prompt, NEW)
        assert cold.result.tokens == plain
        assert 0 < sum(cold.accepted) < sum(cold.guessed)
        answers = [(first.ask(prompt, NEW), (whole, 0, 0))]
        first.leave("device")
        answers.append((first.ask(prompt, NEW), (0, whole, 0)))
    with stack() as second:
        answers.append((second.ask(prompt, NEW), (0, 0, whole)))
    for answer, tiers in answers:
        assert found(answer)[:3] == tiers
        assert same(answer, cold)


@pytest.mark.usefixtures("one_thread")
def test_a_real_draft_without_its_rows_would_be_seen(
    real: SmolLM2, draft: Recall, prompt: list[int], plain: list[int]
) -> None:
    def forgotten(both: Drafted) -> Drafted:
        return replace(both, declared=both.declared[:1])

    answers: list[Answer] = []
    with Stack(real.model, draft, Drafted.sidecar, page_size=8, slots=8, declare=forgotten) as stack:
        for _ in range(2):
            answers.append(stack.ask(prompt, NEW))
            stack.leave("device")
    cold, restored = answers
    assert cold.result.tokens == restored.result.tokens == plain
    assert found(restored)[1] > 0
    assert sum(restored.accepted) < sum(cold.accepted)
