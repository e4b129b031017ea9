"""The draft runs first, so its rows must have come when the target's may still be on their way. Shown by
loads that bring nothing before it is waited for: a row that is read too early is no number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from speculated import KINDS, NAMES, Arrange, Stack, found, same

from hicache.engines.reference import KVPool, Model, ModelConfig, Span
from hicache.engines.reference.draft import first_layers
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.speculative import Answer
from hicache.hit import Hit, Load

NEW = 8
PROMPT = [(37 * number) % 251 for number in range(33)]


@dataclass
class Late:
    """The load of a stack's cache, whose layers come when they are waited for."""

    stack: Stack
    waited: list[int] = field(default_factory=list)
    missing: list[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def load(self, hits: Sequence[Hit]) -> Late:
        load: Load = type(self.stack.cache).load(self.stack.cache, hits)
        load.wait()
        self.missing = [entry for hit in hits for entry in self.taken(hit)]
        return self

    def taken(self, hit: Hit) -> Iterator[tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Layer, tensor, rows and what was in them of all that was loaded."""
        rows = self.stack.pools.target.rows(hit.slots, hit.length, hit.length - hit.loaded_length)
        for pool in self.stack.pools.declared:
            assert pool.tensors is not None
            for plane, tensor in zip(pool.planes, pool.tensors, strict=True):
                yield plane.layer, tensor, rows, tensor[rows]
                tensor[rows] = torch.nan

    def wait_layer(self, layer: int) -> None:
        self.waited.append(layer)
        for its, tensor, rows, there in self.missing:
            if its <= layer:
                tensor[rows] = there
        self.missing = [entry for entry in self.missing if entry[0] > layer]


class Impatient:
    """A draft that waits for nothing."""

    def __init__(self, draft: Model) -> None:
        self.draft = draft

    @property
    def config(self) -> ModelConfig:
        return self.draft.config

    def forward(self, spans: Sequence[Span], pool: KVPool, before_layer: object = None) -> torch.Tensor:
        return self.draft.forward(spans, pool)


def restored(
    tiny: Model, draft: Model | Impatient, arrange: Arrange, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Answer, Answer, list[int]]:
    """The same request cold, and from late loads; and which layers were waited for, in order."""
    with Stack(tiny, draft, arrange, ahead) as stack:
        cold = stack.ask(PROMPT, NEW)
        stack.leave("device")
        late = Late(stack)
        monkeypatch.setattr(stack.cache, "load", late.load)
        answer = stack.ask(PROMPT, NEW)
        monkeypatch.undo()
    assert found(answer)[1] > 0
    return cold, answer, late.waited


@pytest.mark.parametrize(("arrange", "ahead"), KINDS, ids=NAMES)
def test_each_model_waits_for_its_own_layers(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, arrange: Arrange, ahead: int
) -> None:
    draft = first_layers(tiny, 2)
    cold, answer, waited = restored(tiny, draft, arrange, ahead, monkeypatch)
    assert same(answer, cold)
    # Three guesses, for which nothing of a target with layers of its own is waited for; then its layers in
    # order.
    first = 0 if arrange == Drafted.fused else 2
    assert waited[:9] == [0, 1] * 3 + [first, first + 1, first + 2]


@pytest.mark.parametrize(("arrange", "ahead"), KINDS, ids=NAMES)
def test_a_draft_that_does_not_wait_would_be_seen(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, arrange: Arrange, ahead: int
) -> None:
    draft = Impatient(first_layers(tiny, 2))
    cold, answer, _ = restored(tiny, draft, arrange, ahead, monkeypatch)
    assert answer.result.tokens == cold.result.tokens
    assert not same(answer, cold)
