"""The pools of a model and its draft together, which use the same slots: a page is both models' rows or
nothing.

    sidecar   a pool for each; the draft's follows the target's slots
    packed    one pool: the draft's layers before the target's
    fused     one tensor a layer for both: heads of the target, then heads of the draft

Since they are one page, they are found, backed up, stored and evicted together, and what is lost of one is
lost of both. A load brings layers in the order of their numbers: the draft's have the smaller ones, since it
runs first.

For: `speculative.py`, and whoever makes a `hicache.HiCache` for it.
Assumes: models of full attention.
Refuses to know: tokens; which slot is whose.
On error: `ValueError` that names what can't be laid out so.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hicache.engines.reference.config import FULL, ModelConfig
from hicache.engines.reference.pool import KVPool
from hicache.pools import Pool, mha, numbered


@dataclass(frozen=True, slots=True)
class Drafted:
    """target, draft: where each model's rows are, by the same slots
    declared:      as a cache takes them
    target_first:  number of the target's first layer in a load; the draft's is 0
    """

    target: KVPool
    draft: KVPool
    declared: list[Pool]
    target_first: int

    @classmethod
    def sidecar(
        cls, target: ModelConfig, draft: ModelConfig, *, slots: int, page_size: int, dtype: torch.dtype
    ) -> Drafted:
        """Two pools."""
        own, its = _pools(target, draft, slots, page_size, dtype)
        declared = [numbered(mha("kv", own.k, own.v), draft.layers), mha("draft", its.k, its.v)]
        return cls(own, its, declared, draft.layers)

    @classmethod
    def packed(
        cls, target: ModelConfig, draft: ModelConfig, *, slots: int, page_size: int, dtype: torch.dtype
    ) -> Drafted:
        """One pool of both models' layers."""
        own, its = _pools(target, draft, slots, page_size, dtype)
        return cls(own, its, [mha("kv", its.k + own.k, its.v + own.v)], draft.layers)

    @classmethod
    def fused(
        cls, target: ModelConfig, draft: ModelConfig, *, slots: int, page_size: int, dtype: torch.dtype
    ) -> Drafted:
        """One tensor a layer, of which each model sees its heads. What is declared is the whole tensor: rows
        of a page lie in one run, whoever reads which part of them."""
        _full(target, draft)
        if target.head_dim != draft.head_dim or target.layers < draft.layers:
            raise ValueError("draft: to be fused it needs the target's head_dim, and no more layers than it")
        heads = [target.kv_heads + draft.kv_heads * (layer < draft.layers) for layer in range(target.layers)]
        rows = slots * page_size
        k, v = ([torch.zeros(rows, its, target.head_dim, dtype=dtype) for its in heads] for _ in range(2))

        def part(begin: int, end: int | None, layers: int) -> KVPool:
            views = [[tensor[:, begin:end] for tensor in of[:layers]] for of in (k, v)]
            return KVPool(k=views[0], v=views[1], slots=slots, page_size=page_size)

        own, its = part(0, target.kv_heads, target.layers), part(target.kv_heads, None, draft.layers)
        return cls(own, its, [mha("kv", k, v)], 0)


def _pools(
    target: ModelConfig, draft: ModelConfig, slots: int, page_size: int, dtype: torch.dtype
) -> tuple[KVPool, KVPool]:
    _full(target, draft)
    own, its = (
        KVPool.create(config, slots=slots, page_size=page_size, dtype=dtype) for config in (target, draft)
    )
    return own, its


def _full(*configs: ModelConfig) -> None:
    for config in configs:
        if set(config.layer_kinds) != {FULL}:
            raise ValueError(f"config: drafts are for full attention, not for layers {config.layer_kinds}")
