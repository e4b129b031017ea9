"""The engine's pools, one for each kind of layer, each with its own slots.

    kv       a page of a full-attention layer's K and V; a sequence keeps all of its pages
    window   a page of a sliding-window layer's K and V; a sequence keeps those its window still reaches
    state    one recurrent state of all S layers; a sequence has a private one, the others are checkpoints

For: the model, which reads and writes them, and the cache, which copies their slots.
Assumes: whoever allocates slots never gives one to two owners.
Refuses to know: which slot belongs to whom.
On error: a pool that the model needs and that isn't there, or an impossible size, is a `ValueError`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hicache.engines.reference.config import STATE, WINDOW, ModelConfig
from hicache.engines.reference.pool import KVPool


@dataclass(frozen=True, slots=True)
class StatePool:
    """Slots of recurrent state; per S layer two contiguous tensors, since a state is more than one:

    memory: (slots, state_heads, state_key, state_value)
    last:   (slots, hidden), the layer's input at the last token
    """

    memory: list[Tensor]
    last: list[Tensor]
    slots: int

    @classmethod
    def create(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> StatePool:
        """A zeroed pool of `slots` states."""
        if slots < 1:
            raise ValueError(f"state_slots must be at least 1, got {slots}")
        layers = range(config.layer_kinds.count(STATE))
        shape = (slots, config.state_heads, config.state_key, config.state_value)
        return cls(
            memory=[torch.zeros(shape, dtype=dtype, device=device) for _ in layers],
            last=[torch.zeros((slots, config.hidden), dtype=dtype, device=device) for _ in layers],
            slots=slots,
        )


@dataclass(frozen=True, slots=True)
class Pools:
    """`window` and `state` are None where the model has no such layers. `buffer`: what all of them are views
    of, indexed by frames (`unified.py`); None where each has tensors of its own, indexed by slots."""

    kv: KVPool
    window: KVPool | None = None
    state: StatePool | None = None
    buffer: Tensor | None = None

    @classmethod
    def create(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        page_size: int,
        window_slots: int = 0,
        state_slots: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> Pools:
        """Zeroed pools: `slots` and `window_slots` pages, `state_slots` states, as the model needs them."""
        kinds = config.layer_kinds
        for name, kind, given in (
            ("window_slots", WINDOW, window_slots),
            ("state_slots", STATE, state_slots),
        ):
            if (kind in kinds) != (given > 0):
                raise ValueError(f"{name}: {given} does not fit a model with layers {kinds}")
        window = state = None
        if WINDOW in kinds:
            window = KVPool.create(config, slots=window_slots, page_size=page_size, kind=WINDOW, dtype=dtype)
        if STATE in kinds:
            state = StatePool.create(config, slots=state_slots, dtype=dtype)
        return cls(KVPool.create(config, slots=slots, page_size=page_size, dtype=dtype), window, state)

    @classmethod
    def of(cls, pool: KVPool | Pools) -> Pools:
        """The pools of a model that has full attention only may be just its KV pool."""
        return cls(pool) if isinstance(pool, KVPool) else pool

    def check(self, config: ModelConfig) -> None:
        """`ValueError` unless there is a pool for every kind of layer."""
        for name, kind, there in (("window", WINDOW, self.window), ("state", STATE, self.state)):
            if kind in config.layer_kinds and there is None:
                raise ValueError(f"pools: the model's layers {config.layer_kinds} need a {name} pool")
