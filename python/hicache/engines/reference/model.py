"""The forward pass of a decoder over paged KV and recurrent states.

For: turning tokens at positions into logits, reading and writing the pools on the way.
Assumes: the tables of a span cover what its tokens look at (`span.py`), and what is before its start is valid
in the pools by the time `before_layer(i)` returns.
Refuses to know: requests, caches, tiers. It sees spans, rows and slots.
On error: a pool or a slot that is missing is a `ValueError`, else torch's own errors for shapes and indices;
inputs were checked where the request came in. A pass that fails may have written KV of its spans' own tokens,
which the next try writes again; it has advanced no state.

The matrix products run over the tokens of all spans at once; what remembers (`attention.py`, `recurrent.py`)
runs span by span.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hicache.engines.reference.attention import View
from hicache.engines.reference.config import FULL, STATE, WINDOW, ModelConfig
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.pools import Pools
from hicache.engines.reference.recurrent import Pending, remember
from hicache.engines.reference.rope import Rope, turn
from hicache.engines.reference.span import Span
from hicache.engines.reference.weights import LayerWeights, StateLayerWeights, Weights

LayerHook = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the layers of one forward pass share: per kind of attention the rows and the positions' angles."""

    spans: Sequence[Span]
    pools: Pools
    views: dict[str, View]
    angles: dict[str, tuple[Tensor, Tensor]]
    pending: Pending


class Model:
    """A decoder: config and weights. It holds no KV and no state."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self._places = config.places()
        bases = {FULL: config.rope_base, WINDOW: config.window_rope_base or config.rope_base}
        self._ropes = {
            kind: Rope(config.head_dim, base, config.max_positions, like=weights.embedding)
            for kind, base in bases.items()
            if kind in config.layer_kinds
        }

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights, activations, KV and states."""
        return self.weights.embedding.dtype

    @torch.inference_mode()
    def forward(
        self, spans: Sequence[Span], pool: KVPool | Pools, before_layer: LayerHook | None = None
    ) -> Tensor:
        """Logits (len(spans), vocabulary) of each span's last token; writes the KV of all its tokens, and
        the states that the spans name.

        `before_layer(i)` is called once per layer, just before layer i reads or writes its pool.
        """
        hidden = self.hidden(spans, pool, before_layer)
        ends = torch.tensor([len(span.tokens) for span in spans]).cumsum(0) - 1
        return self.logits(hidden[ends])

    @torch.inference_mode()
    def hidden(
        self, spans: Sequence[Span], pool: KVPool | Pools, before_layer: LayerHook | None = None
    ) -> Tensor:
        """Last hidden states (sum of n, hidden) of all tokens, span after span."""
        batch = self._batch(spans, Pools.of(pool))
        x = F.embedding(torch.cat([span.tokens for span in spans]), self.weights.embedding)
        if self.config.family == "gemma3":
            x = x * math.sqrt(self.config.hidden)
        for number, layer in enumerate(self.weights.layers):
            seen = self._remember(number, layer, x, batch, before_layer)
            x = x + self._norm(seen, layer.post_attention_norm)
            x = x + self._norm(self._ffn(layer, x), layer.post_ffw_norm)
        batch.pending.write()
        return self._norm(x, self.weights.output_norm)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(n, vocabulary) of hidden states (n, hidden)."""
        return F.linear(hidden, self.weights.head)

    def _batch(self, spans: Sequence[Span], pools: Pools) -> _Batch:
        pools.check(self.config)
        group = self.config.query_heads // self.config.kv_heads
        views = {}
        if FULL in self._ropes:
            tables = [span.page_table for span in spans]
            views[FULL] = View.of(pools.kv, spans, tables, group, None)
        if WINDOW in self._ropes and pools.window is not None:
            tables = [table for span in spans if (table := span.window_table) is not None]
            if len(tables) < len(spans):
                raise ValueError("span: a model with sliding windows needs a window_table")
            views[WINDOW] = View.of(pools.window, spans, tables, group, self.config.window)
        positions = torch.cat([torch.arange(span.start, span.end) for span in spans])
        angles = {kind: rope.at(positions) for kind, rope in self._ropes.items()}
        return _Batch(spans, pools, views, angles, Pending(pools.state))

    def _remember(
        self,
        number: int,
        layer: LayerWeights | StateLayerWeights,
        x: Tensor,
        batch: _Batch,
        before_layer: LayerHook | None,
    ) -> Tensor:
        """What the layer's attention or state tells each token, (n, hidden)."""
        kind, place = self._places[number]
        normed = self._norm(x, layer.attn_norm)
        if isinstance(layer, LayerWeights):
            q, k, v = self._project(layer, normed, *batch.angles[kind])
        if before_layer is not None:
            before_layer(number)
        if isinstance(layer, LayerWeights):
            return F.linear(batch.views[kind].attend(place, q, k, v), layer.attn_output)
        assert batch.pools.state is not None
        assert kind == STATE
        return remember(self.config, layer, place, normed, batch.spans, batch.pools.state, batch.pending)

    def _project(
        self, layer: LayerWeights, normed: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q (n, query_heads, head_dim), K and V (n, kv_heads, head_dim); Q and K at their positions."""
        heads = (len(normed), -1, self.config.head_dim)
        q = self._norm(F.linear(normed, layer.attn_q).view(heads), layer.attn_q_norm)
        k = self._norm(F.linear(normed, layer.attn_k).view(heads), layer.attn_k_norm)
        v = F.linear(normed, layer.attn_v).view(heads)
        half = self.config.family == "gemma3"
        return turn(q, cos, sin, half_split=half), turn(k, cos, sin, half_split=half), v

    def _ffn(self, layer: LayerWeights | StateLayerWeights, x: Tensor) -> Tensor:
        """SwiGLU, or GeGLU with the tanh approximation."""
        normed = self._norm(x, layer.ffn_norm)
        gate = F.linear(normed, layer.ffn_gate)
        gate = F.gelu(gate, approximate="tanh") if self.config.family == "gemma3" else F.silu(gate)
        return F.linear(gate * F.linear(normed, layer.ffn_up), layer.ffn_down)

    def _norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """RMS norm over the last axis; a norm that the family hasn't got leaves x as it is."""
        return x if weight is None else F.rms_norm(x, weight.shape, weight, self.config.norm_eps)
