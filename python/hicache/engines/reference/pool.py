"""The engine's paged KV pool, layer-first: per layer one K and one V tensor of rows.

    row      0 1 2 3 | 4 5 6 7 | 8 9 ...        page_size = 4
    slot        0    |    1    |   2            page slot s = rows s*page_size .. (s+1)*page_size

For: the model, which writes and reads rows, and the cache, which copies pages in and out of the same tensors.
Assumes: whoever allocates slots (the cache, or `uncached.py`) never gives one slot to two owners.
Refuses to know: which slot belongs to whom, and what is in it.
On error: a size below 1 is a `ValueError` that names it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hicache.engines.reference.config import FULL, ModelConfig


@dataclass(frozen=True, slots=True)
class KVPool:
    """`k` and `v`: per layer a tensor (slots * page_size, kv_heads, head_dim); contiguous, or some heads of
    one that is (`drafted.py`)."""

    k: list[Tensor]
    v: list[Tensor]
    slots: int
    page_size: int

    @classmethod
    def create(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        page_size: int,
        kind: str = FULL,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVPool:
        """A zeroed pool of `slots` pages of `page_size` tokens, for the model's layers of one kind.

        A model may have none: the pool then only counts slots.
        """
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1, got {page_size}")
        shape = (slots * page_size, config.kv_heads, config.head_dim)
        layers = config.layer_kinds.count(kind)
        k = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        v = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        return cls(k=k, v=v, slots=slots, page_size=page_size)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` tokens take, a partial last one included."""
        return -(-tokens // self.page_size)

    def rows(self, page_table: Tensor, tokens: int, start: int = 0) -> Tensor:
        """Rows (tokens - start,) int64 of positions start .. tokens; page p lies in slot page_table[p].

        Page 0 of the table is that of position 0, also where nothing before `start` has a slot any more.
        A page without a slot (negative) is a `ValueError`: its rows would be another page's.
        """
        first = start // self.page_size
        pages = page_table[first : self.pages_for(tokens)].to(torch.int64)
        if len(pages) and int(pages.min()) < 0:
            raise ValueError(f"page_table: no slot for a page of positions {start} to {tokens}")
        within = torch.arange(self.page_size, device=pages.device)
        rows = (pages.unsqueeze(1) * self.page_size + within).flatten()
        return rows[start - first * self.page_size : tokens - first * self.page_size]
