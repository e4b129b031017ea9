"""Small random hybrids, and how what they answer is compared."""

from __future__ import annotations

from typing import Any

import naive
import torch

from hicache.engines.reference import Model, ModelConfig, Pools, Request, Result, random_weights

ROUNDING = 1e-10  # float64, logits of order 10
SEEN = 1e-6  # a plant moves logits by at least this much, ten thousand times the rounding


def hybrid(kinds: str, **changes: Any) -> Model:
    shape = ModelConfig.tiny().as_dict() | {"layers": len(kinds), "kinds": kinds}
    if "W" in kinds:
        shape |= {"window": 6, "window_rope_base": 1000.0}
    if "S" in kinds:
        shape |= {"state_heads": 3, "state_key": 5, "state_value": 7}
    config = ModelConfig(**(shape | changes))  # type: ignore[arg-type]
    return Model(config, random_weights(config, seed=3, dtype=torch.float64))


def some_tokens(count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed))


def off(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


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
