"""Weights of a model: named tensors, and seeded random ones of any size and dtype.

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

from hicache.engines.reference.config import STATE, ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One attention layer; rows of `attn_q` and `attn_k` are in the rotary order of the model's family.

    The norms that are None in a llama are Gemma's: of each head's Q and K (head_dim,), and behind attention
    and FFN (hidden,).
    """

    attn_norm: Tensor  # (hidden,)
    attn_q: Tensor  # (query_heads * head_dim, hidden)
    attn_k: Tensor  # (kv_heads * head_dim, hidden)
    attn_v: Tensor  # (kv_heads * head_dim, hidden)
    attn_output: Tensor  # (hidden, query_heads * head_dim)
    ffn_norm: Tensor  # (hidden,)
    ffn_gate: Tensor  # (ffn, hidden)
    ffn_up: Tensor  # (ffn, hidden)
    ffn_down: Tensor  # (hidden, ffn)
    attn_q_norm: Tensor | None = None
    attn_k_norm: Tensor | None = None
    post_attention_norm: Tensor | None = None
    post_ffw_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class StateLayerWeights:
    """One layer of gated linear attention (see `recurrent.py`), with the same FFN behind it."""

    attn_norm: Tensor  # (hidden,)
    state_mix: Tensor  # (hidden,), in 0 .. 1: how much of the token before comes in
    state_q: Tensor  # (state_heads * state_key, hidden)
    state_k: Tensor  # (state_heads * state_key, hidden)
    state_v: Tensor  # (state_heads * state_value, hidden)
    state_gate: Tensor  # (state_heads, hidden)
    state_output: Tensor  # (hidden, state_heads * state_value)
    ffn_norm: Tensor  # (hidden,)
    ffn_gate: Tensor  # (ffn, hidden)
    ffn_up: Tensor  # (ffn, hidden)
    ffn_down: Tensor  # (hidden, ffn)
    post_attention_norm: Tensor | None = None
    post_ffw_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model. `head` is the embedding itself where the two are tied."""

    embedding: Tensor  # (vocabulary, hidden)
    layers: tuple[LayerWeights | StateLayerWeights, ...]
    output_norm: Tensor  # (hidden,)
    head: Tensor  # (vocabulary, hidden)

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor) of every weight, always in the same order: `blk.3.attn_q` and so on."""
        yield "token_embd", self.embedding
        for number, layer in enumerate(self.layers):
            for field in fields(layer):
                tensor = getattr(layer, field.name)
                if tensor is not None:
                    yield f"blk.{number}.{field.name}", tensor
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
    draw = _Draw(config, torch.Generator().manual_seed(seed), dtype)
    embedding = draw.matrix(config.vocabulary, config.hidden, gain=math.sqrt(config.hidden))
    if config.family == "gemma3":
        embedding = embedding / math.sqrt(config.hidden)  # the model multiplies
    layers = tuple(
        draw.state_layer() if kind == STATE else draw.attention_layer() for kind in config.layer_kinds
    )
    head = embedding if config.tied_embeddings else draw.matrix(config.vocabulary, config.hidden)
    return Weights(embedding=embedding, layers=layers, output_norm=draw.norm(), head=head)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Draws weights one after the other."""

    config: ModelConfig
    generator: torch.Generator
    dtype: torch.dtype

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Tensor:
        drawn = torch.randn(rows, columns, generator=self.generator, dtype=torch.float64)
        return drawn.mul(gain / math.sqrt(columns)).to(self.dtype)

    def norm(self, width: int = 0) -> Tensor:
        return (1 + 0.1 * torch.randn(width or self.config.hidden, generator=self.generator)).to(self.dtype)

    def attention_layer(self) -> LayerWeights:
        config = self.config
        queries, keys = config.query_heads * config.head_dim, config.kv_heads * config.head_dim
        return LayerWeights(
            attn_norm=self.norm(),
            attn_q=self.matrix(queries, config.hidden, gain=2.0),
            attn_k=self.matrix(keys, config.hidden, gain=2.0),
            attn_v=self.matrix(keys, config.hidden),
            attn_output=self.matrix(config.hidden, queries),
            **self._ffn(),
            **self._post_norms(),
            **self._head_norms(),
        )

    def state_layer(self) -> StateLayerWeights:
        config = self.config
        keys, values = config.state_heads * config.state_key, config.state_heads * config.state_value
        return StateLayerWeights(
            attn_norm=self.norm(),
            state_mix=torch.rand(config.hidden, generator=self.generator).to(self.dtype),
            state_q=self.matrix(keys, config.hidden, gain=2.0),
            state_k=self.matrix(keys, config.hidden, gain=2.0),
            state_v=self.matrix(values, config.hidden),
            state_gate=self.matrix(config.state_heads, config.hidden),
            state_output=self.matrix(config.hidden, values),
            **self._ffn(),
            **self._post_norms(),
        )

    def _ffn(self) -> dict[str, Tensor]:
        config = self.config
        return {
            "ffn_norm": self.norm(),
            "ffn_gate": self.matrix(config.ffn, config.hidden),
            "ffn_up": self.matrix(config.ffn, config.hidden),
            "ffn_down": self.matrix(config.hidden, config.ffn),
        }

    def _post_norms(self) -> dict[str, Tensor]:
        names = ("post_attention_norm", "post_ffw_norm") if self.config.family == "gemma3" else ()
        return {name: self.norm() for name in names}

    def _head_norms(self) -> dict[str, Tensor]:
        names = ("attn_q_norm", "attn_k_norm") if self.config.family == "gemma3" else ()
        return {name: self.norm(self.config.head_dim) * 1.5 for name in names}
