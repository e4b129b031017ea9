"""Draft models: small ones that guess what a large one will say, and keep rows of their own in a pool.

    Recall         what followed when the last words were these before: a layer of attention, no training
    first_layers   a model's own first layers under its own head

For: `speculative.py`.
Assumes: row i of a draft's pool is made of token i of what it is told; rows before a span are valid.
Refuses to know: requests, caches, who checks its guesses.
On error: `ValueError` that names what doesn't fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from hicache.engines.reference.config import FULL, ModelConfig
from hicache.engines.reference.model import LayerHook, Model
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.span import Span


class Draft(Protocol):
    """What guesses: a model of full attention. `Model` is one."""

    @property
    def config(self) -> ModelConfig:
        """Of its layers and rows: layers, kv_heads, head_dim, vocabulary."""
        ...

    def forward(self, spans: Sequence[Span], pool: KVPool, before_layer: LayerHook | None = None) -> Tensor:
        """As `Model.forward`: (len(spans), vocabulary), and the rows of all tokens of the spans."""
        ...


def first_layers(model: Model, count: int) -> Model:
    """The first `count` layers of a model, under its own head: it shares the weights, not the pool."""
    if not 0 < count <= model.config.layers:
        raise ValueError(f"count: need 1 to {model.config.layers} layers, got {count}")
    config = replace(model.config, layers=count, kinds=model.config.layer_kinds[:count])
    return Model(config, replace(model.weights, layers=model.weights.layers[:count]))


class Recall:
    """Guesses the token that followed the last tokens where they stood before: an induction head, written
    down instead of learnt (Olsson et al., In-context Learning and Induction Heads, 2022).

    A token is a random vector of a unit's length for each of the H heads. Row i of V has token i; row i of K
    has, in head h, token i - 1 - h: what stood before it. A query of the last H tokens finds rows with these
    before them, and what they have in V is what came next. All of K is read from rows of V before it, so that
    whatever is restored wrongly shows in what it guesses.

    config: a model's, of which it takes the vocabulary and the shape of a row.
    sharp:  what a head that agrees adds to a row's logit.
    """

    def __init__(self, config: ModelConfig, *, sharp: float = 12.0, seed: int = 0) -> None:
        self.config = replace(config, layers=1, kinds=FULL)
        drawn = torch.Generator().manual_seed(seed)
        shape = (config.vocabulary, config.kv_heads, config.head_dim)
        self._codes = F.normalize(torch.randn(shape, generator=drawn), dim=-1)
        self._sharp = sharp

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], pool: KVPool, before_layer: LayerHook | None = None) -> Tensor:
        """How well each token's vector agrees with what the rows say, (len(spans), vocabulary)."""
        if before_layer is not None:
            before_layer(0)
        return torch.stack([self._guess(span, pool.k[0], pool.v[0], pool) for span in spans])

    def _guess(self, span: Span, k_rows: Tensor, v_rows: Tensor, pool: KVPool) -> Tensor:
        rows = pool.rows(span.page_table, span.end)
        own, codes = rows[span.start :], self._codes.to(v_rows.dtype)
        v_rows.index_copy_(0, own, codes[span.tokens])
        v = v_rows.index_select(0, rows)
        heads = range(self.config.kv_heads)
        before = [F.pad(v[:, head], (0, 0, 1 + head, 0)) for head in heads]  # (end + 1 + head, head_dim)
        k = torch.stack([its[: span.end + 1] for its in before], dim=1)  # the row after the last: the query
        k_rows.index_copy_(0, own, k[span.start : span.end])
        agree = torch.einsum("nhd,hd->n", k_rows.index_select(0, rows), k[span.end])
        # Of several places that agree, the last one: by less than any head's agreement counts.
        agree = self._sharp * agree + torch.arange(span.end, dtype=v.dtype) / span.end
        said = torch.einsum("n,nhd->hd", agree.softmax(dim=0), v)
        return torch.einsum("vhd,hd->v", codes, said)
