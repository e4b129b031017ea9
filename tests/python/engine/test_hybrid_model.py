"""The forward pass of hybrids: windows and states as a naive whole-sequence computation has them.

Each plant (a window or a state one page or token off, a page missing, a shared state advanced) must be seen.
"""

from __future__ import annotations

import random

import naive
import pytest
import torch
from hybrids import ROUNDING, SEEN, hybrid, off, some_tokens

from hicache.engines.reference import Model, ModelConfig, Pools, Span, StateUse


class Runner:
    """One sequence over pools of its own, with shuffled slots; forgets window pages as soon as it may."""

    def __init__(self, model: Model, tokens: torch.Tensor, page_size: int, seed: int = 0) -> None:
        self.model, self.tokens, self.page_size = model, tokens, page_size
        pages = -(-len(tokens) // page_size)
        self.pools = Pools.create(
            model.config,
            slots=pages + 3,
            page_size=page_size,
            window_slots=(pages + 3) * ("W" in model.config.kinds),
            state_slots=8 * ("S" in model.config.kinds),
            dtype=model.dtype,
        )
        generator = torch.Generator().manual_seed(seed)
        self.table, self.window = (torch.randperm(pages + 3, generator=generator)[:pages] for _ in range(2))
        self.source: int | None = None

    def span(self, start: int, end: int, checkpoint: tuple[int, int] | None = None) -> Span:
        has = self.model.config.kinds
        first = max(0, start - self.model.config.window + 1) // self.page_size
        window = self.window.clone()
        window[:first] = -1
        return Span(
            self.tokens[start:end],
            start,
            self.table,
            window if "W" in has else None,
            StateUse(self.source, 5, checkpoint) if "S" in has else None,
        )

    def run(self, start: int, end: int, checkpoint: tuple[int, int] | None = None) -> torch.Tensor:
        out = self.model.logits(self.model.hidden([self.span(start, end, checkpoint)], self.pools))
        self.source = 5
        return out


@pytest.mark.parametrize("seed", range(24))
def test_any_geometry_in_any_pieces_equals_the_naive_whole(seed: int) -> None:
    draw = random.Random(seed)
    kv_heads = draw.choice([1, 2, 3])
    model = hybrid(
        "".join(draw.choice("FWS") for _ in range(draw.randint(1, 5))) + draw.choice("WS"),
        family=draw.choice(["llama", "gemma3"]),
        kv_heads=kv_heads,
        query_heads=kv_heads * draw.choice([1, 2, 4]),
        head_dim=draw.choice([2, 6, 8]),
        window=draw.randint(1, 20),
        state_heads=draw.randint(1, 4),
        state_key=draw.randint(1, 9),
        state_value=draw.randint(1, 9),
    )
    tokens = some_tokens(draw.randint(30, 80), seed)
    runner = Runner(model, tokens, draw.choice([1, 3, 4, 16]), seed)
    parts, at = [], 0
    while at < len(tokens):
        end = min(len(tokens), at + draw.choice([1, 1, 2, 5, 17, 70]))
        boundary = end // runner.page_size * runner.page_size
        parts.append(runner.run(at, end, (boundary, 2) if boundary > at else None))
        at = end
    assert off(torch.cat(parts), naive.logits(model, tokens)) < ROUNDING


def test_a_batch_of_hybrids_is_each_of_them_alone() -> None:
    model = hybrid("WFS")
    tokens = some_tokens(40)
    pools = Pools.create(
        model.config, slots=30, page_size=4, window_slots=30, state_slots=4, dtype=torch.float64
    )
    slots = torch.randperm(30)
    first = Span(tokens[:18], 0, slots[:10], slots[20:], StateUse(None, 0))
    model.forward([first], pools)
    spans = [
        Span(tokens[18:19], 18, slots[:10], slots[20:], StateUse(0, 0)),
        Span(tokens[:33], 0, slots[10:20], slots[:10], StateUse(None, 1)),
    ]
    both = model.forward(spans, pools)
    assert off(both[0], naive.logits(model, tokens[:19])[-1]) < ROUNDING
    assert off(both[1], naive.logits(model, tokens[:33])[-1]) < ROUNDING


@pytest.mark.parametrize("page_size", [1, 3, 4])
@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_exactly_the_window_is_read(window: int, page_size: int) -> None:
    """Rows of the last W - 1 positions matter, each of them; what is before them is not read."""
    start, tokens = 24, some_tokens(25)
    runner = Runner(hybrid("WF", window=window), tokens, page_size)
    runner.run(0, start)
    right = runner.run(start, start + 1)
    assert runner.pools.window is not None
    k = runner.pools.window.k[0]
    rows = runner.pools.window.rows(runner.window, start)
    for position in range(start):
        before = k[rows[position]].clone()
        k[rows[position]] = -before
        moved = off(runner.run(start, start + 1), right)
        k[rows[position]] = before
        assert (moved > SEEN) == (position > start - window), (position, moved)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_window_one_page_off_is_noticed(by: int) -> None:
    tokens = some_tokens(30)
    runner = Runner(hybrid("WF", window=9), tokens, 4)
    runner.run(0, 28)
    right = runner.run(28, 30)
    runner.window = runner.window.roll(by)
    assert off(runner.run(28, 30), right) > SEEN


@pytest.mark.parametrize("by", [-1, 1])
def test_a_window_one_token_off_is_noticed(by: int) -> None:
    tokens = some_tokens(30)
    right = naive.logits(hybrid("WF", window=9), tokens)
    assert off(Runner(hybrid("WF", window=9), tokens, 4).run(0, 30), right) < ROUNDING
    assert off(Runner(hybrid("WF", window=9 + by), tokens, 4).run(0, 30), right) > SEEN


def test_a_page_that_has_left_the_window_is_not_read_silently() -> None:
    runner = Runner(hybrid("WF", window=9), some_tokens(30), 4)
    runner.run(0, 28)
    span = runner.span(28, 30)
    assert span.window_table is not None
    span.window_table[5] = -1
    with pytest.raises(ValueError, match="no slot for a page of positions 20 to 30"):
        runner.model.hidden([span], runner.pools)


@pytest.mark.parametrize("kinds", ["S", "SF", "SWF"])
@pytest.mark.parametrize("checkpoint", [4, 12, 24])
def test_a_checkpoint_goes_on_as_if_nothing_had_happened(kinds: str, checkpoint: int) -> None:
    """Written in the middle of a pass, used by two others afterwards, and not changed by either of them."""
    tokens = some_tokens(30)
    runner = Runner(hybrid(kinds), tokens, 4)
    whole = runner.run(0, 30, (checkpoint, 2))
    assert off(whole, naive.logits(runner.model, tokens)) < ROUNDING
    kept = [tensor[2].clone() for tensor in states(runner)]
    for cut in (checkpoint + 1, 30):
        runner.source = 2
        again = runner.run(checkpoint, cut)
        assert off(again, whole[checkpoint:cut]) < ROUNDING
        if cut < 30:
            assert off(runner.run(cut, 30), whole[cut:]) < ROUNDING
    assert all(torch.equal(tensor[2], before) for tensor, before in zip(states(runner), kept, strict=True))


@pytest.mark.parametrize("by", [-4, -1, 1, 4])
def test_a_state_one_page_or_token_off_is_noticed(by: int) -> None:
    tokens = some_tokens(40)
    runner = Runner(hybrid("SF"), tokens, 4)
    right = runner.run(0, 40, (24 + by, 2))
    runner.source = 2
    assert off(runner.run(24, 40)[-1], right[-1]) > SEEN, "fifteen tokens later"


@pytest.mark.parametrize("part", ["memory", "last"])
def test_each_part_of_a_state_counts(part: str) -> None:
    tokens = some_tokens(30)
    runner = Runner(hybrid("FS"), tokens, 4)
    runner.run(0, 28)
    kept = [tensor[5].clone() for tensor in states(runner)]
    right = runner.run(28, 30)
    for tensor, before in zip(states(runner), kept, strict=True):
        tensor[5] = before
    getattr(runner.pools.state, part)[0][5] = 0
    assert off(runner.run(28, 30), right) > SEEN


def test_a_pass_that_fails_has_advanced_no_state() -> None:
    tokens = some_tokens(30)
    runner = Runner(hybrid("SWFS"), tokens, 4)
    runner.run(0, 13)

    def fail(layer: int) -> None:
        if layer == 3:
            raise OSError("the pages of layer 3 are lost")

    with pytest.raises(OSError, match="layer 3"):
        runner.model.hidden([runner.span(13, 30)], runner.pools, fail)
    assert off(runner.run(13, 30), naive.logits(runner.model, tokens)[13:]) < ROUNDING


def test_wrong_use_is_named() -> None:
    model, tokens = hybrid("WFS"), some_tokens(12)
    runner = Runner(model, tokens, 4)
    with pytest.raises(ValueError, match="need a window pool"):
        model.hidden([runner.span(0, 12)], runner.pools.kv)
    with pytest.raises(ValueError, match="needs its slots"):
        model.hidden([Span(tokens, 0, runner.table, runner.window)], runner.pools)
    with pytest.raises(ValueError, match="needs a window_table"):
        model.hidden([Span(tokens, 0, runner.table)], runner.pools)
    for source, start in ((None, 4), (5, 0)):
        runner.source = source
        with pytest.raises(ValueError, match=f"for a span that starts at {start}"):
            runner.run(start, 12)
    runner.source = None
    for position in (0, 13):
        with pytest.raises(ValueError, match=f"checkpoint at {position} outside 0 to 12"):
            runner.run(0, 12, (position, 2))
    with pytest.raises(ValueError, match="slot 5 is in use"):
        runner.run(0, 12, (4, 5))
    for options, name in (({"window_slots": 0}, "window_slots"), ({"state_slots": -1}, "state_slots")):
        with pytest.raises(ValueError, match=name):
            Pools.create(
                model.config, **({"slots": 4, "page_size": 4, "window_slots": 4, "state_slots": 4} | options)
            )
    shape = model.config.as_dict()
    for field, value in [
        ("family", "mamba"), ("kinds", "WF"), ("kinds", "WXS"), ("window", 0), ("window", -1),
        ("state_key", 0), ("window_rope_base", -1.0),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=field):
            ModelConfig(**{**shape, field: value})  # type: ignore[arg-type]


def states(runner: Runner) -> list[torch.Tensor]:
    assert runner.pools.state is not None
    return [*runner.pools.state.memory, *runner.pools.state.last]
