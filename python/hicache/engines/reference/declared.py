"""The engine's pools as a cache takes them: a pool for each kind of layer, with the model's layer numbers.

A load's layers are waited for by the model's numbers, whatever pool they are in: so each plane says its own.

For: whoever makes a `hicache.HiCache` for the engine.
Assumes: pools that fit the model (`Pools.check`).
Refuses to know: sizes of tiers, slots.
On error: `hicache.ArgumentError` for tensors that a cache can't copy.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from hicache.engines.reference.config import FULL, STATE, WINDOW, ModelConfig
from hicache.engines.reference.parts import reach
from hicache.engines.reference.pool import KVPool
from hicache.engines.reference.pools import Pools
from hicache.pools import Pool, declare, mha, states


def declared(config: ModelConfig, pools: KVPool | Pools) -> list[Pool]:
    """Pools "kv", "window" and "state", as far as the model has them; without tensors where they are in one
    buffer, which the cache then gets instead. A model without full attention has a
    "kv" without bytes: its slots only say which pages of a history there are."""
    pools = Pools.of(pools)
    if pools.buffer is not None:
        return in_one_buffer(config, pools.buffer.numel(), pools.kv.page_size, pools.kv.k[0].dtype)
    kv, window, state = pools.kv, pools.window, pools.state
    full = mha("kv", kv.k, kv.v) if kv.k else Pool("kv", (), kv.slots * kv.page_size, tensors=())
    found = [_numbered(config, FULL, full)]
    if window is not None:
        sliding = mha("window", window.k, window.v, window=reach(config.window))
        found.append(_numbered(config, WINDOW, sliding))
    if state is not None:
        layers = [list(layer) for layer in zip(state.memory, state.last, strict=True)]
        found.append(_numbered(config, STATE, states("state", layers)))
    return found


def in_one_buffer(config: ModelConfig, size: int, page_size: int, dtype: torch.dtype) -> list[Pool]:
    """Pools "kv" and "state" for one buffer of `size` bytes, without tensors. Of each there may be as many as
    the buffer holds alone."""
    kinds, row = config.layer_kinds, (config.kv_heads, config.head_dim)
    kv = declare("kv", kinds.count(FULL), 0, [row, row], dtype)
    shapes = [(config.state_heads, config.state_key, config.state_value), (config.hidden,)]
    state = declare("state", kinds.count(STATE), 0, shapes, dtype, of_pages=True, window=1)
    return [
        _numbered(config, FULL, replace(kv, rows=size // kv.page_bytes(page_size) * page_size)),
        _numbered(config, STATE, replace(state, rows=size // state.page_bytes(page_size))),
    ]


def _numbered(config: ModelConfig, kind: str, pool: Pool) -> Pool:
    """The pool with the model's layer numbers instead of those among its kind."""
    numbers = {place: layer for layer, (its, place) in enumerate(config.places()) if its == kind}
    planes = tuple(replace(plane, layer=numbers[plane.layer]) for plane in pool.planes)
    return replace(pool, planes=planes)
