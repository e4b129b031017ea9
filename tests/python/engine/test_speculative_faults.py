"""Speculative decoding when something is wrong: a draft that fails, no room, models and pools that don't
fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from speculated import Stack, random_prompts

from hicache import ArgumentError, HiCache, pools
from hicache.engines.reference import EngineStalled, KVPool, Model, Request
from hicache.engines.reference.draft import first_layers
from hicache.engines.reference.drafted import Drafted
from hicache.engines.reference.speculative import Speculative

NEW = 16


@pytest.fixture(scope="module")
def draft(tiny: Model) -> Model:
    return first_layers(tiny, 2)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    return random_prompts()


def test_what_goes_wrong_on_the_way_leaks_nothing(
    tiny: Model, draft: Model, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft fails in its first, second, ... pass: the request ends, and is answered when it is asked
    again."""
    with Stack(tiny, draft, Drafted.sidecar) as stack:
        right = stack.ask(prompts[0], NEW).result.tokens
        for passes in range(6):
            stack.leave("device", "host")
            left = iter(range(passes))

            def failing(*given: object, left: Iterator[int] = left) -> torch.Tensor:
                if next(left, None) is None:
                    raise RuntimeError("the draft is out of order")
                return Model.forward(draft, *given)  # type: ignore[arg-type]

            with monkeypatch.context() as broken:
                broken.setattr(draft, "forward", failing)
                with pytest.raises(RuntimeError, match="out of order"):
                    stack.ask(prompts[0], NEW)
            assert stack.cache.drain(30.0)
            stack.cache.check()
            known = stack.cache.reader().would_hit(prompts[0] + right)
            assert stack.cached() == known.device_length // 4, "only what is right"
            assert stack.ask(prompts[0], NEW).result.tokens == right
        stack.check_books()


def test_no_room_is_said_after_a_while(tiny: Model, draft: Model, prompts: list[list[int]]) -> None:
    with Stack(tiny, draft, Drafted.sidecar) as stack:
        others = stack.cache.allocate(35)
        assert others is not None
        engine = Speculative(tiny, draft, stack.pools, stack.cache, stall_timeout=0.02)
        with pytest.raises(EngineStalled):
            engine.generate(Request(prompts[0], NEW))
        stack.cache.free(others)
        assert len(engine.generate(Request(prompts[0], NEW)).result.tokens) == NEW
        assert stack.cache.drain(30.0)
        stack.check_books()


def test_what_can_not_be_laid_out_or_guessed_is_refused(tiny: Model, draft: Model) -> None:
    sizes = {"slots": 4, "page_size": 4, "dtype": tiny.dtype}
    wide = replace(draft.config, head_dim=16)
    deep = replace(draft.config, layers=9, kinds="")
    for other in (wide, deep):
        with pytest.raises(ValueError, match=r"^draft: "):
            Drafted.fused(tiny.config, other, **sizes)  # type: ignore[arg-type]
    sliding = replace(draft.config, kinds="FW", window=4)
    for arrange in (Drafted.sidecar, Drafted.packed, Drafted.fused):
        with pytest.raises(ValueError, match=r"^config: "):
            arrange(tiny.config, sliding, **sizes)  # type: ignore[arg-type]
    for count in (0, 4):
        with pytest.raises(ValueError, match=r"^count: "):
            first_layers(tiny, count)
    pools_of_both = Drafted.sidecar(tiny.config, draft.config, slots=4, page_size=4, dtype=tiny.dtype)
    for wrong in ({"guesses": 0}, {"ahead": 2}):
        with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}"):
            Speculative(tiny, draft, pools_of_both, **wrong)
    with pytest.raises(ValueError, match=r"^tokens: "):
        Speculative(tiny, draft, pools_of_both, ahead=1).generate(Request([1], 4))


def test_part_of_a_fused_row_can_not_be_declared_alone(tiny: Model, draft: Model) -> None:
    both = Drafted.fused(tiny.config, draft.config, slots=4, page_size=4, dtype=tiny.dtype)
    with pytest.raises(ArgumentError, match=r"^kv\.k_buffers\[0\]: .*declare the whole"):
        pools.mha("kv", both.target.k[:2], both.target.v[:2])


def test_a_draft_with_slots_of_its_own_is_refused_by_name(tiny: Model, draft: Model) -> None:
    """It could be there where the target is not, and the other way round."""
    own, its = (KVPool.create(model.config, slots=4, page_size=4) for model in (tiny, draft))
    with pytest.raises(ArgumentError, match=r"^pools: pool draft: has slots of its own"):
        HiCache([pools.mha("kv", own.k, own.v), pools.mha("draft", its.k, its.v, follows="draft")], 4)
