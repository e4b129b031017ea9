"""Is this a request that the engine can ever run?

For: `Engine.submit`: everything wrong with a request is said here, before it holds anything.
Assumes: nothing of the request.
Refuses to know: the cache, other requests.
On error: `ValueError` naming the argument; `RequestTooLarge` for one that would not fit an empty pool.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hicache.engines.reference.config import ModelConfig
from hicache.engines.reference.parts import Needs
from hicache.engines.reference.request import Request


class RequestTooLarge(ValueError):
    """A request that needs more KV than the whole device pool, or more positions than the model, has."""


def checked(request: Request, config: ModelConfig, needs: Needs) -> Tensor:
    """The prompt as a 1-D int64 tensor on the CPU."""
    prompt = _prompt(request, config)
    if request.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {request.max_new_tokens}")
    pool = needs.pools.kv
    kv_tokens = len(prompt) + request.max_new_tokens - 1
    size = f"{len(prompt)} prompt and {request.max_new_tokens} new tokens"
    if kv_tokens > config.max_positions:
        raise RequestTooLarge(f"{size} exceed the model's {config.max_positions} positions")
    if pool.pages_for(kv_tokens) > pool.slots:
        raise RequestTooLarge(
            f"{size} need {pool.pages_for(kv_tokens)} pages of {pool.page_size} tokens, "
            f"the whole device pool has {pool.slots}"
        )
    lacking = needs.lacking(needs.of(kv_tokens))
    if lacking is not None:
        raise RequestTooLarge(f"{size} need {lacking}")
    return prompt


def _prompt(request: Request, config: ModelConfig) -> Tensor:
    tokens = request.tokens
    prompt = tokens if isinstance(tokens, Tensor) else torch.tensor(list(tokens), dtype=torch.int64)
    if prompt.dim() != 1 or len(prompt) == 0:
        raise ValueError(f"tokens must be a non-empty list of token ids, got shape {tuple(prompt.shape)}")
    if prompt.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"tokens must be int32 or int64, got {prompt.dtype}")
    low, high = int(prompt.min()), int(prompt.max())
    if low < 0 or high >= config.vocabulary:
        wrong = low if low < 0 else high
        raise ValueError(f"tokens must be in 0 .. {config.vocabulary - 1}, got {wrong}")
    return prompt.to("cpu", torch.int64)
