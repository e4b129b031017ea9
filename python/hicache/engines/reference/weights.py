"""Weights of a llama-family model: named tensors, and seeded random ones of any size and dtype.

For: the model, which multiplies with them, and the model identity, which samples them by name.
Assumes: every matrix is `[out, in]`, as `torch.nn.functional.linear` wants it.
Refuses to know: where weights come from (see `smollm2.py`), and pages.
On error: a dtype that is not floating point is a `ValueError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from hicache.engines.reference.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; rows of `attn_q` and `attn_k` are in interleaved rotary order."""

    attn_norm: Tensor  # (hidden,)
    attn_q: Tensor  # (query_heads * head_dim, hidden)
    attn_k: Tensor  # (kv_heads * head_dim, hidden)
    attn_v: Tensor  # (kv_heads * head_dim, hidden)
    attn_output: Tensor  # (hidden, query_heads * head_dim)
    ffn_norm: Tensor  # (hidden,)
    ffn_gate: Tensor  # (ffn, hidden)
    ffn_up: Tensor  # (ffn, hidden)
    ffn_down: Tensor  # (hidden, ffn)


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding itself where the two are tied."""

    embedding: Tensor  # (vocabulary, hidden)
    layers: tuple[LayerWeights, ...]
    output_norm: Tensor  # (hidden,)
    head: Tensor  # (vocabulary, hidden)

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of every weight, always in the same order: `blk.3.attn_q` and so on."""
        yield "token_embd", self.embedding
        for number, layer in enumerate(self.layers):
            for field in fields(LayerWeights):
                yield f"blk.{number}.{field.name}", getattr(layer, field.name)
        yield "output_norm", self.output_norm
        if self.head is not self.embedding:
            yield "output", self.head


def random_weights(config: ModelConfig, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Weights:
    """Seeded random weights: equal (config, seed) give equal weights, up to rounding to `dtype`.

    Queries and keys are drawn large so that attention is peaked: were it flat, every token would see the mean
    of its whole prefix, and a test that compares outputs would hardly notice one wrong page.
    """
    if not dtype.is_floating_point:
        raise ValueError(f"dtype must be floating point, got {dtype}")
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Tensor:
        drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        return drawn.mul(gain / math.sqrt(columns)).to(dtype)

    def norm() -> Tensor:
        return (1 + 0.1 * torch.randn(config.hidden, generator=generator)).to(dtype)

    queries, keys = config.query_heads * config.head_dim, config.kv_heads * config.head_dim
    embedding = matrix(config.vocabulary, config.hidden, gain=math.sqrt(config.hidden))
    layers = tuple(
        LayerWeights(
            attn_norm=norm(),
            attn_q=matrix(queries, config.hidden, gain=2.0),
            attn_k=matrix(keys, config.hidden, gain=2.0),
            attn_v=matrix(keys, config.hidden),
            attn_output=matrix(config.hidden, queries),
            ffn_norm=norm(),
            ffn_gate=matrix(config.ffn, config.hidden),
            ffn_up=matrix(config.ffn, config.hidden),
            ffn_down=matrix(config.hidden, config.ffn),
        )
        for _ in range(config.layers)
    )
    head = embedding if config.tied_embeddings else matrix(config.vocabulary, config.hidden)
    return Weights(embedding=embedding, layers=layers, output_norm=norm(), head=head)
