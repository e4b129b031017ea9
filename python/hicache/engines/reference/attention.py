"""Attention over paged KV, all of it or the last W tokens.

For: `model.py`, once per layer.
Assumes: the table of a span has a slot for every page that its tokens look at.
Refuses to know: weights, positions' angles, which sequence a row belongs to.
On error: a page without a slot is a `ValueError` of `KVPool.rows`.

Attention runs span by span, so that what a sequence attends to does not depend on who else is in the batch.
What all layers of a kind have in common (rows, masks) is computed once a step: `View`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.span import Span


@dataclass(frozen=True, slots=True)
class View:
    """What the tokens of a batch see in one pool.

    written: (sum of n,) rows that the spans' own tokens get
    rows:    per span (seen,), the rows of the last `seen` positions up to its end
    masks:   per span (group * n, seen) bool, True where a token looks; None where it looks at all rows
    lengths: per span its n
    """

    pool: KVPool
    written: Tensor
    rows: list[Tensor]
    masks: list[Tensor | None]
    lengths: list[int]

    @classmethod
    def of(
        cls, pool: KVPool, spans: Sequence[Span], tables: Sequence[Tensor], group: int, window: int | None
    ) -> View:
        """`tables`: per span its page table in this pool; `group`: query heads of a KV head."""
        firsts = [0 if window is None else max(0, span.start - window + 1) for span in spans]
        rows = [
            pool.rows(table, span.end, first)
            for span, table, first in zip(spans, tables, firsts, strict=True)
        ]
        return cls(
            pool=pool,
            written=torch.cat([own[-len(span.tokens) :] for own, span in zip(rows, spans, strict=True)]),
            rows=rows,
            masks=[_mask(span, first, group, window) for span, first in zip(spans, firsts, strict=True)],
            lengths=[len(span.tokens) for span in spans],
        )

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes K and V (n, kv_heads, head_dim) of all tokens into the pool's layer, then attends.

        q (n, query_heads, head_dim) gives (n, query_heads * head_dim); n counts the tokens of all spans.
        """
        k_rows, v_rows = self.pool.k[layer], self.pool.v[layer]
        k_rows.index_copy_(0, self.written, k)
        v_rows.index_copy_(0, self.written, v)
        parts = torch.split(q, self.lengths)
        seen = [
            _attend(part, k_rows, v_rows, own, mask)
            for part, own, mask in zip(parts, self.rows, self.masks, strict=True)
        ]
        return torch.cat(seen)


def _mask(span: Span, first: int, group: int, window: int | None) -> Tensor | None:
    """For the rows of positions first .. end. None for a single token, which sees them all.

    The query heads that share a KV head stand one below the other (see `_attend`): one mask, group times.
    """
    if len(span.tokens) == 1:
        return None
    own = torch.arange(span.start, span.end).unsqueeze(1)
    seen = torch.arange(first, span.end).unsqueeze(0)
    mask = seen <= own
    if window is not None:
        mask &= seen > own - window
    return mask.repeat(group, 1)


def _attend(q: Tensor, k_rows: Tensor, v_rows: Tensor, rows: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of q (n, query_heads, head_dim) over the KV in `rows` (seen,): (n, query_heads * head_dim).

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
