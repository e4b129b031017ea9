"""The forward pass of a llama-family decoder over paged KV.

For: turning tokens at positions into logits, reading and writing the pool's rows on the way.
Assumes: the page table of a span covers every position up to its end, and rows before its start hold valid KV
by the time `before_layer(i)` returns.
Refuses to know: requests, caches, tiers. It sees spans and rows.
On error: torch's own errors for shapes and indices; inputs were checked where the request came in.

The matrix products run over the tokens of all spans at once; attention runs span by span, so that what a
sequence attends to does not depend on who else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hicache.engines.reference.config import ModelConfig
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.rope import Rope, turn
from hicache.engines.reference.weights import LayerWeights, Weights

LayerHook = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one sequence to compute now.

    tokens:     (n,) int64, n >= 1
    start:      position of the first one; everything before it is already in the pool
    page_table: (pages,) int, the device slot of each page, at least up to position start + n
    """

    tokens: Tensor
    start: int
    page_table: Tensor

    @property
    def end(self) -> int:
        """Position just after the last token."""
        return self.start + len(self.tokens)


class Model:
    """A decoder: config and weights. It holds no KV."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self._rope = Rope(config.head_dim, config.rope_base, config.max_positions, like=weights.embedding)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights, activations and KV."""
        return self.weights.embedding.dtype

    @torch.inference_mode()
    def forward(self, spans: Sequence[Span], pool: KVPool, before_layer: LayerHook | None = None) -> Tensor:
        """Logits (len(spans), vocabulary) of each span's last token; writes the KV of all its tokens.

        `before_layer(i)` is called once per layer, just before layer i reads or writes the pool.
        """
        hidden = self.hidden(spans, pool, before_layer)
        ends = torch.tensor([len(span.tokens) for span in spans]).cumsum(0) - 1
        return self.logits(hidden[ends])

    @torch.inference_mode()
    def hidden(self, spans: Sequence[Span], pool: KVPool, before_layer: LayerHook | None = None) -> Tensor:
        """Last hidden states (sum of n, hidden) of all tokens, span after span."""
        rows = [pool.rows(span.page_table, span.end) for span in spans]
        written = torch.cat([own[span.start :] for own, span in zip(rows, spans, strict=True)])
        positions = torch.cat([torch.arange(span.start, span.end) for span in spans])
        masks = [_causal_mask(span, self.config) for span in spans]
        cos, sin = self._rope.at(positions)
        x = F.embedding(torch.cat([span.tokens for span in spans]), self.weights.embedding)
        for number, layer in enumerate(self.weights.layers):
            q, k, v = self._project(layer, x, cos, sin)
            if before_layer is not None:
                before_layer(number)
            pool.k[number].index_copy_(0, written, k)
            pool.v[number].index_copy_(0, written, v)
            parts = torch.split(q, [len(span.tokens) for span in spans])
            seen = [
                _attend(part, pool.k[number], pool.v[number], own, mask)
                for part, own, mask in zip(parts, rows, masks, strict=True)
            ]
            x = x + F.linear(torch.cat(seen), layer.attn_output)
            x = x + self._ffn(layer, x)
        return self._norm(x, self.weights.output_norm)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """(n, vocabulary) of hidden states (n, hidden)."""
        return F.linear(hidden, self.weights.head)

    def _project(
        self, layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Q (n, query_heads, head_dim), K and V (n, kv_heads, head_dim); Q and K at their positions."""
        normed = self._norm(x, layer.attn_norm)
        heads = (len(x), -1, self.config.head_dim)
        q = F.linear(normed, layer.attn_q).view(heads)
        k = F.linear(normed, layer.attn_k).view(heads)
        v = F.linear(normed, layer.attn_v).view(heads)
        return turn(q, cos, sin), turn(k, cos, sin), v

    def _ffn(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """SwiGLU."""
        normed = self._norm(x, layer.ffn_norm)
        gate = F.silu(F.linear(normed, layer.ffn_gate))
        return F.linear(gate * F.linear(normed, layer.ffn_up), layer.ffn_down)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (self.config.hidden,), weight, self.config.norm_eps)


def _causal_mask(span: Span, config: ModelConfig) -> Tensor | None:
    """(group * n, end) bool, True where a token may look; None for a single token, which sees all before it.

    The query heads that share a KV head stand one below the other (see `_attend`): one mask, group times.
    """
    if len(span.tokens) == 1:
        return None
    positions = torch.arange(span.start, span.end)
    mask = torch.arange(span.end).unsqueeze(0) <= positions.unsqueeze(1)
    return mask.repeat(config.query_heads // config.kv_heads, 1)


def _attend(q: Tensor, k_rows: Tensor, v_rows: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of q (n, query_heads, head_dim) over the KV in `rows` (end,): (n, query_heads * head_dim).

    The query heads of one KV head become more queries of that head, (kv_heads, group * n, head_dim): K and V
    need no copy per query head.
    """
    n, _, head_dim = q.shape
    k = k_rows.index_select(0, rows).transpose(0, 1)
    v = v_rows.index_select(0, rows).transpose(0, 1)
    kv_heads = k.shape[0]
    folded = q.transpose(0, 1).reshape(kv_heads, -1, head_dim)
    out = F.scaled_dot_product_attention(folded.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), attn_mask=mask)
    return out.squeeze(0).reshape(-1, n, head_dim).transpose(0, 1).reshape(n, -1)
